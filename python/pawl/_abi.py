"""The C library as ctypes sees it: where it is found, its structures, its functions.

Looked for in this order: the file that PAWL_LIBRARY names; the package's own folder (where `pip install`
builds it); the system's libraries. Field by field these are the structures of include/pawl/ckpt.h and
tensor.h: tests/python/native_test.py compiles the headers and compares. A call by ctypes.CDLL releases the
interpreter's lock. Fails with `errors.NotFound` (no library) and `errors.Unsupported` (another version).
"""

from __future__ import annotations

import ctypes
import os
import re
from ctypes import POINTER, c_bool, c_char, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint8, c_uint32
from ctypes import c_uint64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

from . import __version__, errors

NAME = "libpawl_ckpt.so"
SONAME = "libpawl_ckpt.so.0"
FOREVER = 2**63 - 1
RUN_ID_BYTES = 16
NO_INDEX = 2**32 - 1  # UINT32_MAX, what pawl_ckpt_reader_newest says when there is none


class CError(ctypes.Structure):
    _fields_ = [("code", c_int), ("os_errno", c_int), ("text", c_char * 768)]


class CTensor(ctypes.Structure):
    _fields_ = [
        ("name", c_char_p),
        ("dtype", c_int),
        ("rank", c_uint32),
        ("shape", POINTER(c_uint64)),
        ("begin", POINTER(c_uint64)),
        ("extent", POINTER(c_uint64)),
        ("data", c_void_p),
        ("memory", c_void_p),
    ]


class COptions(ctypes.Structure):
    _fields_ = [
        ("path", c_char_p),
        ("must_exist", c_bool),
        ("must_be_new", c_bool),
        ("run_id", c_uint8 * RUN_ID_BYTES),
        ("rank", c_uint32),
        ("rank_count", c_uint32),
        ("start", c_char_p),
        ("group", c_void_p),
        ("in_flight", c_uint32),
        ("keep", c_uint32),
        ("full", c_int),
        ("tolerate", c_uint32),
        ("backend", c_int),
        ("writers", c_uint32),
        ("chunk_bytes", c_uint64),
        ("staging_bytes", c_uint64),
        ("staging_max_bytes", c_uint64),
        ("unchecked", c_bool),
        ("every", c_uint64),
        ("overhead", c_double),
        ("mtbf_s", c_double),
        ("on_event", c_void_p),
        ("on_event_context", c_void_p),
    ]


class CSave(ctypes.Structure):
    _fields_ = [
        ("state", c_void_p),
        ("step", c_uint64),
        ("data", POINTER(c_void_p)),
        ("immutable", c_bool),
        ("unit", c_uint32),
        ("unit_count", c_uint32),
        ("replica", c_uint32),
        ("replica_count", c_uint32),
        ("copies", c_uint32),
        ("blob", c_char_p),
        ("blob_bytes", c_size_t),
    ]


class CEvent(ctypes.Structure):
    _fields_ = [
        ("kind", c_int),
        ("id", c_uint64),
        ("step", c_uint64),
        ("code", c_int),
        ("text", c_char * 768),
        ("bytes", c_uint64),
        ("blocked_ns", c_int64),
        ("capture_ns", c_int64),
        ("write_ns", c_int64),
        ("total_ns", c_int64),
        ("in_flight", c_uint32),
        ("every", c_uint64),
    ]


class CStatus(ctypes.Structure):
    _fields_ = [
        ("durable_step", c_uint64),
        ("durable_age_s", c_double),
        ("in_flight", c_uint32),
        ("saves", c_uint64),
        ("committed", c_uint64),
        ("skipped", c_uint64),
        ("failed", c_uint64),
        ("cancelled", c_uint64),
        ("failed_in_row", c_uint32),
        ("bytes_written", c_uint64),
        ("blocked_ns", c_int64),
        ("staging_bytes", c_uint64),
        ("staging_used_bytes", c_uint64),
        ("every", c_uint64),
        ("iteration_s", c_double),
        ("save_s", c_double),
        ("progress_ns", c_int64),
        ("backend", c_char * 160),
        ("run_id", c_uint8 * RUN_ID_BYTES),
    ]


