"""include/pawl/engine.h as ctypes sees it, and where libpawl_train.so is found.

Looked for in this order: the file that PAWL_LIBRARY_TRAIN names; the package's own folder; the system's
libraries. tests/python/native_test.py compiles the header and compares. Fails as _abi.library() does.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import CFUNCTYPE, POINTER, c_bool, c_char_p, c_double, c_int, c_uint32, c_uint64, c_void_p
from functools import cache
from pathlib import Path

from . import _abi, errors
from ._abi import CError

NAME = "libpawl_train.so"
SONAME = "libpawl_train.so.0"
RANK_MAX = 8  # PAWL_ENGINE_RANK_MAX
# pawl_code by number, the order of include/pawl/error.def: an engine needs no library for it.
CODES = (
    "OK",
    "TIMEOUT",
    "BUSY",
    "CANCELLED",
    "PEER_LOST",
    "CORRUPT",
    "STAGE_LOST",
    "ARGUMENT",
    "SPEC",
    "FORMAT",
    "NOT_FOUND",
    "FOREIGN",
    "PLAN",
    "UNSUPPORTED",
    "IO",
    "NO_SPACE",
    "MEMORY",
    "DIVERGED",
    "USER",
    "INTERNAL",
)


class CEngineTensor(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("rank", c_uint32), ("shape", c_uint64 * RANK_MAX), ("decay", c_bool)]


class CEngineLayout(ctypes.Structure):
    _fields_ = [
        ("tensors", POINTER(CEngineTensor)),
        ("tensor_count", c_uint32),
        ("input_bytes", c_uint64),
        ("output_bytes", c_uint64),
    ]


class CEngineJob(ctypes.Structure):
    _fields_ = [
        ("module", c_char_p),
        ("options", c_char_p),
        ("seed", c_uint64),
        ("stages", c_uint32),
        ("batch", c_uint32),
        ("contributions", c_uint64),
        ("threads", c_uint32),
    ]


class CEngineCall(ctypes.Structure):
    _fields_ = [
        ("stage", c_uint32),
        ("slot", c_uint64),
        ("version", c_uint64),
        ("params", c_void_p),
        ("offsets", POINTER(c_uint64)),
        ("step", c_uint64),
        ("microbatch", c_uint64),
        ("no_input_grad", c_bool),
        ("no_weight_grad", c_bool),
        ("input", c_void_p),
        ("output", c_void_p),
        ("grad_in", c_void_p),
        ("grad_out", c_void_p),
        ("loss", c_double),
        ("grads", POINTER(c_void_p)),
        ("kept_bytes", c_uint64),
    ]


class CEngineOptimizer(ctypes.Structure):
    _fields_ = [
        ("lr", c_double),
        ("beta1", c_double),
        ("beta2", c_double),
        ("eps", c_double),
        ("weight_decay", c_double),
    ]


_E = POINTER(CError)
_CALL = CFUNCTYPE(c_int, c_void_p, POINTER(CEngineCall), _E)


class CEngine(ctypes.Structure):
    _fields_ = [
        ("context", c_void_p),
        ("open", CFUNCTYPE(c_int, c_void_p, POINTER(CEngineJob), _E)),
        ("stage_open", CFUNCTYPE(c_int, c_void_p, c_uint32, POINTER(CEngineLayout), _E)),
        ("stage_close", CFUNCTYPE(None, c_void_p, c_uint32)),
        ("init", CFUNCTYPE(c_int, c_void_p, c_uint32, c_void_p, POINTER(c_uint64), _E)),
        ("forward", _CALL),
        ("input_grad", _CALL),
        ("weight_grad", _CALL),
        ("drop", CFUNCTYPE(None, c_void_p, c_uint32, c_uint64)),
        ("close", CFUNCTYPE(None, c_void_p)),
        ("optimizer", CFUNCTYPE(c_int, c_void_p, POINTER(CEngineOptimizer), _E)),
        ("samples", CFUNCTYPE(c_int, c_void_p, POINTER(c_uint64), _E)),
    ]


STRUCTS = {
    "pawl_engine_tensor": CEngineTensor,
    "pawl_engine_layout": CEngineLayout,
    "pawl_engine_job": CEngineJob,
    "pawl_engine_call": CEngineCall,
    "pawl_engine_optimizer": CEngineOptimizer,
    "pawl_engine": CEngine,
}

FUNCTIONS = {
    "pawl_version": (c_char_p, []),
    "pawl_engine_register": (None, [POINTER(CEngine)]),
    "pawl_engine_process": (c_int, [c_char_p, c_int]),
}


def candidates() -> list[str]:
    """Where the library may be, most wanted first; PAWL_LIBRARY_TRAIN alone when it is set."""
    named = os.environ.get("PAWL_LIBRARY_TRAIN")
    if named:
        return [named]
    own = Path(__file__).parent / NAME
    return [str(own), SONAME] if own.exists() else [SONAME]


@cache
def library() -> ctypes.CDLL:
    """The library, loaded at the first call. Errors: NotFound, Unsupported."""
    return _abi.load(
        candidates(),
        FUNCTIONS,
        f"{NAME} cannot be loaded ({{}}). Install pawl with `make install`, or "
        "set PAWL_LIBRARY_TRAIN to the file",
    )


def code_number(name: str) -> int:
    """The pawl_code of a name in include/pawl/error.def."""
    return CODES.index(name if name in CODES else errors.Internal.code)
