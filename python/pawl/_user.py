"""The user's code in a worker process: its file, its random numbers, its exceptions as one line.

Tested in tests/python/pipeline_test.py.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import json
import random
import site
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from . import errors, stages

try:  # here, so that it is seeded from the first number on, whenever the user's code imports it
    numpy: Any = importlib.import_module("numpy")
except ImportError:
    numpy = None

_OURS = f"{Path(__file__).resolve().parent}/"
_LIBRARIES = tuple(
    f"{Path(p).resolve()}/"
    for p in {
        sysconfig.get_path("stdlib"),
        sysconfig.get_path("platstdlib"),
        sysconfig.get_path("purelib"),
        sysconfig.get_path("platlib"),
        site.getusersitepackages(),
        *site.getsitepackages(),
        str(Path(torch.__file__).parent),
        _OURS,
    }
)
_TEXT_BYTES = 400  # of an exception's text, so that where it was raised has room behind it in a pawl_error


def seed(*key: Any) -> None:
    """Sets the generators of torch (the processor's), Python and numpy to a state of `key` alone."""
    digest = hashlib.blake2b(" ".join(map(str, ("pawl stages 1", *key))).encode(), digest_size=8).digest()
    _seed(int.from_bytes(digest, "little") >> 1)


def _seed(number: int) -> None:
    torch.default_generator.manual_seed(
        number
    )  # torch.manual_seed notes a traceback for each device: milliseconds
    random.seed(number)
    if numpy is not None:
        numpy.random.seed(number & 0xFFFFFFFF)


def load(module: str, options: str, number: int) -> stages.Pipeline:
    """Imports the user's file (or dotted name), seeded with `number`; the pipeline that it describes.

    Errors: NotFound (no such file), Argument (no pipeline, options for none); whatever the user's code
    raises.
    """
    _seed(number)
    found = _import(module)
    made = getattr(found, "pipeline", None)
    if made is stages.pipeline or made is None:
        raise errors.Argument(
            f"{module} has no `pipeline`: write `pipeline = pawl.pipeline(...)`, or "
            "`def pipeline(options): return pawl.pipeline(...)`"
        )
    if not isinstance(made, stages.Pipeline):
        made = _call(module, made, _options(options))
    elif options:
        raise errors.Argument(
            f"torch.options are given, and `pipeline` of {module} takes none: make it a function of "
            "options, or take them out of the specification"
        )
    if not isinstance(made, stages.Pipeline):
        raise errors.Argument(
            f"`pipeline` of {module} is or returns {type(made).__name__}: what pawl.pipeline(...) "
            "returns is wanted"
        )
    return made


def _options(text: str) -> dict[str, Any]:
    try:
        options = json.loads(text) if text else {}
    except ValueError as error:
        raise errors.Argument(f"torch.options are no JSON: {error}") from None
    if not isinstance(options, dict):
        raise errors.Argument(f"torch.options are {type(options).__name__}: names and values are wanted")
    return options


def _call(module: str, function: Any, options: dict[str, Any]) -> Any:
    if not callable(function):
        return function
    if inspect.signature(function).parameters:
        return function(options)
    if options:
        raise errors.Argument(f"torch.options are given, and `pipeline` of {module} takes no argument")
    return function()


def _import(module: str) -> ModuleType:
    if not module.endswith(".py") and "/" not in module:
        if "" not in sys.path and str(Path.cwd()) not in sys.path:
            sys.path.insert(0, str(Path.cwd()))
        return importlib.import_module(module)
    path = Path(module).resolve()
    if not path.is_file():
        raise errors.NotFound(f"torch.module: there is no file {path}")
    name = path.stem if path.stem not in sys.modules else f"pawl_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise errors.Argument(f"torch.module: {path} is no Python file (its name ends with .py)")
    found = importlib.util.module_from_spec(spec)
    sys.modules[name] = found
    sys.path.insert(0, str(path.parent))
    spec.loader.exec_module(found)
    return found


@contextmanager
def within(what: str) -> Iterator[None]:
    """Around a call of the user's code: what it raises becomes User, "WHAT: ValueError: text (file:line)".
    pawl's own errors, and what ends the process or wants memory, go through."""
    try:
        yield
    except (errors.Error, MemoryError):
        raise
    except Exception as error:
        raise errors.User(f"{what}: {told(error)}") from error


def told(error: BaseException) -> str:
    """`ValueError: text (file:line)`, in one line: the innermost line of the user's own files, else of any
    but pawl's."""
    text = " ".join(str(error).split()) or "without a text"
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg} ({error.filename}:{error.lineno})"
    frames = traceback.extract_tb(error.__traceback__)
    outside = [f for f in frames if not _is_in(f, (_OURS,))]
    where = ([f for f in outside if not _is_in(f, _LIBRARIES)] or outside or frames)[-1:]
    place = f" ({where[0].filename}:{where[0].lineno})" if where else ""
    data = text.encode(errors="replace")
    if len(data) > _TEXT_BYTES:
        text = data[:_TEXT_BYTES].decode(errors="ignore") + "..."
    return f"{type(error).__name__}: {text}{place}"


def _is_in(frame: traceback.FrameSummary, folders: tuple[str, ...]) -> bool:
    """Whether a line is of a file in `folders`, or of none."""
    return frame.filename.startswith("<") or str(Path(frame.filename).resolve()).startswith(folders)


def print_traceback(error: BaseException) -> None:
    """On the standard error output, without pawl's own lines unless it was raised there."""
    cause = error.__cause__ if isinstance(error, errors.User) and error.__cause__ else error
    told_all = traceback.TracebackException.from_exception(cause)
    left, seen = [told_all], set()
    while left:
        part = left.pop()
        seen.add(id(part))
        frames = [f for f in part.stack if not f.filename.startswith("<frozen importlib")]
        if frames and (isinstance(cause, SyntaxError) or not _is_in(frames[-1], (_OURS,))):
            part.stack[:] = [f for f in frames if f.filename.startswith("<") or not _is_in(f, (_OURS,))]
        left += [p for p in (part.__cause__, part.__context__) if p is not None and id(p) not in seen]
    print("".join(told_all.format()), end="", file=sys.stderr, flush=True)