class CReaderOptions(ctypes.Structure):
    _fields_ = [("run_id", c_uint8 * RUN_ID_BYTES), ("unchecked", c_bool), ("prefer", c_char_p)]


class CStep(ctypes.Structure):
    _fields_ = [
        ("step", c_uint64),
        ("incarnation", c_uint64),
        ("unit_count", c_uint32),
        ("complete", c_bool),
        ("bad", c_bool),
        ("bytes", c_uint64),
        ("missing", c_char * 160),
    ]


STRUCTS = {
    "pawl_error": CError,
    "pawl_tensor": CTensor,
    "pawl_ckpt_options": COptions,
    "pawl_ckpt_save": CSave,
    "pawl_ckpt_event": CEvent,
    "pawl_ckpt_status": CStatus,
    "pawl_ckpt_reader_options": CReaderOptions,
    "pawl_ckpt_step": CStep,
}

_E = POINTER(CError)
_OUT = POINTER(c_void_p)
_SIZE = POINTER(c_size_t)
# name: (what it returns, arguments); a pawl_code is c_int.
FUNCTIONS = {
    "pawl_version": (c_char_p, []),
    "pawl_now": (c_int64, []),
    "pawl_code_name": (c_char_p, [c_int]),
    "pawl_dtype_name": (c_char_p, [c_int]),
    "pawl_dtype_bits": (c_uint32, [c_int]),
    "pawl_strided_new": (c_int, [POINTER(CTensor), POINTER(c_int64), _OUT, _E]),
    "pawl_strided_free": (None, [c_void_p]),
    "pawl_cuda_open": (c_int, [c_char_p, c_int, _OUT, _E]),
    "pawl_cuda_memory": (c_void_p, [c_void_p]),
    "pawl_cuda_follow": (c_int, [c_void_p, c_void_p, _E]),
    "pawl_cuda_close": (None, [c_void_p]),
    "pawl_ckpt_event_name": (c_char_p, [c_int]),
    "pawl_ckpt_open": (c_int, [POINTER(COptions), _OUT, _E]),
    "pawl_ckpt_declare": (c_int, [c_void_p, POINTER(CTensor), c_uint32, _OUT, _E]),
    "pawl_ckpt_resume": (c_int, [c_void_p, c_void_p, POINTER(c_uint64), _E]),
    "pawl_ckpt_resume_from": (c_int, [c_void_p, c_uint64, c_uint64, _E]),
    "pawl_ckpt_problem": (c_char_p, [c_void_p, c_uint32]),
    "pawl_ckpt_mark_bad": (c_int, [c_void_p, c_uint64, c_uint64, c_char_p, _E]),
    "pawl_ckpt_from_scratch": (c_int, [c_void_p, _E]),
    "pawl_ckpt_save": (c_int, [c_void_p, POINTER(CSave), POINTER(c_uint64), _E]),
    "pawl_ckpt_fence": (c_int, [c_void_p, c_int64, _E]),
    "pawl_ckpt_wait": (c_int, [c_void_p, c_uint64, c_int, c_int64, _E]),
    "pawl_ckpt_poll": (c_uint32, [c_void_p, POINTER(CEvent), c_uint32]),
    "pawl_ckpt_stored_step": (c_uint64, [c_void_p]),
    "pawl_ckpt_unit_count": (c_uint32, [c_void_p]),
    "pawl_ckpt_unit_blob": (c_int, [c_void_p, c_uint32, _OUT, _SIZE, _E]),
    "pawl_ckpt_due": (c_bool, [c_void_p, c_uint64]),
    "pawl_ckpt_status": (None, [c_void_p, POINTER(CStatus)]),
    "pawl_ckpt_close": (c_int, [c_void_p, c_int64, _E]),
    "pawl_ckpt_reader_open": (c_int, [c_char_p, POINTER(CReaderOptions), _OUT, _E]),
    "pawl_ckpt_reader_close": (None, [c_void_p]),
    "pawl_ckpt_reader_step_count": (c_uint32, [c_void_p]),
    "pawl_ckpt_reader_step": (CStep, [c_void_p, c_uint32]),
    "pawl_ckpt_reader_problem": (c_char_p, [c_void_p, c_uint32]),
    "pawl_ckpt_reader_newest": (c_uint32, [c_void_p]),
    "pawl_ckpt_reader_pass_over": (c_int, [c_void_p, c_uint32, _E]),
    "pawl_ckpt_reader_tensor_count": (c_uint32, [c_void_p, c_uint32]),
    "pawl_ckpt_reader_tensor": (CTensor, [c_void_p, c_uint32, c_uint32]),
    "pawl_ckpt_reader_read": (c_int, [c_void_p, c_uint32, POINTER(CTensor), c_uint32, _E]),
    "pawl_ckpt_reader_blob": (c_int, [c_void_p, c_uint32, c_uint32, _OUT, _SIZE, _E]),
    "pawl_ckpt_reader_bytes_read": (c_uint64, [c_void_p]),
}


