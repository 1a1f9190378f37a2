"""What the ranks of one training agree on: the start's name, when to save, when to stop.
No collective in a step.

A store of torch.distributed is made once (rank 0 serves it). Rank 0's interval decides when to save: at each
save it tells the step of the next one, so that the others ask once a save. A notice to stop (SIGTERM on any
rank) is looked for at every step; whoever sees it writes down its own step, and one step later waits until
all have: all stop at the latest of these steps and one more. Every rank sees a notice at most one step after
another did where steps synchronize, so nobody waits for a rank that waits for it; where they do not
synchronize nobody waits for long either. Failures: PeerLost (a rank or the store is gone), Argument (saved on
some ranks only). Tested in tests/python/{group,dist}_test.py."""

from __future__ import annotations

import datetime
import os
import socket
import time
import uuid
from collections.abc import Iterable
from typing import Any, Protocol

import torch.distributed as td

from . import _store, errors

# Ranks that call save() do it within this many seconds of each other: found before anybody wonders.
SAVE_PATIENCE_S = 4.0
# For a rank's word that comes with its next step at the latest, seconds.
STEP_PATIENCE_S = 600.0
POLL_S = 0.002


class Cadence(Protocol):
    def due(self, step: int) -> bool: ...
    def status(self) -> Any: ...


class Solo:
    """The group of a process that trains alone."""

    rank, size, start = 0, 1, None

    def agree_due(self, step: int, ckpt: Cadence, fixed: bool) -> bool:
        return ckpt.due(step)

    def agree_stop(self, step: int, mine: bool) -> bool:
        return mine

    def agree_save(self, step: int) -> None:
        pass

    def agree_step(self, attempt: int, mine: tuple[int, int] | None) -> tuple[int, int] | None:
        return mine

    def agree_restored(self, attempt: int, damage: str) -> list[str]:
        return [damage] if damage else []

    def fail_restored(self, attempt: int, why: str) -> None:
        pass


def _address() -> str:
    """Where other ranks reach this one."""
    given = os.environ.get("MASTER_ADDR")
    if given:
        return given
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"


