"""CUDA tensors through the whole Checkpointer, with a libcudart of the tests whose device is the processor.

No test here needs a device, and none has one: tensors of the processor count as a device's, the current
stream is one of that libcudart. What it cannot show is that the real one does as its documentation says."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import subprocess
import sys
import tempfile
import threading
import unittest
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

if importlib.util.find_spec("torch") is None:
    print("skipped: this Python has no torch")
    sys.exit(77)

import torch  # noqa: E402

from pawl import _cuda, _native, errors  # noqa: E402
from pawl.checkpointer import Checkpointer  # noqa: E402

torch.set_num_threads(1)
KIT = Path(__file__).resolve().parents[1] / "kit"
VERSION, ILLEGAL = 12040, 700


class State(ctypes.Structure):
    """struct fake_cuda_state."""

    _fields_ = [(name, ctypes.c_uint32) for name in (
        "streams", "events", "registered", "pageable", "copies", "wrong_device", "under_way", "most")]
    _fields_ += [("device", ctypes.c_int)]


class FakeCuda(unittest.TestCase):
    folder: tempfile.TemporaryDirectory[str]
    library: str
    fake: ctypes.CDLL

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.library = cls.folder.name + "/libcudart.so.12"
        subprocess.run(["cc", "-shared", "-fPIC", "-D_GNU_SOURCE", "-pthread", "-o", cls.library,
                        str(KIT / "fake_cudart.c")], check=True)
        cls.fake = ctypes.CDLL(cls.library)
        cls.fake.fake_cuda_state.restype = State
        cls.fake.fake_cuda_malloc.restype = cls.fake.fake_cuda_bytes.restype = ctypes.c_void_p
        cls.fake.fake_cuda_malloc.argtypes = [ctypes.c_size_t]
        cls.fake.fake_cuda_bytes.argtypes = [ctypes.c_void_p]
        cls.fake.fake_cuda_adopt.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        cls.fake.fake_cuda_hold.argtypes = [ctypes.c_void_p, ctypes.c_bool]
        cls.fake.fake_cuda_set.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
        cls.fake.fake_cuda_fail.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_uint32]

    def setUp(self) -> None:
        self.fake.fake_cuda_reset(VERSION, 2)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = folder.name + "/run"
        self.stream = ctypes.c_void_p()
        self.assertEqual(self.fake.cudaStreamCreateWithFlags(ctypes.byref(self.stream), 1), 0)
        self.addCleanup(self.destroy)

    def destroy(self) -> None:
        self.fake.fake_cuda_hold(None, False)
        self.fake.fake_cuda_hold(self.stream, False)
        self.fake.cudaStreamDestroy(self.stream)
        state = self.state()
        self.assertEqual((state.streams, state.events, state.registered, state.wrong_device), (0, 0, 0, 0))

    def state(self) -> Any:
        return self.fake.fake_cuda_state()


class DeviceTest(FakeCuda):
    def test_memory_of_a_device_is_saved_behind_the_streams_work_and_read_back(self) -> None:
        address = self.fake.fake_cuda_malloc(4096)
        device = _cuda.Device(0, self.library)
        self.addCleanup(device.close)
        there = _native.Tensor("a", "U8", (4096,), None, None, address, memory=device.memory)
        self.fake.fake_cuda_hold(self.stream, True)
        self.fake.fake_cuda_set(self.stream, address, 7, 4096)
        self.fake.cudaSetDevice(1)
        with _native.Ckpt(self.path) as ckpt:
            handle = ckpt.declare([there])
            device.follow(self.stream.value or 0)
            saved = ckpt.save(handle, 1)
            with self.assertRaises(errors.Timeout):
                ckpt.fence(0.05)
            self.fake.fake_cuda_hold(self.stream, False)
            ckpt.wait(saved, "durable", 60)
        got = (ctypes.c_uint8 * 4096)()
        with _native.Reader(self.path) as reader:
            reader.read(0, [there._replace(address=ctypes.addressof(got), memory=0)])
            self.assertEqual(set(got), {7})
            ctypes.memset(self.fake.fake_cuda_bytes(address), 0, 4096)
            reader.read(0, [there])
        self.assertEqual(ctypes.string_at(self.fake.fake_cuda_bytes(address), 4096), b"\7" * 4096)
        self.assertEqual(self.state().device, 1)  # the caller's current device is as it was

    def test_what_is_not_there_is_unsupported_with_its_cause(self) -> None:
        with self.assertRaisesRegex(errors.Unsupported, "/no/libcudart.so"):
            _cuda.Device(0, "/no/libcudart.so")
        with self.assertRaisesRegex(errors.Argument, "no CUDA device 2: there are 2"):
            _cuda.Device(2, self.library)
        self.fake.fake_cuda_reset(10020, 1)
        with self.assertRaisesRegex(errors.Unsupported, "version 10.2"):
            _cuda.Device(0, self.library)
        self.fake.fake_cuda_reset(VERSION, 2)

    def test_a_stream_that_cannot_be_followed_is_an_error(self) -> None:
        device = _cuda.Device(0, self.library)
        self.fake.fake_cuda_fail(b"EventRecord", ILLEGAL, 0)
        with self.assertRaisesRegex(errors.Io, "cuda:0.*illegal memory access"):
            device.follow(0)
        device.close()
        device.close()


class CheckpointerTest(FakeCuda):
    def setUp(self) -> None:
        super().setUp()
        self.adopted: dict[int, int] = {}
        for patch in (mock.patch.dict(os.environ, {_cuda.LIBRARY: self.library}),
                      mock.patch.object(_cuda, "index_of", self.index_of),
                      mock.patch.object(_cuda, "stream_of", lambda index: self.stream.value)):
            patch.start()
            self.addCleanup(patch.stop)

    def index_of(self, tensor: torch.Tensor) -> int | None:
        """Every tensor of the processor counts as one of device 0."""
        size = tensor.numel() * tensor.element_size()
        if size and self.adopted.get(tensor.data_ptr()) != size:
            self.fake.fake_cuda_adopt(tensor.data_ptr(), size)
            self.adopted[tensor.data_ptr()] = size
        return 0

    def build(self, seed: int) -> tuple[Any, Any]:
        torch.manual_seed(seed)
        model = torch.nn.Linear(40, 30)
        return model, torch.optim.AdamW(model.parameters(), lr=0.01)

    def train(self, model: Any, optimizer: Any) -> None:
        optimizer.zero_grad()
        model(torch.ones(2, 40)).square().mean().backward()
        optimizer.step()

    def test_save_returns_before_the_copies_and_the_optimizer_waits_for_them(self) -> None:
        model, optimizer = self.build(1)
        with Checkpointer(self.path, model=model, optimizer=optimizer, every=1, signals=()) as ckpt:
            ckpt.resume()
            self.train(model, optimizer)
            before = {n: v.detach().clone() for n, v in model.state_dict().items()}
            self.fake.fake_cuda_hold(self.stream, True)
            # what the program still computes
            self.fake.fake_cuda_set(self.stream, model.bias.data_ptr(), 0, 4)
            before["bias"][0] = 0
            self.assertTrue(ckpt.step())
            self.assertEqual(self.state().copies, 0)
            timer = threading.Timer(0.1, self.fake.fake_cuda_hold, (self.stream, False))
            timer.start()
            self.train(model, optimizer)
            timer.join()
            self.assertGreater(self.state().copies, 0)
        self.assertEqual(self.state().pageable, 0)
        other, second = self.build(2)
        with mock.patch.object(_cuda, "index_of", lambda tensor: None):
            with Checkpointer(self.path, model=other, optimizer=second, signals=()) as ckpt:
                self.assertEqual(ckpt.resume(), 1)
        for name, value in before.items():
            self.assertTrue(torch.equal(other.state_dict()[name], value), name)

    def test_an_error_of_the_device_fails_the_save_and_is_raised(self) -> None:
        model, optimizer = self.build(1)
        ckpt = Checkpointer(self.path, model=model, optimizer=optimizer, every=1, signals=())
        ckpt.resume()
        self.train(model, optimizer)
        ckpt.step()
        ckpt.wait()
        self.fake.fake_cuda_fail(b"MemcpyAsync", ILLEGAL, 1)
        self.train(model, optimizer)
        ckpt.step()
        with self.assertRaisesRegex(errors.Io, "cudaMemcpyAsync: an illegal memory access"):
            ckpt.wait()
        ckpt.close()
        with _native.Reader(self.path) as reader:
            self.assertEqual([s.step for s in reader.steps() if s.complete], [1])

    def test_without_libcudart_tensors_are_copied_in_save_and_one_warning_says_so(self) -> None:
        model, optimizer = self.build(1)
        with mock.patch.dict(os.environ, {_cuda.LIBRARY: "/no/libcudart.so"}), warnings.catch_warnings(
                record=True) as told:
            warnings.simplefilter("always")
            with Checkpointer(self.path, model=model, optimizer=optimizer, every=1, signals=()) as ckpt:
                ckpt.resume()
                self.train(model, optimizer)
                ckpt.step()
                self.train(model, optimizer)
                ckpt.step()
        texts = [str(w.message) for w in told if "cuda:0" in str(w.message)]
        self.assertEqual(len(texts), 1, texts)
        self.assertIn("/no/libcudart.so", texts[0])
        self.assertEqual(self.state().copies, 0)


class IndexTest(unittest.TestCase):
    def test_only_row_major_memory_of_a_cuda_device_is_copied_there(self) -> None:
        for tensor in (torch.ones(2), torch.empty(2, device="meta"), torch.ones(2).to_sparse()):
            self.assertIsNone(_cuda.index_of(tensor))
        there = mock.Mock(layout=torch.strided, device=torch.device("cuda", 3))
        for plain, conj, neg in ((True, False, False), (False, False, False), (True, True, False),
                                 (True, False, True)):
            there.is_contiguous.return_value = plain
            there.is_conj.return_value, there.is_neg.return_value = conj, neg
            self.assertEqual(_cuda.index_of(there), 3 if plain and not conj and not neg else None)

    def test_the_current_stream_is_asked_for_by_public_names(self) -> None:
        with mock.patch.object(torch.cuda, "current_stream") as current:
            current.return_value.cuda_stream = 77
            self.assertEqual(_cuda.stream_of(3), 77)
            current.assert_called_once_with(3)


if __name__ == "__main__":
    unittest.main()