def candidates() -> list[str]:
    """Where the library may be, most wanted first; PAWL_LIBRARY alone when it is set."""
    named = os.environ.get("PAWL_LIBRARY")
    if named:
        return [named]
    own = [str(path) for path in (Path(__file__).parent / NAME,) if path.exists()]
    return [*own, SONAME]


@cache
def library() -> ctypes.CDLL:
    """The library with its functions' types, loaded at the first call. Errors: NotFound, Unsupported."""
    return load(candidates(), FUNCTIONS,
                f"{NAME} cannot be loaded ({{}}). Install the package with `pip install "
                                         "./python`, which builds it, or set PAWL_LIBRARY to the file")


def load(paths: list[str], functions: dict[str, Any], nowhere: str) -> ctypes.CDLL:
    """The first of `paths` that can be loaded. Errors: NotFound (`nowhere`, what was tried), Unsupported."""
    tried = []
    for path in paths:
        try:
            found = ctypes.CDLL(path)
        except OSError as error:
            tried.append(f"{path}: {error}")
            continue
        _declare(found, path, functions)
        return found
    raise errors.NotFound(nowhere.format("; ".join(tried)))


def _declare(found: ctypes.CDLL, path: str, functions: dict[str, Any]) -> None:
    for name, (result, arguments) in functions.items():
        try:
            function = getattr(found, name)
        except AttributeError:
            raise errors.Unsupported(
                f"{path} has no function {name}: it is not pawl's library, or not that of {__version__}"
            ) from None
        function.restype, function.argtypes = result, arguments
    version = found.pawl_version().decode()
    if version != __version__:
        raise errors.Unsupported(
            f"{path} is version {version}, this package is for {__version__}: install both from one source"
        )


@cache
def dtype_names() -> tuple[str, ...]:
    """Names of the element types by number, as the library has them."""
    names: list[str] = []
    while (name := library().pawl_dtype_name(len(names))) is not None:
        names.append(name.decode())
    return tuple(names)


@cache
def dtype_bits() -> dict[str, int]:
    """Bits of an element by the type's name, as the library has them."""
    return {name: library().pawl_dtype_bits(number) for number, name in enumerate(dtype_names())}


# A word by itself, as a message has it: not a part of a path.
_FUNCTION = re.compile(r"(call )?(?<![\w/.-])(pawl_ckpt_[a-z_]+)(?![\w/.-]*/)")


def said(text: str) -> str:
    """A message of the library in the words of Python: its functions by the names that they have here."""
    def word(found: re.Match[str]) -> str:
        call, name = found[1] or "", found[2]
        if not hasattr(library(), name):  # the name of something else
            return found[0]
        if name == "pawl_ckpt_from_scratch":
            return "give from_scratch=True" if call else "from_scratch=True"
        return f"{call}{name.split('_', 2)[2]}()"

    return _FUNCTION.sub(word, text)


def check(code: int, error: CError, full: str = "") -> None:
    """Raises the exception of a code that is not OK. full: what to do where no space is left."""
    if code:
        name = library().pawl_code_name(code).decode()
        text = said(error.text.decode(errors="replace")) + (full if name == "NO_SPACE" else "")
        raise errors.of_code(name, text, error.os_errno)
