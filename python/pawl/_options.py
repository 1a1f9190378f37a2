"""The options of a Checkpointer, checked: each error names the option, what was given and what is wanted.

Ignores how options go together. Failures: Argument. Tested in tests/python/checkpointer_test.py."""

from __future__ import annotations

import math
import numbers
import os
import signal
from collections.abc import Iterable
from typing import Any, NamedTuple

from . import errors

IN_FLIGHT_MAX = 32  # CKPT_IN_FLIGHT_MAX of src/ckpt/ckpt.h
KEEP_MAX = 64  # CKPT_KEEP_MAX of src/ckpt/ckpt.h
TOLERATE_MAX = 2**32 - 1
STAGING_MIN = 4096
_UNCATCHABLE = {signal.SIGKILL, signal.SIGSTOP}


class Options(NamedTuple):
    """As Checkpointer's docstring has them; numbers are Python's own."""

    every: int | str
    overhead: float
    keep: int
    in_flight: int
    mtbf: float | None
    on_full: str
    staging: int | None
    tolerate: int
    grace: float
    signals: tuple[int, ...]
    rng: bool
    debug: bool
    from_scratch: bool

    def shared(self) -> dict[str, Any]:
        """What all ranks have to be given alike."""
        own = {"staging", "grace", "signals", "debug"}
        return {name: value for name, value in self._asdict().items() if name not in own}


def steps_of(name: str, value: Any, least: int) -> int:
    """A number of steps that a call was given."""
    return _whole({name: value}, name, least, 2**63 - 1, f"a whole number of steps, {least} or more")


def path_of(path: Any) -> str:
    """The run's folder as text."""
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str) or not text or "\0" in text:
        raise errors.Argument(f"path is {path!r}: wanted the name of the run's folder, a string or a Path")
    return text


def checked(given: dict[str, Any]) -> Options:
    """All of Options, by name. Errors: Argument, for the first that is wrong."""
    g = given
    return Options(
        every="auto" if isinstance(g["every"], str) and g["every"] == "auto" else
        _whole(g, "every", 1, 2**63, "a number of steps, 1 or more, or 'auto'"),
        overhead=_real(g, "overhead", lambda x: 0 < x < 1, "a share of the time, more than 0 and less than 1 "
                                                           "(0.03: three percent)"),
        keep=_whole(g, "keep", 1, KEEP_MAX, f"a number of durable steps, 1 to {KEEP_MAX}"),
        in_flight=_whole(g, "in_flight", 1, IN_FLIGHT_MAX, f"a number of saves, 1 to {IN_FLIGHT_MAX}"),
        mtbf=None if g["mtbf"] is None else
        _real(g, "mtbf", lambda x: 0 < x < math.inf, "seconds between failures, more than 0, or None"),
        on_full=_choice(g, "on_full", ("wait", "skip")),
        staging=None if g["staging"] is None else
        _whole(g, "staging", STAGING_MIN, 2**63, f"a number of bytes, {STAGING_MIN} or more, or None"),
        tolerate=_whole(g, "tolerate", 0, TOLERATE_MAX, "a number of failed saves in a row, 0 or more"),
        grace=_real(g, "grace", lambda x: 0 <= x < math.inf, "seconds, 0 or more"),
        signals=_signals(g), rng=_flag(g, "rng"), debug=_flag(g, "debug"),
        from_scratch=_flag(g, "from_scratch"))


def _refuse(given: dict[str, Any], name: str, wanted: str) -> errors.Argument:
    return errors.Argument(f"{name} is {given[name]!r}: wanted {wanted}")


def _whole(given: dict[str, Any], name: str, least: int, most: int, wanted: str) -> int:
    value = given[name]
    number = int(value) if isinstance(value, numbers.Integral) and not isinstance(value, bool) else None
    if number is None or not least <= number <= most:
        raise _refuse(given, name, wanted)
    return number


def _real(given: dict[str, Any], name: str, fits: Any, wanted: str) -> float:
    value = given[name]
    if not isinstance(value, numbers.Real) or isinstance(value, bool) or not fits(value):
        raise _refuse(given, name, wanted)
    return float(value)


def _choice(given: dict[str, Any], name: str, choices: tuple[str, ...]) -> str:
    value = given[name]
    if not isinstance(value, str) or value not in choices:
        raise _refuse(given, name, " or ".join(map(repr, choices)))
    return value


def _flag(given: dict[str, Any], name: str) -> bool:
    if not isinstance(given[name], bool):
        raise _refuse(given, name, "True or False")
    return bool(given[name])


def _signals(given: dict[str, Any]) -> tuple[int, ...]:
    value, valid = given["signals"], signal.valid_signals() - _UNCATCHABLE
    fits = isinstance(value, Iterable) and not isinstance(value, (str, bytes))
    numbers_given = tuple(value) if fits else ()
    if not fits or not all(isinstance(n, int) and n in valid for n in numbers_given):
        raise _refuse(given, "signals", "signals that a program may catch, as in (signal.SIGTERM,), or ()")
    return tuple(dict.fromkeys(map(int, numbers_given)))
