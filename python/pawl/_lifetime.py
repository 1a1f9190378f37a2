"""What a Checkpointer has open, and how it ends: by close(), with the last reference, or with the program.

Promises: nothing here holds the Checkpointer or an object that it was given, so that it goes when the
program drops it, whatever holds what; what it had open is closed then, as at the end of the program. A
signal's handler that is given back, or whose Checkpointer is gone, is as if it had never been set. A forked
child touches nothing. Tested in tests/python/{checkpointer,hook}_test.py."""

from __future__ import annotations

import atexit
import functools
import gc
import math
import os
import signal
import sys
import threading
import time
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from . import _cuda, _group, _native, errors

# close() with nothing under way here: by then it is seen what other ranks committed, and which have ended.
SEEN_S = 0.5
LOOK_S = 10.0  # then the library waits for ranks that live


class Notices:
    """Handlers that note a signal and call the handlers that were there. Set in the main thread only."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self.number: int | None = None  # that came last
        self._live, self._pid = True, os.getpid()
        self._previous: dict[int, Any] = {}
        if threading.current_thread() is not threading.main_thread():
            return  # only the main thread may set handlers
        try:
            for number in numbers:
                self._previous[number] = signal.getsignal(number)
                signal.signal(number, self._notice)
        except BaseException:
            self.give_back()
            raise

    def _notice(self, number: int, frame: Any) -> None:
        previous = self._previous.get(number)
        if self._live and os.getpid() == self._pid:
            self.number = number
            if callable(previous):
                previous(number, frame)
            return
        if signal.getsignal(number) == self._notice:
            self._restore(number)
            os.kill(os.getpid(), number)
        elif callable(previous):  # another handler calls this one, as the one before itself
            previous(number, frame)

    def _restore(self, number: int) -> None:
        previous = self._previous[number]
        signal.signal(number, signal.SIG_DFL if previous is None else previous)

    def give_back(self) -> None:
        """The handlers that were there, where nobody has set others since."""
        self._live = False
        if threading.current_thread() is not threading.main_thread():
            return
        for number in self._previous:
            if signal.getsignal(number) == self._notice:
                self._restore(number)


class Parts:
    """What is to be closed. `ckpt` is set once it is open."""

    def __init__(self, path: str, group: _group.Group) -> None:
        self.path, self.group, self.pid = path, group, os.getpid()
        self.ckpt: _native.Ckpt | None = None
        self.devices = _cuda.Devices()
        self.hooks: list[Any] = []
        self.notices: Notices | None = None
        self.closed = False
        self.newest = 0  # step of the newest save
        self._place = os.path.realpath(path)

    def close(self, timeout: float | None, linger_s: float | None) -> None:
        """Waits for saves, no longer than `timeout`, and for other ranks: Group.leave(). What saves failed
        with, or Timeout; closed it is in any case. A second call does nothing."""
        if self.closed:
            return
        self.closed = True
        for hook in self.hooks:
            hook.remove()
        if self.notices is not None:
            self.notices.give_back()
        try:
            if self.ckpt is not None:
                self._close(self.ckpt, timeout)
        finally:
            self.devices.close()
            self.group.leave(linger_s)

    def _close(self, ckpt: _native.Ckpt, timeout: float | None) -> None:
        end = math.inf if timeout is None else time.monotonic() + timeout
        lost = self._lost(ckpt, end)
        left = None if timeout is None else max(0.0, end - time.monotonic())
        try:
            ckpt.close(0.0 if lost else left)
        except errors.Timeout:
            if not lost:
                raise
        else:
            return
        raise errors.PeerLost(f"step {self.newest} is committed here and not durable: {lost}")

    def _lost(self, ckpt: _native.Ckpt, end: float) -> str:
        """Waits for this rank's part of the newest save: why the step will not be durable all the same, as a
        rank is gone; "": it is, or may be."""
        idle: float | None = None
        while self.group.size > 1 and (now := time.monotonic()) < end:
            status: Any = ckpt.status()
            if status.durable_step >= self.newest or status.failed_in_row > 0:
                break
            idle = None if status.in_flight > 0 else now if idle is None else idle
            if idle is not None and now - idle >= SEEN_S and (why := self.group.lost(self.newest)):
                return why
            if idle is not None and now - idle >= LOOK_S:
                break
            time.sleep(0.05)
        return ""

    def finish(self, grace: float) -> None:
        """The program has left it open and can close it no more: saves have `grace` seconds."""
        if self.closed or os.getpid() != self.pid:
            return
        try:
            failing = getattr(sys, "last_value", None) is not None  # the program ends with an exception
            self.close(grace, 0.0 if failing else grace)
        except errors.Error as e:
            print(f"pawl: {self.path}: left open by the program, closed at exit or with the last reference: "
                  f"{type(e).__name__}: {e}", file=sys.stderr)

    def is_at(self, path: str) -> bool:
        return not self.closed and self.pid == os.getpid() and self._place == os.path.realpath(path)


_open: weakref.WeakSet[Parts] = weakref.WeakSet()


def follow(owner: Any, parts: Parts, grace: float) -> Callable[[], None]:
    """Finishes `parts` when `owner` goes or the program ends. What it returns undoes that."""
    end = weakref.finalize(owner, parts.finish, grace)
    end.atexit = False  # in the order of other exit handlers instead
    atexit.register(end)
    _open.add(parts)

    def undo() -> None:
        end.detach()
        atexit.unregister(end)

    return undo


def is_open(path: str) -> bool:
    """A Checkpointer of this process has the folder open: once those that nothing refers to are gone."""
    if any(parts.is_at(path) for parts in list(_open)):
        gc.collect()
    return any(parts.is_at(path) for parts in list(_open))


def fence_before_step(optimizer: Any, fence: Callable[[], None]) -> Any:
    """Calls `fence`, a bound method, before each optimizer.step() while its object lives; what it returns
    undoes that."""
    method = weakref.WeakMethod(fence)

    def before(*_: Any) -> None:
        call = method()
        if call is not None:
            call()

    if hasattr(optimizer, "register_step_pre_hook"):
        return optimizer.register_step_pre_hook(before)
    return _Wrapped(optimizer, before)  # PyTorch 1


class _Wrapped:
    """A hook before step() of optimizers that have none. The method on the optimizer stays one, with what
    others have noted on it: schedulers of PyTorch wrap it too, before this or after."""

    def __init__(self, optimizer: Any, before: Callable[[], None]) -> None:
        had, step = vars(optimizer).get("step"), optimizer.step

        @functools.wraps(getattr(step, "__func__", step))
        def fenced(_: Any, *args: Any, **kwargs: Any) -> Any:
            before()
            return step(*args, **kwargs)

        fenced.pawl_had = had  # type: ignore[attr-defined]  # not on self, which must not keep the optimizer
        optimizer.step = mine = types.MethodType(fenced, optimizer)
        self._optimizer, self._mine = weakref.ref(optimizer), weakref.ref(mine)

    def remove(self) -> None:
        optimizer, mine = self._optimizer(), self._mine()
        if optimizer is None or mine is None or vars(optimizer).get("step") is not mine:
            return  # wrapped over since; without its Checkpointer it only calls on
        had = vars(mine.__func__)["pawl_had"]
        if had is None:
            del optimizer.step
        else:
            optimizer.step = had
