"""Tensors as the C library takes them: struct pawl_tensor, and the kinds of memory that some of them lie in.

Promises: what does not fit into the structure is refused by name; what is made for a tensor whose elements do
not lie row-major lives until close(). Nothing keeps the elements themselves alive.
Tested in tests/python/native_test.py."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import byref, c_int64, c_uint64, c_void_p
from typing import Any, NamedTuple

from . import _abi, errors


class Tensor(NamedTuple):
    """A named slice of a tensor in memory: struct pawl_tensor.

    begin and extent (elements, one each dimension) say which box of the global `shape` lies at `address`;
    None: all of it. It is stored row-major, whatever the strides: the strided kind of include/pawl/memory.h
    copies it when it is captured, and into place when it is read.
    """

    name: str
    dtype: str  # "F32": names of include/pawl/dtype.def
    shape: tuple[int, ...]
    begin: tuple[int, ...] | None
    extent: tuple[int, ...] | None
    address: int
    strides: tuple[int, ...] | None = None  # in elements, of the box; None: row-major without gaps
    memory: int = 0  # address of a struct pawl_memory, which outlives its uses; 0: the processor's own


def whole(value: int, bits: int, what: str) -> int:
    """ctypes would cut a number that is too large, or negative, without a word."""
    if not 0 <= value < 1 << bits:
        raise errors.Argument(f"{what} is {value}; it can be 0 to {(1 << bits) - 1}")
    return value


def contiguous(extent: Sequence[int]) -> tuple[int, ...]:
    """Strides in elements of a row-major box without gaps."""
    strides, step = [], 1
    for size in reversed(extent):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def _is_contiguous(tensor: Tensor, extent: tuple[int, ...]) -> bool:
    if tensor.strides is None or 0 in extent:
        return True
    if len(tensor.strides) != len(extent):
        return False
    wanted = contiguous(extent)
    return all(e == 1 or s == w for e, s, w in zip(extent, tensor.strides, wanted, strict=True))


def _extent(tensor: Tensor) -> tuple[int, ...]:
    begin = tensor.begin or (0,) * len(tensor.shape)
    return tensor.extent or tuple(s - b for s, b in zip(tensor.shape, begin))


def _box(numbers: Sequence[int] | None, what: str) -> Any:
    if numbers is None:
        return None
    return (c_uint64 * len(numbers))(*(whole(n, 64, what) for n in numbers))


def _fill(out: _abi.CTensor, tensor: Tensor) -> None:
    """One tensor for the library. `out` keeps what it points to alive; the data is the caller's."""
    names = _abi.dtype_names()
    what = f"tensor {tensor.name!r}"
    if tensor.dtype not in names:
        raise errors.Argument(f"{what} is of type {tensor.dtype!r}; there are {', '.join(names)}")
    for part in (tensor.begin, tensor.extent):
        if part is not None and len(part) != len(tensor.shape):
            raise errors.Argument(f"{what}: shape {tensor.shape} and slice {part} differ in dimensions")
    if "\0" in tensor.name:
        raise errors.Argument(f"{what} has a zero byte in its name")
    out.name, out.dtype, out.rank = tensor.name.encode(), names.index(tensor.dtype), len(tensor.shape)
    out.shape = _box(tensor.shape, what)
    out.begin, out.extent = _box(tensor.begin, what), _box(tensor.extent, what)
    out.data, out.memory = tensor.address or None, tensor.memory or None


class Tensors:
    """An array of struct pawl_tensor. Close it when nothing saves it or reads into it any more."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        """Errors: Argument (a type, a shape, strides that overlap), Memory."""
        self.array = (_abi.CTensor * len(tensors))()
        self._given = [tensor.address for tensor in tensors]
        self._strided: dict[int, c_void_p] = {}
        try:
            for i, tensor in enumerate(tensors):
                _fill(self.array[i], tensor)
                if not _is_contiguous(tensor, _extent(tensor)):
                    self._strided[i] = _strided(self.array[i], tensor)
        except BaseException:
            self.close()
            raise

    def data(self, addresses: Sequence[int]) -> Any:
        """Where the tensors lie for one save, for the library; a strided one goes by what stands for it."""
        if len(addresses) != len(self.array):
            raise errors.Argument(f"{len(addresses)} addresses for {len(self.array)} tensors")
        out = (c_void_p * len(addresses))(*addresses)
        for i in self._strided:
            if addresses[i] != self._given[i]:
                raise errors.Argument(f"tensor {self.array[i].name.decode()!r} is strided and lies at "
                                      "another "
                                      "address than it was declared with: declare it again")
            out[i] = self.array[i].data
        return out

    def close(self) -> None:
        """Once closed it does nothing."""
        strided, self._strided = self._strided, {}
        for handle in strided.values():
            _abi.library().pawl_strided_free(handle)


def _strided(made: _abi.CTensor, tensor: Tensor) -> c_void_p:
    strides, out, error = tensor.strides or (), c_void_p(), _abi.CError()
    if len(strides) != len(tensor.shape) or any(not -2**63 <= n < 2**63 for n in strides):
        raise errors.Argument(f"tensor {tensor.name!r}: strides {strides} for the shape {tensor.shape}")
    numbers = (c_int64 * len(strides))(*strides)
    _abi.check(_abi.library().pawl_strided_new(byref(made), numbers, byref(out), byref(error)), error)
    return out
