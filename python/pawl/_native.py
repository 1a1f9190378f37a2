"""libpawl_ckpt.so by its public headers, and nothing else: types, buffers, exceptions, no behaviour of its own.

Calls release the interpreter lock while they are in the library. One thread at a time per object, but for status().
The layouts below are those of include/pawl/{error,tensor,ckpt}.h; tests/python/native_test.py has a C compiler say so.
"""
from __future__ import annotations

import ctypes as c
import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from . import errors

# In the order of include/pawl/dtype.def.
DTYPES = ("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "I16", "U16", "F16", "BF16", "I32", "U32", "F32", "F64", "I64", "U64",
          "F8_E8M0", "F4", "F6_E2M3", "F6_E3M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "C64")
BACKENDS = ("auto", "uring", "plain", "pmem")
FULL = ("wait", "skip")
UNTIL = ("captured", "committed", "durable")
FOREVER = 2**63 - 1
RUN_ID_BYTES = 16
NOWHERE = 2**32 - 1


class _Error(c.Structure):
    _fields_ = [("code", c.c_int), ("os_errno", c.c_int), ("text", c.c_char * 768)]


class _Tensor(c.Structure):
    _fields_ = [("name", c.c_char_p), ("dtype", c.c_int), ("rank", c.c_uint32), ("shape", c.POINTER(c.c_uint64)),
                ("begin", c.POINTER(c.c_uint64)), ("extent", c.POINTER(c.c_uint64)), ("data", c.c_void_p),
                ("memory", c.c_void_p)]


class _Options(c.Structure):
    _fields_ = [("path", c.c_char_p), ("must_exist", c.c_bool), ("must_be_new", c.c_bool),
                ("run_id", c.c_uint8 * RUN_ID_BYTES), ("rank", c.c_uint32), ("rank_count", c.c_uint32),
                ("start", c.c_char_p), ("group", c.c_void_p), ("in_flight", c.c_uint32), ("keep", c.c_uint32),
                ("full", c.c_int), ("tolerate", c.c_uint32), ("backend", c.c_int), ("writers", c.c_uint32),
                ("chunk_bytes", c.c_uint64), ("staging_bytes", c.c_uint64), ("unchecked", c.c_bool), ("every", c.c_uint64),
                ("overhead", c.c_double), ("mtbf_s", c.c_double), ("on_event", c.c_void_p),
                ("on_event_context", c.c_void_p)]


class _Save(c.Structure):
    _fields_ = [("state", c.c_void_p), ("step", c.c_uint64), ("data", c.POINTER(c.c_void_p)), ("immutable", c.c_bool),
                ("unit", c.c_uint32), ("unit_count", c.c_uint32), ("replica", c.c_uint32), ("replica_count", c.c_uint32),
                ("copies", c.c_uint32), ("blob", c.c_char_p), ("blob_bytes", c.c_size_t)]


class _Status(c.Structure):
    _fields_ = [("durable_step", c.c_uint64), ("durable_age_s", c.c_double), ("in_flight", c.c_uint32),
                ("saves", c.c_uint64), ("committed", c.c_uint64), ("skipped", c.c_uint64), ("failed", c.c_uint64),
                ("cancelled", c.c_uint64), ("failed_in_row", c.c_uint32), ("bytes_written", c.c_uint64),
                ("blocked_ns", c.c_int64), ("staging_bytes", c.c_uint64), ("staging_used_bytes", c.c_uint64),
                ("every", c.c_uint64), ("iteration_s", c.c_double), ("save_s", c.c_double), ("progress_ns", c.c_int64),
                ("backend", c.c_char * 160), ("run_id", c.c_uint8 * RUN_ID_BYTES)]


class _ReaderOptions(c.Structure):
    _fields_ = [("run_id", c.c_uint8 * RUN_ID_BYTES), ("unchecked", c.c_bool), ("prefer", c.c_char_p)]


class _Step(c.Structure):
    _fields_ = [("step", c.c_uint64), ("incarnation", c.c_uint64), ("unit_count", c.c_uint32), ("complete", c.c_bool),
                ("bad", c.c_bool), ("bytes", c.c_uint64), ("missing", c.c_char * 160)]


STRUCTS = {"pawl_error": _Error, "pawl_tensor": _Tensor, "pawl_ckpt_options": _Options, "pawl_ckpt_save": _Save,
           "pawl_ckpt_status": _Status, "pawl_ckpt_reader_options": _ReaderOptions, "pawl_ckpt_step": _Step}

_E, _P, _U32, _U64, _I64 = c.POINTER(_Error), c.c_void_p, c.c_uint32, c.c_uint64, c.c_int64
_SIGNATURES = {  # name: result, arguments
    "pawl_now": (_I64, []),
    "pawl_ckpt_open": (c.c_int, [c.POINTER(_Options), c.POINTER(_P), _E]),
    "pawl_ckpt_declare": (c.c_int, [_P, c.POINTER(_Tensor), _U32, c.POINTER(_P), _E]),
    "pawl_ckpt_resume": (c.c_int, [_P, _P, c.POINTER(_U64), _E]),
    "pawl_ckpt_blob": (None, [_P, c.POINTER(_P), c.POINTER(c.c_size_t)]),
    "pawl_ckpt_from_scratch": (c.c_int, [_P, _E]),
    "pawl_ckpt_save": (c.c_int, [_P, c.POINTER(_Save), c.POINTER(_U64), _E]),
    "pawl_ckpt_fence": (c.c_int, [_P, _I64, _E]),
    "pawl_ckpt_wait": (c.c_int, [_P, _U64, c.c_int, _I64, _E]),
    "pawl_ckpt_due": (c.c_bool, [_P, _U64]),
    "pawl_ckpt_status": (None, [_P, c.POINTER(_Status)]),
    "pawl_ckpt_close": (c.c_int, [_P, _I64, _E]),
    "pawl_ckpt_reader_open": (c.c_int, [c.c_char_p, c.POINTER(_ReaderOptions), c.POINTER(_P), _E]),
    "pawl_ckpt_reader_close": (None, [_P]),
    "pawl_ckpt_reader_step_count": (_U32, [_P]),
    "pawl_ckpt_reader_step": (_Step, [_P, _U32]),
    "pawl_ckpt_reader_newest": (_U32, [_P]),
    "pawl_ckpt_reader_tensor_count": (_U32, [_P, _U32]),
    "pawl_ckpt_reader_tensor": (_Tensor, [_P, _U32, _U32]),
    "pawl_ckpt_reader_read": (c.c_int, [_P, _U32, c.POINTER(_Tensor), _U32, _E]),
    "pawl_ckpt_reader_blob": (c.c_int, [_P, _U32, _U32, c.POINTER(_P), c.POINTER(c.c_size_t), _E]),
}

_loaded: c.CDLL | None = None


def _candidates() -> Iterator[str]:
    """PAWL_LIBRARY, the package's own, the system's."""
    given = os.environ.get("PAWL_LIBRARY")
    if given:
        yield given
        return
    own = pathlib.Path(__file__).parent / "lib" / "libpawl_ckpt.so"
    if own.exists():
        yield str(own)
    yield "libpawl_ckpt.so.0"


def library() -> c.CDLL:
    """The library, loaded by the first call. Unsupported: it is nowhere, with the places looked at."""
    global _loaded
    if _loaded is not None:
        return _loaded
    tried = []
    for path in _candidates():
        try:
            found = c.CDLL(path)
        except OSError as why:
            tried.append(f"{path} ({why})")
            continue
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(found, name, None)
            if function is None:
                raise errors.Unsupported(f"{path} has no {name}: it is of another version than this package")
            function.restype, function.argtypes = result, arguments
        _loaded = found
        return found
    raise errors.Unsupported("libpawl_ckpt.so is not found: " + "; ".join(tried) +
                             ". Set PAWL_LIBRARY to its path, or install it (make install)")


class Tensor(NamedTuple):
    """A tensor, or the box `begin`, `extent` of it, contiguous at `address`. Whoever makes it keeps the memory alive."""

    name: str
    dtype: str  # a name of DTYPES
    shape: tuple[int, ...]
    address: int = 0
    begin: tuple[int, ...] | None = None
    extent: tuple[int, ...] | None = None


class Step(NamedTuple):
    step: int
    incarnation: int
    unit_count: int
    complete: bool
    bad: bool
    bytes: int
    missing: str


def _numbers(values: tuple[int, ...] | None, keep: list[object]) -> object:
    if values is None or not values:
        return None
    array = (_U64 * len(values))(*values)
    keep.append(array)
    return c.cast(array, c.POINTER(_U64))


def _tensors(tensors: Sequence[Tensor]) -> tuple[c.Array[_Tensor], list[object]]:
    """As the library takes them, and what has to live as long as they are used."""
    keep: list[object] = []
    out = (_Tensor * max(1, len(tensors)))()
    for i, t in enumerate(tensors):
        if t.dtype not in DTYPES:
            raise errors.Argument(f"tensor {t.name}: {t.dtype} is no element type of pawl")
        out[i] = _Tensor(t.name.encode(), DTYPES.index(t.dtype), len(t.shape), _numbers(t.shape, keep),
                         _numbers(t.begin, keep), _numbers(t.extent, keep), t.address or None, None)
    return out, keep


def _check(code: int, e: _Error) -> None:
    if code != 0:
        raise errors.of(code, e.text.decode(errors="replace"))


def _choice(what: str, value: str, among: tuple[str, ...]) -> int:
    if value not in among:
        raise errors.Argument(f"{what} is {value!r}: one of {', '.join(among)}")
    return among.index(value)


def _deadline(timeout: float | None) -> int:
    return FOREVER if timeout is None else library().pawl_now() + int(timeout * 1e9)


class Ckpt:
    """struct pawl_ckpt: see include/pawl/ckpt.h for what each call promises."""

    def __init__(self, path: str | os.PathLike[str], *, every: int = 0, overhead: float = 0.0, mtbf_s: float = 0.0,
                 in_flight: int = 0, keep: int = 0, full: str = "wait", tolerate: int = 0, backend: str = "auto",
                 staging_bytes: int = 0, must_exist: bool = False) -> None:
        self._lib = library()
        self._handle = _P()
        options = _Options(path=os.fsencode(path), every=every, overhead=overhead, mtbf_s=mtbf_s, in_flight=in_flight,
                           keep=keep, full=_choice("on_full", full, FULL), tolerate=tolerate,
                           backend=_choice("backend", backend, BACKENDS), staging_bytes=staging_bytes,
                           must_exist=must_exist)
        e = _Error()
        _check(self._lib.pawl_ckpt_open(options, self._handle, e), e)

    def declare(self, tensors: Sequence[Tensor]) -> int:
        out, e = _P(), _Error()
        given, _keep = _tensors(tensors)  # copied by the library
        _check(self._lib.pawl_ckpt_declare(self._handle, given, len(tensors), out, e), e)
        return out.value or 0

    def resume(self, state: int) -> int:
        """The step that is now in the state's memory; 0: nothing was ever saved."""
        step, e = _U64(), _Error()
        _check(self._lib.pawl_ckpt_resume(self._handle, state, step, e), e)
        return step.value

    def blob(self) -> bytes:
        """Of the step resumed from."""
        where, size = _P(), c.c_size_t()
        self._lib.pawl_ckpt_blob(self._handle, where, size)
        return c.string_at(where, size.value) if where.value else b""

    def from_scratch(self) -> None:
        e = _Error()
        _check(self._lib.pawl_ckpt_from_scratch(self._handle, e), e)

    def save(self, state: int, step: int, addresses: Sequence[int], blob: bytes) -> int:
        """Begin; the save's id, 0 when it was skipped."""
        data = (_P * max(1, len(addresses)))(*(a or None for a in addresses))
        save = _Save(state=state, step=step, data=c.cast(data, c.POINTER(_P)), blob=blob, blob_bytes=len(blob))
        out, e = _U64(), _Error()
        _check(self._lib.pawl_ckpt_save(self._handle, save, out, e), e)
        return out.value

    def fence(self, timeout: float | None = None) -> None:
        e = _Error()
        _check(self._lib.pawl_ckpt_fence(self._handle, _deadline(timeout), e), e)

    def wait(self, save: int, until: str = "durable", timeout: float | None = None) -> None:
        e = _Error()
        _check(self._lib.pawl_ckpt_wait(self._handle, save, _choice("until", until, UNTIL), _deadline(timeout), e), e)

    def due(self, step: int) -> bool:
        return bool(self._lib.pawl_ckpt_due(self._handle, step))

    def status(self) -> dict[str, int | float | str]:
        """By the names of struct pawl_ckpt_status. From any thread."""
        s = _Status()
        self._lib.pawl_ckpt_status(self._handle, s)
        plain = {name: getattr(s, name) for name, _ in _Status._fields_ if name not in ("backend", "run_id")}
        return {**plain, "backend": s.backend.decode(errors="replace"), "run_id": bytes(s.run_id).hex()}

    def close(self, timeout: float | None = None) -> None:
        handle, self._handle, e = self._handle, _P(), _Error()
        _check(self._lib.pawl_ckpt_close(handle, _deadline(timeout), e), e)


class Reader:
    """struct pawl_ckpt_reader; a context manager."""

    def __init__(self, path: str | os.PathLike[str], *, unchecked: bool = False) -> None:
        self._lib = library()
        self._handle = _P()
        e = _Error()
        _check(self._lib.pawl_ckpt_reader_open(os.fsencode(path), _ReaderOptions(unchecked=unchecked), self._handle, e), e)

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        handle, self._handle = self._handle, _P()
        self._lib.pawl_ckpt_reader_close(handle)

    def steps(self) -> list[Step]:
        """Newest first."""
        out = []
        for i in range(self._lib.pawl_ckpt_reader_step_count(self._handle)):
            s = self._lib.pawl_ckpt_reader_step(self._handle, i)
            out.append(Step(s.step, s.incarnation, s.unit_count, s.complete, s.bad, s.bytes,
                            s.missing.decode(errors="replace")))
        return out

    def newest(self) -> int | None:
        """Index of the newest complete step that is not marked bad."""
        index = self._lib.pawl_ckpt_reader_newest(self._handle)
        return None if index == NOWHERE else index

    def tensors(self, index: int) -> list[Tensor]:
        """Names, types and global shapes."""
        out = []
        for i in range(self._lib.pawl_ckpt_reader_tensor_count(self._handle, index)):
            t = self._lib.pawl_ckpt_reader_tensor(self._handle, index, i)
            out.append(Tensor(t.name.decode(), DTYPES[t.dtype], tuple(t.shape[d] for d in range(t.rank))))
        return out

    def read(self, index: int, tensors: Sequence[Tensor]) -> None:
        """Into the tensors' memory, verified."""
        given, _keep = _tensors(tensors)
        e = _Error()
        _check(self._lib.pawl_ckpt_reader_read(self._handle, index, given, len(tensors), e), e)

    def blob(self, index: int, unit: int = 0) -> bytes:
        where, size, e = _P(), c.c_size_t(), _Error()
        _check(self._lib.pawl_ckpt_reader_blob(self._handle, index, unit, where, size, e), e)
        return c.string_at(where, size.value) if where.value else b""
