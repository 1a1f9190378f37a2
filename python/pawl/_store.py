"""The store of torch.distributed through which ranks agree, on any PyTorch that has one.

Promises: where PyTorch was built without libuv (Debian's), which its stores use unless told otherwise, the
store is made without it. A call of a Bounded one ends, though whoever serves the store is stopped or cut off,
which PyTorch's own would wait for without a limit. Errors are PyTorch's: RuntimeError. Tested in
tests/python/{store,group}_test.py."""

from __future__ import annotations

import datetime
import queue
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late  # the builtin one from Python 3.11 on
from typing import Any

import torch.distributed as td


def open_store(host: str, port: int, serve: bool, patience: datetime.timedelta) -> Any:
    """A TCPStore of any number of ranks. serve: it is served here, on `port` or, for 0, on a free one;
    returns at once. Else it is that of host:port, waited for no longer than `patience`, as for each key
    later."""
    options: dict[str, Any] = {"timeout": patience,
                               "wait_for_workers": False} if serve else {"timeout": patience}
    try:
        return td.TCPStore(host, port, None, serve, **options)
    except RuntimeError as e:
        if "libuv" not in str(e):
            raise
    return td.TCPStore(host, port, None, serve, use_libuv=False, **options)


def refusal(host: str, port: int, patience_s: float) -> str:
    """Why nobody takes a connection there, "": somebody does. PyTorch tries again and again for a store that
    may come; one whose port was told is there, or has gone for good."""
    try:
        socket.create_connection((host, port), patience_s).close()
    except OSError as e:
        return str(e)
    return ""


class Bounded:
    """A store of another process. Calls from any thread, one at a time; RuntimeError when an answer has not
    come within `rounds` waits of `round_s` seconds (a program that is stopped meanwhile loses one), and in
    every call after that. Nothing is asked where `gone` says why not, or once the connection has failed:
    PyTorch would print frames each time."""

    def __init__(self, store: Any, rounds: int, round_s: float) -> None:
        self._store, self._rounds, self._round_s = store, rounds, round_s
        self._asked: queue.SimpleQueue[tuple[Future[Any], str, tuple[Any, ...]] | None] = queue.SimpleQueue()
        self._gone = self._failed = ""
        self.gone: Callable[[], str] = str
        threading.Thread(target=self._work, name="pawl store", daemon=True).start()

    def _work(self) -> None:
        while (asked := self._asked.get()) is not None:
            answer, name, arguments = asked
            try:
                if why := self._failed or self.gone():
                    raise RuntimeError(why)
                answer.set_result(getattr(self._store, name)(*arguments))
            except BaseException as e:
                if isinstance(e, getattr(td, "DistNetworkError", ())):
                    self._failed = str(e).splitlines()[0]
                answer.set_exception(e)
            del asked, answer  # their traceback

    def _ask(self, name: str, *arguments: Any) -> Any:
        if self._gone:
            raise RuntimeError(self._gone)
        answer: Future[Any] = Future()
        self._asked.put((answer, name, arguments))
        for _ in range(self._rounds):
            try:
                return answer.result(self._round_s)
            except Late:
                if answer.done():
                    return answer.result()
        self._gone = f"its store has not answered for {self._rounds * self._round_s:g} s"
        raise RuntimeError(self._gone)

    def set(self, key: str, value: str) -> None:
        self._ask("set", key, value)

    def get(self, key: str) -> bytes:
        return bytes(self._ask("get", key))

    def check(self, keys: list[str]) -> bool:
        return bool(self._ask("check", keys))

    def add(self, key: str, value: int) -> int:
        return int(self._ask("add", key, value))

    def delete_key(self, key: str) -> bool:
        return bool(self._ask("delete_key", key))

    def compare_set(self, key: str, wanted: str, value: str) -> bytes:
        return bytes(self._ask("compare_set", key, wanted, value))

    def close(self) -> None:
        """No call comes any more."""
        self._asked.put(None)
