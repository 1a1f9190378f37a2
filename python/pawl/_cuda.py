"""Tensors on CUDA devices: captured by the library's own stream (struct pawl_cuda of include/pawl/memory.h).

Promises: a device is opened when the first tensor on it is met; copies wait for what the program has queued
on its current stream when a save begins, and the program does not wait for them. Where libcudart cannot be
used a warning says so once, and such tensors are copied in save(). Public attributes of torch.cuda only.
Tested in tests/python/cuda_test.py, with a libcudart of the tests: no test needs a device."""

from __future__ import annotations

import os
from ctypes import byref, c_void_p

import torch

from . import _abi, _warn, errors

LIBRARY = "PAWL_CUDART"  # in the environment: path of libcudart, instead of the one that PyTorch has loaded


def index_of(tensor: torch.Tensor) -> int | None:
    """Of the device whose memory holds the tensor as the library can copy it: row-major, as it is. None:
    none."""
    if tensor.device.type != "cuda" or tensor.layout != torch.strided:
        return None
    plain = tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()
    return tensor.device.index if plain else None


def stream_of(index: int) -> int:
    """The program's current stream of a device, as a number."""
    return int(torch.cuda.current_stream(index).cuda_stream)


class Device:
    """An open device: struct pawl_cuda. Close it after the checkpoint that saves from it."""

    def __init__(self, index: int, library: str | None = None) -> None:
        """Errors: Unsupported (no libcudart, or of another version; no device), Argument, Memory, Io."""
        self._error, self._pointer = _abi.CError(), c_void_p()
        path = None if library is None else os.fsencode(library)
        code = _abi.library().pawl_cuda_open(path, index, byref(self._pointer), byref(self._error))
        _abi.check(code, self._error)
        self.memory = int(_abi.library().pawl_cuda_memory(self._pointer))  # for _native.Tensor.memory

    def follow(self, stream: int) -> None:
        """Copies begun from now on wait for what is queued on `stream` (a cudaStream_t) now. Errors: Io."""
        code = _abi.library().pawl_cuda_follow(self._pointer, c_void_p(stream or None), byref(self._error))
        _abi.check(code, self._error)

    def close(self) -> None:
        """Waits for copies under way. Once closed it does nothing."""
        pointer, self._pointer = self._pointer, c_void_p()
        _abi.library().pawl_cuda_close(pointer)


class Devices:
    """Those that a Checkpointer's tensors lie on."""

    def __init__(self) -> None:
        self._open: dict[int, Device | None] = {}

    def memory(self, tensor: torch.Tensor) -> int:
        """Address of the kind of memory that a tensor lies in; 0: the processor has to copy it first."""
        index = index_of(tensor)
        if index is None or tensor.numel() == 0:
            return 0
        if index not in self._open:
            self._open[index] = self._try(index)
        device = self._open[index]
        return 0 if device is None else device.memory

    def _try(self, index: int) -> Device | None:
        try:
            return Device(index, os.environ.get(LIBRARY))
        except errors.Unsupported as e:
            _warn.warn(f"tensors on cuda:{index} are copied in save(), which waits for them: {e}",
                          RuntimeWarning)
            return None

    def follow(self) -> None:
        """Before each save: its copies wait for what the program has queued. Errors: Io."""
        for index, device in self._open.items():
            if device is not None:
                device.follow(stream_of(index))

    def close(self) -> None:
        """After the checkpoint. Once closed it does nothing."""
        devices, self._open = self._open, {}
        for device in devices.values():
            if device is not None:
                device.close()
