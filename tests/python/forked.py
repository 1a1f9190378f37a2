"""Programs that a test runs in processes of their own, without importing torch anew in each of them.

A test that ends with `forked.main()` forks a server before anything else was done. `run(function, ...)` has
the server fork a child that calls the function and then ends as every Python program does: exit handlers run,
an exception is printed, SystemExit has its code. Not a test itself; used by those beside it."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Callable
from typing import Any, TextIO

_server: tuple[TextIO, TextIO] | None = None  # requests to it, answers of it


def main() -> None:
    """Instead of unittest.main(). In a child it returns when the child has done what it was asked for."""
    global _server
    asked, answered = os.pipe(), os.pipe()
    if os.fork() == 0:
        os.close(asked[1])
        os.close(answered[0])
        _serve(os.fdopen(asked[0]), os.fdopen(answered[1], "w", buffering=1))
        return
    os.close(asked[0])
    os.close(answered[1])
    _server = os.fdopen(asked[1], "w", buffering=1), os.fdopen(answered[0])
    try:
        unittest.main()
    finally:
        for end in _server:
            end.close()


def run(function: Callable[..., None], *args: Any, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Calls a function of the test's file, whose arguments JSON can hold, in a process of its own."""
    assert _server is not None, "the test does not end with forked.main()"
    requests, answers = _server
    with tempfile.NamedTemporaryFile("r") as out, tempfile.NamedTemporaryFile("r") as err:
        print(json.dumps([function.__name__, args, out.name, err.name]), file=requests)
        child = int(answers.readline())
        late = not select.select([answers], [], [], timeout)[0]
        if late:
            os.kill(child, signal.SIGKILL)
        code = int(answers.readline())
        done = subprocess.CompletedProcess([function.__name__], code, out.read(), err.read())
    if late:
        raise AssertionError(f"{function.__name__} has not ended in {timeout:g} s: {done.stdout}"
                             f"{done.stderr}")
    return done


def _serve(requests: TextIO, answers: TextIO) -> None:
    """Forks a child for each request; returns in the child, which has called the function then."""
    for line in requests:
        name, args, out, err = json.loads(line)
        child = os.fork()
        if child == 0:
            requests.close()
            answers.close()
            for number, path in ((1, out), (2, err)):
                os.dup2(os.open(path, os.O_WRONLY), number)
            getattr(sys.modules["__main__"], name)(*args)
            return
        print(child, file=answers)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=answers)
    os._exit(0)
