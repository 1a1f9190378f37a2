"""Checkpoints and readers of the C library, as Python objects with no behaviour of their own.

What each call promises, and which errors it returns, is written once, in include/pawl/ckpt.h; here errors are
raised as the classes of `pawl.errors`. Every call releases the interpreter's lock while the library runs; a
signal's Python handler runs when the call has returned. A Ckpt or Reader may be used by one thread at a time,
but for `Ckpt.status`. Times are seconds, sizes bytes. Tested in tests/python/native_test.py.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_size_t, c_uint64, c_void_p
from os import PathLike, fsencode
from types import TracebackType
from typing import Any, NamedTuple, Sequence

from . import _abi, errors
from ._tensors import Tensor as Tensor
from ._tensors import Tensors
from ._tensors import whole as _whole

_FULL = ("block", "skip")
_BACKENDS = ("auto", "uring", "plain", "pmem")
_UNTIL = ("captured", "committed", "durable")
_EVENTS_AT_ONCE = 16


class Status(NamedTuple):
    """struct pawl_ckpt_status."""

    durable_step: int
    durable_age_s: float
    in_flight: int
    saves: int
    committed: int
    skipped: int
    failed: int
    cancelled: int
    failed_in_row: int
    bytes_written: int
    blocked_ns: int
    staging_bytes: int
    staging_used_bytes: int
    every: int
    iteration_s: float
    save_s: float
    progress_ns: int
    backend: str
    run_id: str  # 32 hexadecimal digits


class Event(NamedTuple):
    """struct pawl_ckpt_event; kind ("captured") and code ("OK") by their names."""

    kind: str
    id: int
    step: int
    code: str
    text: str
    bytes: int
    blocked_ns: int
    capture_ns: int
    write_ns: int
    total_ns: int
    in_flight: int
    every: int


class Step(NamedTuple):
    """struct pawl_ckpt_step: a step in a run's folder."""

    step: int
    incarnation: int
    unit_count: int
    complete: bool
    bad: bool
    bytes: int
    missing: str


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return bytes(value).hex() if isinstance(value, ctypes.Array) else value


def _values(struct: ctypes.Structure) -> dict[str, Any]:
    return {field[0]: _plain(getattr(struct, field[0])) for field in struct._fields_}


def _place(choices: Sequence[str], value: str, what: str) -> int:
    if value not in choices:
        raise errors.Argument(f"{what} is {value!r}; it can be {', '.join(map(repr, choices))}")
    return choices.index(value)


def _path(path: str | bytes | PathLike[Any]) -> bytes:
    """The bytes of a path; C would take one with a zero byte for a shorter one."""
    encoded = fsencode(path)
    if b"\0" in encoded:
        raise errors.Argument(f"the path {encoded!r} holds a zero byte")
    return encoded


def _run_id(text: str | None) -> Any:
    try:
        raw = bytes.fromhex(text or "00" * _abi.RUN_ID_BYTES)
    except ValueError:
        raw = b""
    if len(raw) != _abi.RUN_ID_BYTES:
        raise errors.Argument(f"run_id is {text!r}; it is {2 * _abi.RUN_ID_BYTES} hexadecimal digits or None")
    return (ctypes.c_uint8 * _abi.RUN_ID_BYTES)(*raw)


def _deadline(timeout: float | None) -> int:
    if timeout is None:
        return _abi.FOREVER
    if timeout != timeout:
        raise errors.Argument("timeout is not a number")
    now: int = _abi.library().pawl_now()
    return int(min(now + max(timeout, 0.0) * 1e9, 2**62))


class _Handle:
    """What Ckpt and Reader share: a pointer of the library, gone once it is closed."""

    _full = ""  # what to do where no space is left

    def __init__(self) -> None:
        self._pointer: c_void_p | None = None
        self._error = _abi.CError()
        self._library = _abi.library()

    def _live(self) -> c_void_p:
        if self._pointer is None:
            raise errors.Argument(f"this {type(self).__name__} was closed")
        return self._pointer

    def _call(self, function: str, *arguments: Any) -> None:
        code = getattr(self._library, function)(self._live(), *arguments, byref(self._error))
        if code:
            _abi.check(code, self._error, self._full)


