"""What the ranks of one training agree on: options and names, when to save and to stop, what to restore.

No collective in a step, and no message while nothing is due and nobody is told to stop. Rank 0's interval
decides when to save: at each save it tells the step of the next one, so that the others ask once a save. A
notice to stop (SIGTERM on any rank) is answered by a thread of every rank, with the step that it is in: all
stop one step after the largest of them. Where ranks have to be of one mind every rank raises when they are
not, and says which rank and what. Failures: Argument (different calls or options), PeerLost (a rank or the
store is gone), Unsupported (different tensors). Tested in tests/python/{group,dist}_test.py."""

from __future__ import annotations

import hashlib
import json
import socket
import time
from collections.abc import Callable
from typing import Any, Protocol

import torch
import torch.distributed as td

from . import _link, _torch, errors
from ._link import ranks_text

# Ranks that call save() do it within this many seconds of each other. Less than 5: found before anybody
# wonders.
SAVE_PATIENCE_S = 4.0
# close() of rank 0 waits so long for a rank that makes no step, as the library does for its part of a save.
LINGER_S = 30.0
# Ranks tell the names of their tensors to each other when they differ; one that has gone on does not.
NAMES_PATIENCE_S = 2.0
DIFFERENCES_SHOWN = 5
# No rank begins a save before all have begun the one so many before it: the library gives up steps that
# more than 2 in_flight + 2 later ones of a rank wait for, and it cannot know that the others come.
AHEAD_MAX = 2


class Cadence(Protocol):
    def due(self, step: int) -> bool: ...
    def status(self) -> Any: ...


class Solo:
    """The group of a process that trains alone."""

    rank, size, start = 0, 1, None

    def agree_begin(self, path: str, options: dict[str, Any], names: Callable[[], list[str]],
                    failed: BaseException | None) -> None:
        if failed is not None:
            raise failed

    def agree_first(self, path: str, failed: BaseException | None) -> None:
        pass

    def agree_opened(self, path: str, run_id: str, failed: BaseException | None) -> None:
        if failed is not None:
            raise failed

    def agree_step(self, attempt: int, mine: tuple[int, int] | None) -> tuple[int, int] | None:
        return mine

    def agree_planned(self, attempt: int, good: bool) -> bool:
        return good

    def agree_restored(self, attempt: int, damage: str) -> list[str]:
        return [damage] if damage else []

    def fail_restored(self, attempt: int, why: str) -> None:
        pass

    def agree_due(self, step: int, ckpt: Cadence, fixed: bool) -> bool:
        return ckpt.due(step)

    def agree_stop(self, step: int, mine: bool) -> bool:
        return mine

    def agree_save(self, step: int) -> None:
        pass

    def agree_state(self, step: int, late: list[tuple[str, torch.Tensor]]) -> None:
        pass

    def refuse_gone(self, step: int) -> None:
        pass

    def lost(self, step: int) -> str:
        return ""

    def leave(self, linger_s: float | None) -> None:
        pass


def _digest(lines: list[str]) -> str:
    return hashlib.blake2b("\n".join(lines).encode(), digest_size=16).hexdigest()


def _differences(here: list[str], there: list[str], rank: int) -> str:
    """Lines that only one of two ranks has."""
    out = [f"only here: {line}" for line in sorted(set(here) - set(there))]
    out += [f"only on rank {rank}: {line}" for line in sorted(set(there) - set(here))]
    more = len(out) - DIFFERENCES_SHOWN
    return "\n  ".join(out[:DIFFERENCES_SHOWN] + ([f"and {more} more"] if more > 0 else []))


