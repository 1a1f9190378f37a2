"""What ranks tell each other beside the training: texts in a store of torch.distributed that rank 0 serves.

Promises: nothing here is a collective but making a Link; no call waits for a rank that is gone, or for
ever: a thread in each rank gives a sign of life every BEAT_S, and a rank without one for LOST_S is told as
PeerLost by those that wait for it; so is rank 0 when its store does not answer for LOST_S, and, at once, a
rank whose process has ended (_line). The same thread
answers a notice to stop at once, whatever its program is doing: see Link.stop_step. Ignores: messages of
programs that are not this start's (the store's port is chosen anew, and a name checked). Tested in
tests/python/group_test.py."""

from __future__ import annotations

import contextlib
import datetime
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import torch.distributed as td

from . import _line, _store, errors

BEAT_S = 1.0  # between two signs of life
LOST_S = 30.0  # without a sign of life a rank counts as gone: a swapping machine gives one later than BEAT_S
PATIENCE_S = 600.0  # for a rank that lives and does not come
PART_S = 5.0  # for ranks to read why rank 0 fails
CONNECT_S = 30.0  # to each of rank 0's addresses
SAME_TIME_S = 0.2  # between the ends of two connections to one process that has ended
LOOK_S = 0.05  # between two looks for a notice to stop
POLL_S_MIN, POLL_S_MAX = 0.001, 0.02  # between two looks for what is waited for