class Ckpt(_Handle):
    """An open run: struct pawl_ckpt. Close it; what it opened must not be used in a child of os.fork()."""

    _full = ". Make room on that device: what was saved before is whole, the next save is a new attempt"

    def __init__(self, path: str | bytes | PathLike[Any], *, rank: int = 0, rank_count: int = 1,
                 start: str | None = None, every: int = 0, overhead: float = 0.0, mtbf_s: float = 0.0,
                 in_flight: int = 0, keep: int = 0, full: str = "block", tolerate: int = 0,
                 backend: str = "auto", staging_bytes: int = 0, staging_max_bytes: int = 0,
                 must_exist: bool = False, must_be_new: bool = False, run_id: str | None = None,
                 unchecked: bool = False) -> None:
        """Opens or makes the run's folder (pawl_ckpt_open): struct pawl_ckpt_options has the meanings.

        Zeros mean the library's defaults. full: "block" or "skip". backend: "auto", "uring", "plain", "pmem".
        Errors: Busy, Foreign, Corrupt, NoSpace, Argument, NotFound, Io."""
        super().__init__()
        self._declared: dict[int, Tensors] = {}
        options = _abi.COptions(
            path=_path(path), must_exist=must_exist, must_be_new=must_be_new, run_id=_run_id(run_id),
            rank=_whole(rank, 32, "rank"), rank_count=_whole(rank_count, 32, "rank_count"),
            start=None if start is None else start.encode(), in_flight=_whole(in_flight, 32, "in_flight"),
            keep=_whole(keep, 32, "keep"), full=_place(_FULL, full, "full"),
            tolerate=_whole(tolerate, 32, "tolerate"), backend=_place(_BACKENDS, backend, "backend"),
            staging_bytes=_whole(staging_bytes, 64, "staging_bytes"),
            staging_max_bytes=_whole(staging_max_bytes, 64, "staging_max_bytes"), unchecked=unchecked,
            every=_whole(every, 64, "every"), overhead=overhead, mtbf_s=mtbf_s)
        out = c_void_p()
        _abi.check(self._library.pawl_ckpt_open(byref(options), byref(out), byref(self._error)), self._error)
        self._pointer = out

    def declare(self, tensors: Sequence[Tensor]) -> int:
        """What this rank holds; returns a handle. Keeps nothing alive: the memory must outlive its saves."""
        made, out = Tensors(tensors), c_void_p()
        try:
            self._call("pawl_ckpt_declare", made.array, len(made.array), byref(out))
        except BaseException:
            made.close()
            raise
        handle = out.value or 0
        self._declared[handle] = made
        return handle

    def _state(self, handle: int) -> c_void_p:
        if handle not in self._declared:
            raise errors.Argument(f"handle {handle} is none that declare() of this checkpoint returned")
        return c_void_p(handle)

    def resume(self, handle: int) -> int:
        """Fills the memory of `handle` from the newest durable step, which is returned; 0: nothing saved.

        Errors: Corrupt, NotFound, Format, Io."""
        step = c_uint64()
        self._call("pawl_ckpt_resume", self._state(handle), byref(step))
        return step.value

    def stored_step(self) -> int:
        """The step that resume() sets out from; 0: none."""
        return int(self._library.pawl_ckpt_stored_step(self._live()))

    def unit_count(self) -> int:
        """Units of the step resumed from; 0 when nothing was resumed."""
        return int(self._library.pawl_ckpt_unit_count(self._live()))

    def unit_blob(self, unit: int) -> bytes:
        """What was saved with one unit of the step resumed from.

        Errors: Argument (nothing was resumed, or no such unit)."""
        blob, size = c_void_p(), c_size_t()
        self._call("pawl_ckpt_unit_blob", _whole(unit, 32, "unit"), byref(blob), byref(size))
        return ctypes.string_at(blob, size.value) if blob.value else b""

    def resume_from(self, step: int, incarnation: int) -> None:
        """Goes on from a step that a Reader has read, or from nothing (0): pawl_ckpt_resume_from.

        Errors: NotFound (not complete, or marked bad), Corrupt (nothing is left of what was saved),
        Argument."""
        self._call("pawl_ckpt_resume_from", _whole(step, 64, "step"), _whole(incarnation, 64, "incarnation"))

    def problems(self) -> list[str]:
        """After resuming: damaged files by which a newer step was lost, or may have been, in words."""
        found: list[str] = []
        while (text := self._library.pawl_ckpt_problem(self._live(), len(found))) is not None:
            found.append(text.decode(errors="replace"))
        return found

    def mark_bad(self, step: int, incarnation: int, why: str) -> None:
        """No resume takes this step again; told as event "failed". Errors: Argument, Io."""
        self._call("pawl_ckpt_mark_bad", _whole(step, 64, "step"), _whole(incarnation, 64, "incarnation"),
                   why.encode())

    def from_scratch(self) -> None:
        """Begins anew although durable steps exist (pawl_ckpt_from_scratch)."""
        self._call("pawl_ckpt_from_scratch")

    def save(self, handle: int, step: int, *, unit: int = 0, unit_count: int = 1, blob: bytes = b"",
             addresses: Sequence[int] | None = None) -> int:
        """Begins a save and returns its id; 0: skipped. The memory may change after fence().

        addresses: one for each tensor declared, instead of those declared; of a strided one the same. Raises
        the error of an earlier save when more than `tolerate` in a row have failed; then nothing was
        begun."""
        save = _abi.CSave(state=self._state(handle), step=_whole(step, 64, "step"),
                          unit=_whole(unit, 32, "unit"), unit_count=_whole(unit_count, 32, "unit_count"),
                          blob=blob or None, blob_bytes=len(blob))
        if addresses is not None:
            save.data = self._declared[handle].data(addresses)
        id = c_uint64()
        self._call("pawl_ckpt_save", byref(save), byref(id))
        return id.value

    def fence(self, timeout: float | None = None) -> None:
        """Waits until all memory given to saves may be changed. Errors: Timeout."""
        self._call("pawl_ckpt_fence", _deadline(timeout))

    def wait(self, id: int, until: str = "durable", timeout: float | None = None) -> None:
        """Waits for one save to be "captured", "committed" or "durable". Errors: Timeout, the save's own."""
        place = _place(_UNTIL, until, "until")
        self._call("pawl_ckpt_wait", _whole(id, 64, "id"), place, _deadline(timeout))

    def due(self, step: int) -> bool:
        """Is it time to save? Called once an iteration, which it measures."""
        return bool(self._library.pawl_ckpt_due(self._live(), step))

    def status(self) -> Status:
        """Numbers of this rank's saves. From any thread."""
        out = _abi.CStatus()
        self._library.pawl_ckpt_status(self._live(), byref(out))
        return Status(**_values(out))

    def events(self) -> list[Event]:
        """Events not fetched yet, oldest first; of more than 1024 the oldest are dropped."""
        found: list[Event] = []
        out = (_abi.CEvent * _EVENTS_AT_ONCE)()
        while count := self._library.pawl_ckpt_poll(self._live(), out, _EVENTS_AT_ONCE):
            found += map(self._event, out[:count])
        return found

    def _event(self, event: _abi.CEvent) -> Event:
        names = {"kind": self._library.pawl_ckpt_event_name(event.kind).decode(),
                 "code": self._library.pawl_code_name(event.code).decode()}
        return Event(**{**_values(event), **names})

    def close(self, timeout: float | None = None) -> None:
        """Waits for all saves, gives up the rest at the deadline, closes. Once closed it does nothing.

        Raises the first error of saves that no call has raised, or Timeout; closed it is in any case."""
        pointer, self._pointer = self._pointer, None
        if pointer is not None:
            deadline = _deadline(timeout)
            code = self._library.pawl_ckpt_close(pointer, deadline, byref(self._error))
            for made in self._declared.values():
                made.close()
            _abi.check(code, self._error, self._full)

    def __enter__(self) -> Ckpt:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()