class Ranks:
    """The group of all ranks of torch.distributed. Making one is a collective call."""

    def __init__(self) -> None:
        self._link = _link.Link()
        self.rank, self.size, self.start = self._link.rank, self._link.size, self._link.start
        self._next: int | None = None  # step of the next save, None: the first one
        self._saves = 0  # that were agreed on by agree_due()
        self._calls = (0, 0)  # step, calls of save() in it
        self._agreed = ""  # key of the newest agreed call of save()
        self._held: list[Any] = []  # names, types, shapes, placements of what was saved last
        self._state = ""  # digest of them
        self._begun = 0  # saves

    # ---- At the start ----

    def agree_begin(self, path: str, options: dict[str, Any], names: Callable[[], list[str]],
                    failed: BaseException | None) -> None:
        """Before anything is made: raises where any rank has `failed`, the same error; Argument when ranks
        were given different folders, options or objects."""
        lines = [f"{key} is {value!r}" for key, value in options.items()]
        try:
            lines = sorted(lines + names())
        except errors.Error as e:
            failed = failed or e
        mine = {"host": socket.gethostname(), "path": path, "digest": _digest(lines)}
        told = self._outcomes("begin", mine, failed, "make its Checkpointer")
        for rank, other in enumerate(told):
            if other["host"] == told[0]["host"] and other["path"] != told[0]["path"]:
                self._link.part("folder")
                raise errors.Argument(f"rank 0 was given the folder {told[0]['path']}, and rank {rank} on "
                                      "the same machine "
                                      f"{other['path']}: all ranks save to one folder")
        if any(other["digest"] != told[0]["digest"] for other in told):
            self._refuse_different(lines)

    def _refuse_different(self, lines: list[str]) -> None:
        told = [json.loads(text) for text in self._link.exchange("lines", json.dumps(lines),
                                                                 "told what it was given")]
        others = [r for r, there in enumerate(told) if there != told[0]]
        rank = 0 if self.rank in others else others[0]
        self._link.part("lines")
        raise errors.Argument("the ranks were given different things, nothing was opened: "
                              f"{ranks_text(others)} and rank 0 "
                              f"differ. Here (rank {self.rank}) and on rank {rank}:\n  "
                              + _differences(lines, told[rank], rank))

    def agree_first(self, path: str, failed: BaseException | None) -> None:
        """Rank 0 has opened the folder, or failed to, where others have not tried: with its lock it keeps a
        second group away, whose other ranks would otherwise begin a later start of the run, which ends the
        first one."""
        self._outcomes("first", {}, failed, f"open {path}")

    def agree_opened(self, path: str, run_id: str, failed: BaseException | None) -> None:
        """After the folder was opened, or was to be: raises where any rank has `failed`, the same error;
        Foreign when they opened folders of different runs."""
        told = self._outcomes("opened", {"run": run_id, "path": path}, failed, f"open {path}")
        for rank, other in enumerate(told):
            if other["run"] != told[0]["run"]:
                self._link.part("run")
                raise errors.Foreign(f"rank 0 opened run {told[0]['run']} in {told[0]['path']}, rank "
                                     f"{rank} run "
                                     f"{other['run']} in {other['path']}: all ranks save to one folder "
                                     "that all reach")

    def _outcomes(self, name: str, mine: dict[str, Any], failed: BaseException | None,
                  what: str) -> list[dict[str, Any]]:
        tried = f"tried to {what}"
        told = {**mine, "failed": "" if failed is None else f"{type(failed).__name__}: {failed}"}
        try:
            out = [json.loads(text) for text in self._link.exchange(name, json.dumps(told), tried)]
        except errors.PeerLost:
            if failed is not None:
                raise failed from None
            raise
        if any(other["failed"] for other in out):
            self._link.part(name)
        if failed is not None:
            raise failed
        for rank, other in enumerate(out):
            if other["failed"]:
                kind = errors.of_name(other["failed"].partition(":")[0])
                raise kind(f"rank {rank} of {self.size} could not {what}: {other['failed']}")
        return out

    # ---- Restoring ----

    def agree_step(self, attempt: int, mine: tuple[int, int] | None) -> tuple[int, int] | None:
        """Step and start to restore in attempt 0, 1, ...: what rank 0 says on all ranks; None: there is
        none."""
        key = f"resume/{attempt}"
        if self.rank == 0:
            self._link.set(key, "0 0" if mine is None else f"{mine[0]} {mine[1]}")
        self._link.need({0: key}, "told which step is restored")
        step, start = map(int, self._link.get(key).split())
        return (step, start) if step else None

    def agree_planned(self, attempt: int, good: bool) -> bool:
        """Before anything is overwritten: True when what is stored fits on all ranks. A rank that says
        False learns no more, and says why in agree_restored() or fail_restored()."""
        if not good:
            self._link.set(f"planned/{attempt}/{self.rank}", "no")
            return False
        return "no" not in self._link.exchange(f"planned/{attempt}", "yes", "looked at what is stored, in "
                                                                            "resume()")

    def agree_restored(self, attempt: int, damage: str) -> list[str]:
        """Returns when all ranks have read the step: the damage that they met, none: it is good on all of
        them. PeerLost: one failed for another reason."""
        told = self._link.exchange(f"restored/{attempt}", "damaged " + damage if damage else "good",
                                   "restored")
        words = [text.partition(" ") for text in told]
        failed = [f"rank {r}: {text}" for r, (word, _, text) in enumerate(words) if word == "failed"]
        if failed:
            self._link.part(f"restored/{attempt}")
            raise errors.PeerLost(f"not restored, since it failed on other ranks: {'; '.join(failed)}")
        return [f"rank {r}: {text}" for r, (word, _, text) in enumerate(words) if word == "damaged"]

    def fail_restored(self, attempt: int, why: str) -> None:
        """Instead of agree_restored: so that the others do not wait for this rank."""
        self._link.set(f"restored/{attempt}/{self.rank}", f"failed {why}")
        self._link.part(f"restored/{attempt}")

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
            self._link.set(key, f"{step} {step + max(1, int(ckpt.status().every))}")
        elif self._link.expect({0: key}, f"told the step of the save after step {step}"):
            raise errors.PeerLost(f"rank {self.rank} is at step {step}, and rank 0 has not come there for "
                                  f"{_link.PATIENCE_S:g} s")
        theirs, following = map(int, self._link.get(key).split())
        if theirs != step:
            raise errors.Argument(f"rank {self.rank} saves step {step} when rank 0 saves step {theirs}: "
                                  "all ranks count the "
                                  "same steps in step()")
        self._next = following
        if self.rank != 0 and self._link.count(f"had/{self._saves}") == self.size - 1:
            self._link.drop(key)
            self._link.drop(f"had/{self._saves}")
        return True

    def agree_save(self, step: int) -> None:
        """Called by save(): returns when all ranks have called it. Argument on all that call it, now or
        later: some have not come in time, they are named."""
        count = self._calls[1] + 1 if self._calls[0] == step else 1
        self._calls, key = (step, count), f"save/{step}/{count}"
        self._link.set(f"{key}/{self.rank}", "1")
        missing = self._link.expect({r: f"{key}/{r}" for r in range(self.size)}, "called save() of step "
                                                                                 f"{step}",
                                    SAVE_PATIENCE_S)
        verdict = f"no: for {SAVE_PATIENCE_S:g} s not on {ranks_text(missing)}" if missing else "go"
        verdict = self._link.first(key, verdict)
        if verdict != "go":
            raise errors.Argument(
                f"save() of step {step} was called on rank {self.rank}, and {verdict[4:]} of {self.size}: "
                "nothing was "
                "saved. Call it on all ranks, each saves its own part; where they come to it at different "
                "times, after "
                "torch.distributed.barrier()")
        if self._agreed:  # all ranks have left that one
            self._link.drop(f"{self._agreed}/{self.rank}")
            if self.rank == 0:
                self._link.drop(self._agreed)
        self._agreed = key

    def agree_state(self, step: int, late: list[tuple[str, torch.Tensor]]) -> None:
        """Before a save is begun: waits for the other ranks where the tensors are not those of the save
        before, or where they are AHEAD_MAX saves behind. Unsupported: other ranks hold others, and each
        would save a part of what some do not have."""
        held = [(name, t.dtype, t.shape, getattr(t, "placements", None)) for name, t in late]
        changed, self._held = held != self._held, held
        if changed:
            names = sorted(_torch.lines(late))
            self._state = _digest(names)
        self._link.set(f"state/{self.rank}", f"{step} {self._state}")
        self._await_all(step)
        for rank in range(self.size) if changed else ():
            if self._state_of(rank, step) != self._state:
                self._refuse_state(step, rank, names)

    def _await_all(self, step: int) -> None:
        """Until all ranks have begun the save AHEAD_MAX saves ago."""
        self._begun += 1
        behind = self._begun - AHEAD_MAX
        if self._link.count(f"begun/{self._begun}") == self.size:
            self._link.set(f"all/{self._begun}", "1")
        everyone = {r: f"all/{behind}" for r in range(self.size)}
        if behind > 0 and self._link.expect(everyone, f"begun to save, {AHEAD_MAX} saves before step {step}"):
            raise errors.PeerLost(f"rank {self.rank} saves step {step}, and for {_link.PATIENCE_S:g} s "
                                  "waits for another "
                                  f"that is {AHEAD_MAX} saves behind")
        nobodys = behind - AHEAD_MAX - 1  # who has begun `behind` has waited for that
        if nobodys > 0 and self.rank == 0:
            self._link.drop(f"begun/{nobodys}")
            self._link.drop(f"all/{nobodys}")

    def _state_of(self, rank: int, step: int) -> str:
        """Digest of the names of another rank's save of `step`, or of a later one."""
        key, looked, at = f"state/{rank}", time.monotonic(), "0"
        what, end = f"begun the save of step {step}", looked + _link.PATIENCE_S
        while True:
            if self._link.has(key):
                at, digest = self._link.get(key).split()
            if int(at) >= step:
                return digest
            if time.monotonic() >= end:
                raise errors.PeerLost(f"rank {self.rank} waited {_link.PATIENCE_S:g} s for rank {rank} to "
                                      f"have {what}; its "
                                      f"newest is step {at}")
            if time.monotonic() - looked >= _link.BEAT_S:
                looked = time.monotonic()
                self._link.refuse_gone([rank], what)
            time.sleep(_link.POLL_S_MAX)

    def _refuse_state(self, step: int, rank: int, names: list[str]) -> None:
        self._link.set(f"names/{step}/{self.rank}", json.dumps(names))
        key, text = f"names/{step}/{rank}", f"see what rank {rank} says"
        if not self._link.expect({rank: key}, "told its names", NAMES_PATIENCE_S):
            text = _differences(names, json.loads(self._link.get(key)), rank)
        self._link.part(f"names/{step}")
        raise errors.Unsupported(
            f"step {step} was not saved: rank {self.rank} and rank {rank} hold different tensors. Each "
            "saves a part of those "
            "that are the same on all ranks: wanted the same names, types, shapes and placements "
            "everywhere (an optimizer "
            f"that keeps state on some ranks only: use torch.distributed.fsdp.fully_shard)\n  {text}")

    # ---- When to stop ----

    def agree_stop(self, step: int, mine: bool) -> bool:
        """True on all ranks at the same step, soon after `mine` was true on any of them."""
        stop = self._link.stop_step(step, mine)
        return stop > 0 and step >= stop

    # ---- The end ----

    def refuse_gone(self, step: int) -> None:
        """While waiting for a step to be durable: PeerLost when a rank will never save its part of it."""
        self._link.check()
        for rank in range(self.size):
            why = self._link.gone(rank)
            if why and not self._has_saved(rank, step):
                raise errors.PeerLost(f"step {step} waits for rank {rank} of {self.size}: {why}")

    def lost(self, step: int) -> str:
        """Why the step will not be durable, though this rank waits; "": it may be."""
        try:
            self.refuse_gone(step)
        except errors.PeerLost as e:
            return "" if self._link.is_left() else str(e)
        return ""

    def _has_saved(self, rank: int, step: int) -> bool:
        """It closed after that save: what became of it is for the files to say."""
        key = f"state/{rank}"
        closed = self._link.has(f"done/{rank}") and self._link.has(key)
        return closed and int(self._link.get(key).split()[0]) >= step

    def leave(self, linger_s: float | None) -> None:
        """The last call. Rank 0 keeps answering until the others have left too, or for `linger_s` seconds
        none of them has made a step (None: LINGER_S; 0: at once)."""
        self._link.leave(LINGER_S if linger_s is None else linger_s)


Group = Solo | Ranks


def find(group: Any) -> Any:
    """"auto": all ranks of torch.distributed where it is initialized, else this process alone; None:
    alone."""
    if group is None:
        return Solo()
    if group != "auto":
        return group
    if td.is_available() and td.is_initialized() and td.get_world_size() > 1:
        return Ranks()
    return Solo()
