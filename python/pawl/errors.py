"""What pawl's calls raise: one class a code of include/pawl/error.def, grouped by what the caller does next.

`Error.code` is the code's name ("NO_SPACE"), `Error.next` what to do: RETRY the same call later, REROUTE around a peer,
ROLLBACK to an older state, REJECT the input (nothing was changed), STOP. Tested in tests/python/native_test.py against
error.def.
"""
from __future__ import annotations


class Error(Exception):
    """Any failure of pawl; its text names the innermost cause: file, rank, step, what was wanted and had."""

    code = "INTERNAL"
    next = "STOP"
    exit_code = 70


def _make(name: str, code: str, todo: str, exit_code: int) -> type[Error]:
    return type(name, (Error,), {"__module__": __name__, "code": code, "next": todo, "exit_code": exit_code})


Timeout = _make("Timeout", "TIMEOUT", "RETRY", 75)
Busy = _make("Busy", "BUSY", "RETRY", 75)
Cancelled = _make("Cancelled", "CANCELLED", "RETRY", 75)
PeerLost = _make("PeerLost", "PEER_LOST", "REROUTE", 70)
Corrupt = _make("Corrupt", "CORRUPT", "ROLLBACK", 65)
StageLost = _make("StageLost", "STAGE_LOST", "ROLLBACK", 70)
Argument = _make("Argument", "ARGUMENT", "REJECT", 64)
Spec = _make("Spec", "SPEC", "REJECT", 64)
Format = _make("Format", "FORMAT", "REJECT", 65)
NotFound = _make("NotFound", "NOT_FOUND", "REJECT", 66)
Foreign = _make("Foreign", "FOREIGN", "REJECT", 76)
Plan = _make("Plan", "PLAN", "REJECT", 65)
Unsupported = _make("Unsupported", "UNSUPPORTED", "REJECT", 69)
Io = _make("Io", "IO", "STOP", 74)
NoSpace = _make("NoSpace", "NO_SPACE", "STOP", 74)
Memory = _make("Memory", "MEMORY", "STOP", 71)
Diverged = _make("Diverged", "DIVERGED", "STOP", 70)
User = _make("User", "USER", "STOP", 1)
Internal = _make("Internal", "INTERNAL", "STOP", 70)

# In the order of error.def, in which the library numbers them from 1; 0 is OK.
BY_NUMBER: tuple[type[Error], ...] = (
    Timeout, Busy, Cancelled, PeerLost, Corrupt, StageLost, Argument, Spec, Format, NotFound, Foreign, Plan, Unsupported,
    Io, NoSpace, Memory, Diverged, User, Internal)


class StateMismatch(Format):  # type: ignore[misc, valid-type]
    """What is stored does not fit what there is to restore into: all differences, and nothing was loaded."""


class ChangedTooEarly(Diverged):  # type: ignore[misc, valid-type]
    """debug=True: a tensor changed between a save and the moment at which it had been captured."""


class Preempted(SystemExit):
    """Raised by step() after a notice (SIGTERM), when the step was saved or the grace was over; ends the program with
    exit code 143 unless caught. `saved` is the newest durable step, 0 without one."""

    def __init__(self, text: str, saved: int) -> None:
        super().__init__(143)
        self.text = text
        self.saved = saved

    def __str__(self) -> str:
        return self.text


def of(number: int, text: str) -> Error:
    """The exception for a code of the library."""
    kind = BY_NUMBER[number - 1] if 1 <= number <= len(BY_NUMBER) else Internal
    return kind(text)
