"""Every error pawl can raise, grouped by what the caller does next.

One class for each code of include/pawl/error.def: `NO_SPACE` is `NoSpace`. `code` and `next` are those of the
C library; the text is the innermost cause in words, with paths, ranks, sizes wanted and had. docs/errors.md
has the table; tests/python/native_test.py holds the classes against the list.
"""

from __future__ import annotations


class Error(Exception):
    """What all errors of pawl have in common.

    code: name in include/pawl/error.def ("NO_SPACE").
    next: "RETRY", "REROUTE", "ROLLBACK", "REJECT" or "STOP".
    exit_code: with which the commands of pawl end for this error.
    os_errno: of the operating system's call that failed; 0 where it had no part in it.
    """

    code: str = "INTERNAL"
    next: str = "STOP"
    exit_code: int = 70

    def __init__(self, text: str = "", os_errno: int = 0) -> None:
        super().__init__(text)
        self.os_errno = os_errno


class Timeout(Error):
    """A deadline passed."""

    code, next, exit_code = "TIMEOUT", "RETRY", 75


class Busy(Error):
    """A resource is in use: another process writes there, or a later start of the run has begun."""

    code, next, exit_code = "BUSY", "RETRY", 75


class Cancelled(Error):
    """Given up on request, or overtaken by newer saves."""

    code, next, exit_code = "CANCELLED", "RETRY", 75


class PeerLost(Error):
    """Another rank is gone, or could not do its part."""

    code, next, exit_code = "PEER_LOST", "REROUTE", 70


class Corrupt(Error):
    """Stored bytes do not match their checksum."""

    code, next, exit_code = "CORRUPT", "ROLLBACK", 65


class StageLost(Error):
    """A pipeline stage has no live replica."""

    code, next, exit_code = "STAGE_LOST", "ROLLBACK", 70


class Argument(Error):
    """A bad argument; nothing was changed."""

    code, next, exit_code = "ARGUMENT", "REJECT", 64


class Spec(Error):
    """A bad specification."""

    code, next, exit_code = "SPEC", "REJECT", 64


class Format(Error):
    """Malformed data, or another type or shape than the one that is stored."""

    code, next, exit_code = "FORMAT", "REJECT", 65


class NotFound(Error):
    """What was asked for does not exist."""

    code, next, exit_code = "NOT_FOUND", "REJECT", 66


class Foreign(Error):
    """The folder belongs to another run."""

    code, next, exit_code = "FOREIGN", "REJECT", 76


class Plan(Error):
    """An invalid plan."""

    code, next, exit_code = "PLAN", "REJECT", 65


class Unsupported(Error):
    """Not supported here."""

    code, next, exit_code = "UNSUPPORTED", "REJECT", 69


class Io(Error):
    """An input or output operation failed."""

    code, next, exit_code = "IO", "STOP", 74


class NoSpace(Error):
    """No space is left on the device."""

    code, next, exit_code = "NO_SPACE", "STOP", 74


class Memory(Error):
    """Out of memory."""

    code, next, exit_code = "MEMORY", "STOP", 71


class Diverged(Error):
    """Replicas hold different bits."""

    code, next, exit_code = "DIVERGED", "STOP", 70


class User(Error):
    """The training code failed."""

    code, next, exit_code = "USER", "STOP", 1


class Internal(Error):
    """A fault of pawl itself."""

    code, next, exit_code = "INTERNAL", "STOP", 70


class StateMismatch(Format):
    """What is stored and what is here differ in names, shapes or dtypes: all differences are listed.

    Nothing was loaded."""


class Unsaveable(Unsupported):
    """A value that cannot be saved; the message begins with its path."""


class StepLost(UserWarning):
    """A warning of resume(): a step, or stored files, are damaged, and an older step was taken.

    The text names the damage and the number of steps that are computed again."""


class Preempted(SystemExit):
    """The process was asked to end (SIGTERM): raised once its state is saved or the grace is over.

    Exit code 143 unless caught. saved: the newest durable step, 0 without one."""

    def __init__(self, text: str = "", saved: int = 0) -> None:
        super().__init__(143)
        self.text = text
        self.saved = saved

    def __str__(self) -> str:
        return self.text


_BY_CODE: dict[str, type[Error]] = {kind.code: kind for kind in Error.__subclasses__()}


def of_code(code: str, text: str, os_errno: int = 0) -> Error:
    """The exception of a code by its name in include/pawl/error.def; `Internal` for one that is not known."""
    return _BY_CODE.get(code, Internal)(text, os_errno)


def of_name(name: str) -> type[Error]:
    """The class that another rank raised; `PeerLost` where it was none of these."""
    kind = globals().get(name)
    return kind if isinstance(kind, type) and issubclass(kind, Error) else PeerLost