class Ranks:
    """The group of all ranks of torch.distributed. Making one is a collective call."""

    def __init__(self) -> None:
        self.rank, self.size = td.get_rank(), td.get_world_size()
        patience = datetime.timedelta(seconds=STEP_PATIENCE_S)
        told: list[Any] = [None]
        if self.rank == 0:
            self._store = _store.open_store("0.0.0.0", 0, True, patience)
            told = [(_address(), self._store.port, uuid.uuid4().hex)]
        td.broadcast_object_list(told, src=0)
        host, port, self.start = told[0]
        if self.rank != 0:
            self._store = _store.open_store(host, port, False, patience)
        self._next: int | None = None  # step of the next save, None: the first one
        self._saves = 0
        self._seen = 0  # step at which a notice to stop was seen
        self._stop = 0

    # ---- When to save ----

    def agree_due(self, step: int, ckpt: Cadence, fixed: bool) -> bool:
        """The same answer on all ranks. fixed: an interval in steps was given, all ranks know it."""
        due = ckpt.due(step)
        if fixed:
            return due
        if self._next is not None and step < self._next:
            return False
        self._saves += 1
        key = f"next/{self._saves}"
        if self.rank == 0:
            self._set(key, str(step + max(1, int(ckpt.status().every))))
        self._next = int(self._get(key, f"rank 0 to tell the step of the save after step {step}"))
        return True

    def agree_save(self, step: int) -> None:
        """Called by save(): returns when all ranks have called it. Argument: names those that have not."""
        key = f"save/{step}"
        self._set(f"{key}/{self.rank}", "1")
        missing = self._missing(key, SAVE_PATIENCE_S)
        if missing:
            raise errors.Argument(
                f"save() of step {step} was called on rank {self.rank}, and for {SAVE_PATIENCE_S:g} s not on "
                f"rank {', '.join(map(str, missing))} of {self.size}: nothing was saved. Call it on all "
                "ranks: each saves its own part")

    # ---- When to stop ----

    def agree_stop(self, step: int, mine: bool) -> bool:
        """True on all ranks at the same step, soon after `mine` was true on any of them."""
        if self._stop:
            return step >= self._stop
        if not self._seen:
            if mine:
                self._set("stop", str(self.rank))
            if mine or self._has("stop"):
                self._seen = step
                self._set(f"seen/{self.rank}", str(step))
            return False
        missing = self._missing("seen", STEP_PATIENCE_S)
        if missing:
            raise errors.PeerLost(f"told to stop at step {step}; rank {', '.join(map(str, missing))} of "
                                  f"{self.size} has called step() for {STEP_PATIENCE_S:g} s no more")
        self._stop = 1 + max(int(self._get(f"seen/{r}", f"rank {r}")) for r in range(self.size))
        return step >= self._stop

    # ---- Restoring ----

    def agree_step(self, attempt: int, mine: tuple[int, int] | None) -> tuple[int, int] | None:
        """Step and start to restore in attempt 0, 1, ...: what rank 0 says; None: there is none."""
        key = f"resume/{attempt}"
        if self.rank == 0:
            self._set(key, "0 0" if mine is None else f"{mine[0]} {mine[1]}")
        step, start = map(int, self._get(key, "rank 0 to tell which step is restored").split())
        return (step, start) if step else None

    def agree_restored(self, attempt: int, damage: str) -> list[str]:
        """Returns when all ranks have read the step: the damage that they met, none: it is good on all of
        them. PeerLost: one failed for another reason."""
        self._set(f"restored/{attempt}/{self.rank}", "damaged " + damage if damage else "good")
        words = [self._get(f"restored/{attempt}/{r}", f"rank {r} to restore").partition(" ")
                 for r in range(self.size)]
        failed = [f"rank {r}: {text}" for r, (word, _, text) in enumerate(words) if word == "failed"]
        if failed:
            raise errors.PeerLost(f"not restored, since it failed on other ranks: {'; '.join(failed)}")
        return [f"rank {r}: {text}" for r, (word, _, text) in enumerate(words) if word == "damaged"]

    def fail_restored(self, attempt: int, why: str) -> None:
        """Instead of agree_restored: so that the others do not wait for this rank."""
        self._set(f"restored/{attempt}/{self.rank}", f"failed {why}")

    # ---- The store ----

    def _missing(self, key: str, patience_s: float) -> list[int]:
        """Ranks that have not set key/RANK after so long."""
        end = time.monotonic() + patience_s
        while True:
            missing = [r for r in range(self.size) if not self._has(f"{key}/{r}")]
            if not missing or time.monotonic() >= end:
                return missing
            time.sleep(POLL_S)

    def _has(self, key: str) -> bool:
        return bool(self._call(self._store.check, [key]))

    def _set(self, key: str, value: str) -> None:
        self._call(self._store.set, key, value)

    def _get(self, key: str, what: str) -> str:
        try:
            return bytes(self._store.get(key)).decode()
        except RuntimeError as e:
            raise errors.PeerLost(f"rank {self.rank} waited for {what}: {e}") from e

    def _call(self, function: Any, *arguments: str | Iterable[str]) -> Any:
        try:
            return function(*arguments)
        except RuntimeError as e:
            raise errors.PeerLost(f"rank {self.rank} does not reach the store that rank 0 serves: {e}") from e


Group = Solo | Ranks


def find(group: Any) -> Any:
    """"auto": all ranks of torch.distributed where it is initialized, else, and for None,
    this process alone."""
    if group is None:
        return Solo()
    if group != "auto":
        return group
    if td.is_available() and td.is_initialized() and td.get_world_size() > 1:
        return Ranks()
    return Solo()
