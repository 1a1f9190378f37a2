"""What of modules and optimizers is stored, under which names, and that it comes back to the bit."""

from __future__ import annotations

import importlib.util
import shutil
import sys
import tempfile
import unittest
from typing import Any
from unittest import mock

if importlib.util.find_spec("torch") is None:
    print("skipped: this Python has no torch")
    sys.exit(77)

import torch  # noqa: E402
from torch import nn  # noqa: E402

import pawl  # noqa: E402
from pawl import _native, _shard, _torch, errors  # noqa: E402
from pawl.data import Loader, Sampler  # noqa: E402

torch.set_num_threads(1)


# Of which each PyTorch has some.
TYPES = ("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float8_e4m3fn",
         "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "float16", "bfloat16",
         "float32", "float64", "complex64")


class Odd(nn.Module):
    """Tied, shared, strided, empty and scalar tensors of many types, and extra state."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4, bias=False)
        self.b = nn.Linear(4, 4, bias=False)
        self.b.weight = self.a.weight
        base = torch.randn(12)
        self.register_buffer("left", base[:8])
        self.register_buffer("right", base[4:])
        self.register_buffer("across", torch.randn(3, 5).t())
        self.register_buffer("empty", torch.empty(0, 3))
        self.register_buffer("scalar", torch.tensor(3.5))
        self.register_buffer("unsaved", torch.randn(2), persistent=False)
        for dtype in {getattr(torch, name) for name in TYPES if hasattr(torch, name)} | set(_torch.DTYPES):
            raw = torch.randint(0, 2, (16,), dtype=torch.uint8)
            self.register_buffer("type_" + str(dtype).removeprefix("torch."), raw.view(dtype).clone())
        self.extra: object = {"seen": (1, 2)}

    def get_extra_state(self) -> object:
        return self.extra

    def set_extra_state(self, state: object) -> None:
        self.extra = state


def bits(tensor: Any) -> list[int]:
    out: list[int] = tensor.detach().contiguous().flatten().view(torch.uint8).tolist()
    return out


def names(path: str) -> set[str]:
    from pawl._native import Reader
    with Reader(path) as reader:
        index = reader.newest()
        assert index is not None
        return {t.name for t in reader.tensors(index)}


class TorchState(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = self.folder.name + "/run"

    def save(self, **objects: Any) -> None:
        with pawl.Checkpointer(self.path, every=1000, **objects) as ckpt:
            ckpt.step()
            ckpt.save()

    def load(self, **objects: Any) -> None:
        with pawl.Checkpointer(self.path, every=1000, **objects) as ckpt:
            self.assertEqual(1, ckpt.resume())

    def test_every_kind_of_tensor_comes_back(self) -> None:
        was, now = Odd(), Odd()
        was.extra = {"seen": (7,)}
        self.save(model=was)
        self.load(model=now)
        self.assertEqual({"seen": (7,)}, now.extra)
        self.assertIs(now.a.weight, now.b.weight)
        stored = was.state_dict()
        for name, tensor in now.state_dict().items():
            if isinstance(tensor, torch.Tensor):
                self.assertEqual(bits(stored[name]), bits(tensor), name)
        self.assertIn("model/a.weight", names(self.path))
        self.assertNotIn("model/b.weight", names(self.path))
        self.assertNotEqual(bits(was.unsaved), bits(now.unsaved))

    def test_optimizer_state_goes_by_names_of_parameters(self) -> None:
        was = nn.ModuleDict({"x": nn.Linear(2, 2), "y": nn.Linear(2, 2)})
        now = nn.ModuleDict({"y": nn.Linear(2, 2), "x": nn.Linear(2, 2)})
        opt = torch.optim.Adam(was.parameters(), lr=0.5)
        other = torch.optim.Adam(now.parameters())
        (was["x"](torch.ones(2)).sum() + 2 * was["y"](torch.ones(2)).sum()).backward()
        opt.step()
        self.save(model=was, optimizer=opt)
        self.assertIn("optimizer/x.weight/exp_avg", names(self.path))
        self.load(model=now, optimizer=other)
        for name, parameter in was.named_parameters():
            there = dict(now.named_parameters())[name]
            for key, value in opt.state[parameter].items():
                self.assertEqual(bits(value), bits(other.state[there][key]), (name, key))
        self.assertEqual(0.5, other.param_groups[0]["lr"])

    def test_an_optimizer_with_lists_of_tensors_comes_back(self) -> None:
        was, now = nn.Linear(3, 1), nn.Linear(3, 1)
        opt, other = torch.optim.LBFGS(was.parameters()), torch.optim.LBFGS(now.parameters())

        def closure() -> torch.Tensor:
            opt.zero_grad()
            loss = was(torch.eye(3)).square().sum()
            loss.backward()
            return loss

        opt.step(closure)
        self.save(model=was, optimizer=opt)
        self.load(model=now, optimizer=other)
        a, b = opt.state[was.weight], other.state[now.weight]
        self.assertEqual([bits(t) for t in a["old_dirs"]], [bits(t) for t in b["old_dirs"]])
        self.assertEqual(a["n_iter"], b["n_iter"])

    def test_all_differences_are_listed_and_nothing_is_loaded(self) -> None:
        was = nn.ModuleDict({"x": nn.Linear(2, 2), "y": nn.Linear(2, 2)})
        now = nn.ModuleDict({"x": nn.Linear(2, 3), "z": nn.Linear(2, 2), "y": nn.Linear(2, 2).half()})
        self.save(model=was, notes={"epoch": 1})
        before = [bits(p) for p in now.parameters()]
        notes = {"epoch": 0}
        with pawl.Checkpointer(self.path, model=now, others=notes) as ckpt, \
                self.assertRaises(pawl.StateMismatch) as caught:
            ckpt.resume()
        for part in ("model/x.weight: stored F32 (2, 2), here F32 (3, 2)", "model/z.weight: here",
                     "notes: stored",
                     "model/y.bias: stored F32 (2,), here F16 (2,)", "others: given", "model/x.bias"):
            self.assertIn(part, str(caught.exception))
        self.assertEqual(before, [bits(p) for p in now.parameters()])
        self.assertEqual({"epoch": 0}, notes)

    def test_a_missing_and_another_optimizer_are_told_with_what_to_do(self) -> None:
        def adam(model: Any, *groups: Any) -> Any:
            return torch.optim.AdamW([{"params": list(g.parameters())} for g in groups] or model.parameters())

        was = nn.ModuleDict({"x": nn.Linear(2, 2), "y": nn.Linear(2, 2)})
        self.save(model=was, optimizer=adam(was))
        now = nn.ModuleDict({"x": nn.Linear(2, 2), "y": nn.Linear(2, 2)})
        before = [bits(p) for p in now.parameters()]
        sgd = torch.optim.SGD(now.parameters(), lr=0.1)
        for given, said in (({}, r"optimizer: stored as optimizer, and not given \(optimizer=...\)"),
                            ({"optimizer": sgd}, "optimizer: stored is the state of AdamW, this is SGD"),
                            ({"optimizer": {"lr": 1}}, "optimizer: stored as optimizer, given as object"),
                            ({"optimizer": adam(now, now["x"], now["y"])},
                             "optimizer: stored with 1 parameter groups, here are 2: .* again after resume"),
                            ({"optimizer": adam(now, now["x"])},
                             "optimizer: group 0: y.weight is stored, and not here"),
                            ({"optimizer": adam(now), "ema": {}}, "ema: given, and not stored")):
            with self.subTest(said), pawl.Checkpointer(self.path, model=now, **given) as ckpt:
                todo = "nothing was loaded. Give what was saved, by the same names, or from_scratch=True"
                with self.assertRaisesRegex(pawl.StateMismatch, f"(?s){todo}.*\n  {said}"):
                    ckpt.resume()
        self.assertEqual(before, [bits(p) for p in now.parameters()])

    def test_another_scheduler_another_order_of_data_and_another_container_are_refused(self) -> None:
        schedules = torch.optim.lr_scheduler

        def both(opt: Any, second: Any) -> Any:
            return schedules.SequentialLR(opt, [schedules.LinearLR(opt), second(opt, 4)], [2])

        def objects(schedule: Any, size: int, notes: Any) -> dict[str, Any]:
            model = nn.Linear(2, 2)
            opt = torch.optim.SGD(model.parameters(), lr=0.1)
            sampler = Sampler(size, 8)
            iter(sampler)
            return {"model": model, "optimizer": opt, "schedule": schedule(opt), "data": Loader(sampler),
                    "notes": notes}

        def step_lr(opt: Any) -> Any:
            return schedules.StepLR(opt, 4)

        self.save(**objects(step_lr, 64, {}))
        now = objects(lambda opt: both(opt, schedules.StepLR), 65, [])
        before = bits(now["model"].weight)
        said = ("(?s)nothing was loaded.*schedule: stored is the state of StepLR, this is SequentialLR "
                r"\(LinearLR, StepLR\).*data: .*size: saved 64, here 65.*notes: stored is a dict, this is a "
                "list")
        with pawl.Checkpointer(self.path, **now) as ckpt, self.assertRaisesRegex(pawl.StateMismatch, said):
            ckpt.resume()
        self.assertEqual(before, bits(now["model"].weight))
        self.load(**objects(step_lr, 64, {}))
        self.setUp()
        self.save(**objects(lambda opt: both(opt, schedules.StepLR), 64, {}))
        now = objects(lambda opt: both(opt, schedules.CosineAnnealingLR), 64, {})
        said = r"this is .*\(LinearLR, CosineAnnealingLR"
        with pawl.Checkpointer(self.path, **now) as ckpt, self.assertRaisesRegex(pawl.StateMismatch, said):
            ckpt.resume()
        self.setUp()
        with mock.patch.object(_torch, "_class", lambda _: None):  # as earlier programs stored it
            self.save(**objects(step_lr, 64, {}))
        self.load(**objects(step_lr, 64, {}))

    def test_an_object_that_takes_no_state_is_named_with_what_was_loaded(self) -> None:
        class Strict:
            def state_dict(self) -> dict[str, int]:
                return {"width": 2}

            def load_state_dict(self, state: Any) -> None:
                raise RuntimeError(f"width {state['width']}")

        self.save(strict=Strict(), model=nn.Linear(2, 2), later=Strict(), notes={"a": 1})
        notes = {"a": 0}
        said = ("step 1 was not restored whole: strict: load_state_dict.. of .*Strict raised RuntimeError: "
                "width 2. Loaded before: the modules' parameters and buffers, notes; not loaded: later, the "
                "generators. .*anew")
        with pawl.Checkpointer(self.path, strict=Strict(), model=nn.Linear(2, 2), later=Strict(),
                               notes=notes) as ckpt, self.assertRaisesRegex(errors.User, said) as caught:
            ckpt.resume()
        self.assertIsInstance(caught.exception.__cause__, RuntimeError)
        self.assertNotIn("overwritten", str(caught.exception))
        self.assertEqual({"a": 1}, notes)

    def test_what_another_program_or_run_has_saved_is_refused_with_what_to_do(self) -> None:
        for text, kind, said in ((b"", errors.Format, "not written by pawl.Checkpointer.*another folder"),
                                 (b"[]", errors.Format, "not written by pawl.Checkpointer.*another folder"),
                                 (b'{"format": "x", "objects": {}}', errors.Format, "not written by pawl"),
                                 (b'{"format": "pawl-python", "version": 2, "objects": {}}', errors.Format,
                                  "in version 2 of .* with the pawl that saved it")):
            with self.subTest(text):
                self.setUp()
                with _native.Ckpt(self.path) as native:
                    state = torch.ones(2, 2)
                    handle = native.declare([_native.Tensor("model/weight", "F32", (2, 2), None, None,
                                                            state.data_ptr())])
                    native.save(handle, 1, blob=text)
                with pawl.Checkpointer(self.path, model=nn.Linear(2, 2)) as ckpt:
                    with self.assertRaisesRegex(kind, said):
                        ckpt.resume()
        self.setUp()
        self.save(model=nn.Linear(2, 2))
        store, self.path = f"{self.path}/store", f"{self.path}-2"
        self.save(model=nn.Linear(2, 2))
        shutil.rmtree(f"{self.path}/store")
        shutil.copytree(store, f"{self.path}/store")
        said = "belongs to run .*Nothing was changed.* Give each run its own"
        with self.assertRaisesRegex(errors.Foreign, said):
            pawl.Checkpointer(self.path, model=nn.Linear(2, 2))

    def test_tensors_that_share_memory_in_part_are_not_read_in_place(self) -> None:
        base = torch.zeros(12)
        named = {"a": base[:8], "b": base[4:9], "c": base[9:], "d": torch.zeros(3)}
        self.assertEqual({"c", "d"}, set(_shard.in_place(named)))

    def test_an_optimizer_without_its_model_is_refused(self) -> None:
        model = nn.Linear(2, 2)
        with self.assertRaisesRegex(pawl.StateMismatch, "model="):
            pawl.Checkpointer(self.path, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))

    def test_what_cannot_be_saved_is_named(self) -> None:
        model = nn.Module()
        model.register_buffer("sparse", torch.eye(2).to_sparse())
        with pawl.Checkpointer(self.path, model=model) as ckpt:
            ckpt.step()
            with self.assertRaisesRegex(errors.Unsupported, "model/sparse.*layout"):
                ckpt.save()
        with self.assertRaisesRegex(errors.Unsupported, "thing: .*state_dict"):
            pawl.Checkpointer(self.path, thing=object())
        self.setUp()
        self.save(model=nn.Linear(2, 2))
        nested = nn.Linear(2, 2)
        nested.weight = nn.Parameter(torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]))
        for now, said in ((nn.Linear(2, 2, device="meta"), "no memory to restore it into: .*to_empty"),
                          (nn.LazyLinear(2), "no shape yet: call the lazy module once"),
                          (nested, "a nested tensor can be neither saved nor restored")):
            with pawl.Checkpointer(self.path, model=now) as ckpt:
                with self.assertRaisesRegex(errors.Unsupported, f"model/weight: .*{said}"):
                    ckpt.resume()
                ckpt.step()
                with self.assertRaisesRegex(errors.Unsupported, "model/weight: "):
                    ckpt.save()

    def test_tensors_in_plain_values_are_copied_at_once(self) -> None:
        notes = {"mean": torch.ones(4)}
        with pawl.Checkpointer(self.path, every=1000, model=nn.Linear(2, 2), notes=notes) as ckpt:
            ckpt.step()
            ckpt.save()
            notes["mean"].zero_()
        now = {"mean": torch.zeros(4)}
        self.load(model=nn.Linear(2, 2), notes=now)
        self.assertEqual([1.0] * 4, now["mean"].tolist())


if __name__ == "__main__":
    unittest.main()
