"""python -m pawl.worker COMMAND FD: a process of `pawl train` with `run: {engine: torch}`. Started by pawl
only.

COMMAND and what is said over descriptor FD are those of pawl_engine_process (include/pawl/engine.h), by
libpawl_train.so. What user code prints goes to the standard error output. The order of sets of strings must
not depend on the process: Python is started again with PYTHONHASHSEED=0 where it was not. Exit codes:
docs/errors.md.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

from . import _train_abi, errors

USAGE = "python -m pawl.worker is started by `pawl train` with the engine torch: docs/pytorch-pipeline.md"


def _same_hashes() -> None:
    """Starts this Python anew, in the same process, with hashes of strings that all processes share."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.environ.setdefault("MKL_DYNAMIC", "FALSE")  # torch.threads threads, whatever else is going on
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _descriptor(text: str) -> int:
    try:
        number = int(text)
        os.fstat(number)
    except (ValueError, OSError):
        raise errors.Argument(f"{text!r} is no open descriptor. {USAGE}") from None
    return number


def main(words: list[str]) -> int:
    """Lives the life of one process; returns its exit code."""
    try:
        if len(words) != 2:
            raise errors.Argument(USAGE)
        command, fd = words[0], _descriptor(words[1])
        os.dup2(2, 1)
        sys.stdout = sys.stderr
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the launcher, which ends the run well
        library = _train_abi.library()
        from ._engine import Engine  # brings torch

        engine = Engine()
        library.pawl_engine_register(ctypes.byref(engine.struct()))
        code: int = library.pawl_engine_process(command.encode(), fd)
        library.pawl_engine_register(None)
        return code
    except errors.Error as error:
        print(f"pawl: {error}", file=sys.stderr)
        return error.exit_code
    except ImportError as error:
        print(
            f"pawl: {error}: stages in PyTorch need torch in the Python that runs them, {sys.executable}",
            file=sys.stderr,
        )
        return errors.NotFound.exit_code


if __name__ == "__main__":
    _same_hashes()
    sys.exit(main(sys.argv[1:]))