def ranks_text(ranks: list[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def _addresses() -> list[str]:
    """Where other ranks may reach this one, the likeliest first."""
    found = [os.environ.get("MASTER_ADDR", "")]
    try:
        found.append(socket.gethostbyname(socket.gethostname()))
    except OSError:
        pass
    return [a for a in dict.fromkeys([*found, socket.gethostname(), "127.0.0.1"]) if a]


def _seconds(s: float) -> datetime.timedelta:
    return datetime.timedelta(seconds=s)


class Link:
    """One rank's end. Making it is a collective call of all ranks of torch.distributed.

    One thread uses it, but for the thread it starts itself. Errors of all calls: PeerLost."""

    def __init__(self) -> None:
        self.rank, self.size = td.get_rank(), td.get_world_size()
        self._server: Any = None
        self._lines: _line.Server | None = None  # rank 0's
        self._line: _line.Client | None = None  # the others'
        told = [self._serve() if self.rank == 0 else None]
        try:
            td.broadcast_object_list(told, src=0)
        except RuntimeError as e:
            raise errors.PeerLost(f"rank {self.rank}: ranks could not meet for a Checkpointer: {e}") from e
        failed, addresses, port, line, self.start = told[0] or ("rank 0 said nothing", [], 0, 0, "")
        if failed:
            raise errors.PeerLost(f"rank 0 could not serve a store to the other ranks: {failed}")
        self._store = self._connect(addresses, port, line)
        # By rank: newest sign of life, since when it was seen, when it was looked for.
        self._seen: dict[int, tuple[str, float, float]] = {}
        self._lost = ""
        self._gone: dict[int, str] = {}  # ranks that somebody was told of: nobody waits for them again
        # Of the two below: a step is before the answer to a notice, or after it.
        self._lock = threading.Lock()
        self._step = 0
        self._answered = False
        self._stop = 0
        self._closing, self._known = threading.Event(), threading.Event()
        self._beats = 0
        self._beat()
        self._thread = threading.Thread(target=self._answer, name="pawl link", daemon=True)
        self._thread.start()

    def _serve(self) -> tuple[str, list[str], int, int, str]:
        """(why it failed or "", addresses, port, that of lines or 0, name of this start): an error here must
        not leave others waiting."""
        name = uuid.uuid4().hex
        try:
            self._server = _store.open_store("0.0.0.0", 0, True, _seconds(PATIENCE_S))
            self._server.set("start", name)
        except RuntimeError as e:
            return str(e), [], 0, 0, ""
        try:
            self._lines = _line.Server(name, self.size)
        except OSError:  # signs of life must do
            return "", _addresses(), self._server.port, 0, name
        return "", _addresses(), self._server.port, self._lines.port, name

    def _connect(self, addresses: list[str], port: int, line: int) -> Any:
        if self._server is not None:
            return self._server
        why = ""
        for address in addresses:
            refused = _store.refusal(address, port, CONNECT_S)
            if refused:
                why += f"; {address}: {refused}"
                continue
            try:
                store = _store.open_store(address, port, False, _seconds(CONNECT_S))
                bounded = _store.Bounded(store, max(1, round(LOST_S / BEAT_S)), BEAT_S)
                if bounded.check(["start"]) and bounded.get("start").decode() == self.start:
                    store.set_timeout(_seconds(PATIENCE_S))
                    with contextlib.suppress(OSError):  # signs of life must do
                        self._line = _line.Client(address, line, self.start, self.rank) if line else None
                    if self._line is not None:
                        bounded.gone = self._line.gone
                    return bounded
                bounded.close()
                why += f"; {address}: another program answers"
            except RuntimeError as e:
                why += f"; {address}: {str(e).splitlines()[0]}"
        raise errors.PeerLost(f"rank {self.rank} does not reach the store of rank 0 at port {port}{why}. "
                              "Where rank 0 lives, set MASTER_ADDR on it to an address that all ranks reach")

    # ---- The thread ----

    def _beat(self) -> None:
        self._beats += 1
        self._store.set(f"beat/{self.rank}", f"{self._beats} {self._step}")

    def _answer(self) -> None:
        """Signs of life; the answer to a notice to stop: the step that this rank is in."""
        beat = time.monotonic()
        try:
            while not self._closing.wait(LOOK_S):
                self._note_ended()
                if self._look():
                    return self._known.set()
                if time.monotonic() - beat >= BEAT_S:
                    self._beat()
                    beat = time.monotonic()
                if not self._answered and self._store.check(["stop"]):
                    with self._lock:
                        self._answered = True
                        self._store.set(f"stop/{self.rank}", str(self._step))
                if self._answered and not self._stop:
                    self._settle()
        except RuntimeError as e:
            self._note_lost(e)
            self._known.set()

    def _note_ended(self) -> None:
        """Rank 0 tells the others whose process has ended without having closed."""
        for rank in self._lines.ended() if self._lines is not None else ():
            if not self._store.check([f"done/{rank}"]):
                self._store.set(f"ended/{rank}", "1")

    def _look(self) -> str:
        """Why rank 0 is lost: before its store is asked, which says so in many words of its own."""
        if not self._lost and self._line is not None:
            self._lost = self._line.gone()
        return self._lost

    def _note_lost(self, error: RuntimeError) -> None:
        """The store has failed. Where rank 0 has ended, its line ends with it, in whichever order."""
        end = time.monotonic() + (SAME_TIME_S if self._line is not None else 0.0)
        while not self._look() and time.monotonic() < end:
            time.sleep(POLL_S_MIN)
        self._lost = self._lost or str(error).splitlines()[0]

    def _settle(self) -> None:
        keys = [f"stop/{r}" for r in range(self.size)]
        if self._store.check(keys):
            self._stop = 1 + max(int(self._store.get(key)) for key in keys)
            self._known.set()

    # ---- When to stop ----

    def notice(self) -> None:
        """All ranks are to stop."""
        self.set("stop", str(self.rank))

    def stop_step(self, step: int, mine: bool) -> int:
        """Called when `step` is done: the step at whose end all ranks stop, 0: nobody was told to. The same
        number on all ranks, larger than the step of any of them at the time: none has passed it, none waits
        for another's step."""
        with self._lock:
            self._step = step
            answered = self._answered
        if self._stop:
            return self._stop  # also when rank 0 has left by now
        self.check()
        if mine:
            self.notice()
        if mine or answered:
            waiting = [r for r in range(self.size) if r != self.rank]
            while not self._known.wait(BEAT_S):
                self.refuse_gone([r for r in waiting if not self.has(f"stop/{r}")], "answered the notice "
                                                                                    "to stop")
            if not self._stop:
                self.check()
        return self._stop

    # ---- Texts ----

    def check(self) -> None:
        """PeerLost: the store is gone."""
        if self._look():
            or_closed = "" if self._line and self._line.gone() else ", or that has closed its Checkpointer"
            raise errors.PeerLost(f"rank {self.rank} has lost rank 0{or_closed}: {self._lost}")

    def is_left(self) -> bool:
        """Rank 0 has closed its Checkpointer, and said so."""
        return self._line is not None and self._line.gone().startswith("it has closed")

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        self.check()
        try:
            return function(*arguments)
        except RuntimeError as e:
            self._note_lost(e)
        self.check()  # not in the handler: the text of the store's error would come first, frames and all

    def set(self, key: str, value: str) -> None:
        self._call(self._store.set, key, value)

    def get(self, key: str) -> str:
        """A text that is there: see expect()."""
        return bytes(self._call(self._store.get, key)).decode()

    def has(self, key: str) -> bool:
        return bool(self._call(self._store.check, [key]))

    def drop(self, key: str) -> None:
        self._call(self._store.delete_key, key)

    def count(self, key: str) -> int:
        return int(self._call(self._store.add, key, 1))

    def first(self, key: str, value: str) -> str:
        """What the first caller of all has put there."""
        return bytes(self._call(self._store.compare_set, key, "", value)).decode()

    # ---- Waiting ----

    def expect(self, keys: dict[int, str], what: str, patience_s: float = PATIENCE_S) -> list[int]:
        """Waits for each rank's key: ranks that have not set it in time. PeerLost: one of them is gone."""
        end, looked, pause = time.monotonic() + patience_s, time.monotonic(), POLL_S_MIN
        while not self._call(self._store.check, list(keys.values())):
            missing = [r for r, key in keys.items() if not self.has(key)]
            if time.monotonic() >= end:
                return missing
            if time.monotonic() - looked >= BEAT_S:
                self.refuse_gone(missing, what, keys)
                looked = time.monotonic()
            time.sleep(pause)
            pause = min(2 * pause, POLL_S_MAX)
        return []

    def refuse_gone(self, ranks: list[int], what: str, keys: dict[int, str] | None = None) -> None:
        gone = [(r, why) for r in ranks if (why := self.gone(r)) and not (keys and self.has(keys[r]))]
        if gone:
            self._gone.update(gone)
            raise errors.PeerLost(f"rank {self.rank} waited for {ranks_text([r for r, _ in gone])} of "
                                  f"{self.size} to have "
                                  f"{what}: {gone[0][1]}")

    def gone(self, rank: int) -> str:
        """Why a rank will say no more, "" while it lives."""
        if rank == self.rank:
            return ""
        if rank in self._gone:
            return self._gone[rank]
        if self.has(f"done/{rank}"):
            return "it has closed its Checkpointer"
        if self.has(f"ended/{rank}"):
            return "its process has ended"
        sign = self.get(f"beat/{rank}") if self.has(f"beat/{rank}") else ""
        now = time.monotonic()
        before, since, looked = self._seen.get(rank, ("", now, now))
        if sign != before or now - looked > LOST_S / 2:  # this process did not look: it may have been stopped
            since = now
        self._seen[rank] = sign, since, now
        return f"it has given no sign of life for {now - since:.0f} s" if now - since >= LOST_S else ""

    def need(self, keys: dict[int, str], what: str) -> None:
        """Waits for each rank's key. PeerLost: one did not come."""
        missing = self.expect(keys, what)
        if missing:
            raise errors.PeerLost(f"rank {self.rank} waited {PATIENCE_S:g} s for {ranks_text(missing)} of "
                                  f"{self.size} "
                                  f"to have {what}: they live, and did not come. All ranks make the same "
                                  "calls")

    def exchange(self, name: str, mine: str, what: str) -> list[str]:
        """The texts of all ranks, in their order, once for each name. PeerLost: one did not come."""
        self.set(f"{name}/{self.rank}", mine)
        keys = {r: f"{name}/{r}" for r in range(self.size)}
        self.need(keys, what)
        return [self.get(keys[r]) for r in range(self.size)]

    # ---- The end ----

    def part(self, name: str) -> None:
        """Before an error that every rank raises: rank 0 may end the program with it, and serves until all
        know why."""
        try:
            self.set(f"heard/{name}/{self.rank}", "1")
            if self.rank == 0:
                self.expect({r: f"heard/{name}/{r}" for r in range(self.size)}, "heard of an error", PART_S)
        except errors.PeerLost:
            pass

    def leave(self, linger_s: float) -> None:
        """The last call. Rank 0 serves the others until they have left too, are gone, or for `linger_s`
        seconds none of them has made a step. Never an error: nobody is waited for any more."""
        self._closing.set()
        self._thread.join()
        try:
            if not self._answered and not self._lost:
                self._store.set(f"stop/{self.rank}", str(self._step))
            if not self._lost:
                self._store.set(f"done/{self.rank}", "1")
                self._store.check([f"done/{self.rank}"])  # it is there before the line ends
            if self.rank == 0 and linger_s > 0:
                self._linger(linger_s)
        except (RuntimeError, errors.PeerLost):
            pass
        if isinstance(self._store, _store.Bounded):
            self._store.close()
        for line in (self._lines, self._line):
            if line is not None:
                line.close()
        self._lost = self._lost or "this rank has closed it"
        self._store = self._server = None

    def _linger(self, patience_s: float) -> None:
        others, steps, since = list(range(1, self.size)), "", time.monotonic()
        while time.monotonic() - since < patience_s:
            self._note_ended()
            others = [r for r in others if not self.gone(r)]
            if not others:
                return
            now = " ".join(self._seen[r][0].rpartition(" ")[2] for r in others)
            if now != steps:
                steps, since = now, time.monotonic()
            time.sleep(POLL_S_MAX)