class Reader(_Handle):
    """Reads what a run has saved, without writing: struct pawl_ckpt_reader. A context manager.

    An index counts steps, newest first, as steps() lists them."""

    def __init__(self, path: str | bytes | PathLike[Any], *, run_id: str | None = None,
                 unchecked: bool = False, prefer: str | None = None) -> None:
        """`path`: a run's folder, its store folder, or one rank's store; it may be in use.

        unchecked: accept what was written without checksums. prefer: name of a store's folder to read from
        first ("rank-0003"). Errors: NotFound, Foreign, Io, Corrupt, Argument (no such store)."""
        super().__init__()
        options = _abi.CReaderOptions(run_id=_run_id(run_id), unchecked=unchecked,
                                      prefer=None if prefer is None else prefer.encode())
        out, e = c_void_p(), self._error
        code = self._library.pawl_ckpt_reader_open(_path(path), byref(options), byref(out), byref(e))
        _abi.check(code, self._error)
        self._pointer = out

    def _checked(self, index: int) -> int:
        count = self._library.pawl_ckpt_reader_step_count(self._live())
        if not 0 <= index < count:
            raise errors.NotFound(f"no step has the index {index}: there are {count}, counted from 0")
        return index

    def steps(self) -> list[Step]:
        """All steps found, complete or not, newest first."""
        count = self._library.pawl_ckpt_reader_step_count(self._live())
        return [Step(**_values(self._library.pawl_ckpt_reader_step(self._pointer, i))) for i in range(count)]

    def newest(self) -> int | None:
        """Index of the newest complete step that is not marked bad; None: there is none."""
        index: int = self._library.pawl_ckpt_reader_newest(self._live())
        return None if index == _abi.NO_INDEX else index

    def pass_over(self, index: int) -> None:
        """From now on this reader takes the step for one that is marked bad."""
        self._call("pawl_ckpt_reader_pass_over", self._checked(index))

    def problems(self) -> list[str]:
        """What was found damaged or unreadable, in words."""
        found: list[str] = []
        while (text := self._library.pawl_ckpt_reader_problem(self._live(), len(found))) is not None:
            found.append(text.decode(errors="replace"))
        return found

    def tensors(self, index: int) -> list[Tensor]:
        """Name, type and global shape of each tensor of a step; their address is 0."""
        pointer, names = self._live(), _abi.dtype_names()
        found = []
        for i in range(self._library.pawl_ckpt_reader_tensor_count(pointer, self._checked(index))):
            t = self._library.pawl_ckpt_reader_tensor(pointer, index, i)
            found.append(Tensor(t.name.decode(), names[t.dtype], tuple(t.shape[: t.rank]), None, None, 0))
        return found

    def read(self, index: int, tensors: Sequence[Tensor]) -> None:
        """Reads whole tensors or boxes of them into their addresses, verified, however they were saved.

        Errors: NotFound (a tensor, named), Format (other type or shape, both named), Corrupt, Io."""
        made = Tensors(tensors)
        try:
            self._call("pawl_ckpt_reader_read", self._checked(index), made.array, len(made.array))
        finally:
            made.close()

    def blob(self, index: int, unit: int) -> bytes:
        """What was frozen with one unit of a step; empty when nothing was. Errors: NotFound, Corrupt, Io."""
        blob, size = c_void_p(), c_size_t()
        unit = _whole(unit, 32, "unit")
        self._call("pawl_ckpt_reader_blob", self._checked(index), unit, byref(blob), byref(size))
        return ctypes.string_at(blob, size.value) if blob.value else b""

    def bytes_read(self) -> int:
        """Bytes read from devices so far."""
        return int(self._library.pawl_ckpt_reader_bytes_read(self._live()))

    def close(self) -> None:
        """Frees the reader. Once closed it does nothing."""
        pointer, self._pointer = self._pointer, None
        self._library.pawl_ckpt_reader_close(pointer)

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()
