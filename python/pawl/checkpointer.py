"""Checkpointer: the state of a PyTorch training, saved while it goes on and restored exactly.

    ckpt = pawl.Checkpointer("runs/a", model=model, optimizer=opt, sampler=sampler)
    for step in range(ckpt.resume(), steps):
        ...; opt.step(); ckpt.step()

Promises: a step that resume() returns is whole, and everything given is as it was after that step. What only
opt.step() changes is copied by threads of the library after save() has returned, until a hook before the next
opt.step() waits for them; all else is copied in save(). Nothing is loaded when anything differs in name,
shape or type; a damaged step is passed over for an older one. One thread uses a Checkpointer. Failures:
pawl.errors. Contract in prose: docs/pytorch.md. One that nothing refers to is closed: _lifetime.
Tested in tests/python/{checkpointer,exact}_test.py."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import math
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from . import _gather, _group, _lifetime, _memory, _native, _options, _restore, _shard, _torch, errors

_LOOK_S = 1.0  # wait() looks so often whether the ranks that it waits for live
_STAGING_USUAL = 64 << 20  # the library's default, which is taken at the start


class Checkpointer:
    """Saves and restores `objects`: modules, optimizers, anything with state_dict and load_state_dict, and
    dicts or lists of plain values (filled in place).

    every: steps between saves, or "auto": as often as `overhead` (share of the time) allows, towards the
    optimum for `mtbf` seconds between failures. keep: durable steps kept. in_flight: saves under way at once;
    when there are so many, on_full "wait" or "skip". staging: bytes of memory for copies, at most; None: what
    the state needs, at most a quarter of the memory available. tolerate: failed saves in a row only told by
    status(). grace: seconds that a save after one of `signals` may take. rng: the generators of torch, numpy
    and Python too. debug: hashes find tensors that were changed before they were captured (slow).
    from_scratch: step 0 although steps are stored.

    Errors: Busy (another process writes there, or this one has it open), Foreign, Corrupt, NoSpace, Io,
    Argument (an option, by name), Unsupported (Unsaveable: a value in a dict or list, by its path)."""

    def __init__(self, path: str | os.PathLike[str], *, every: int | str = "auto", overhead: float = 0.03,
                 keep: int = 1, in_flight: int = 2, mtbf: float | None = None, on_full: str = "wait",
                 staging: int | None = None, tolerate: int = 0, grace: float = 30.0,
                 signals: Sequence[int] = (signal.SIGTERM,),
                 rng: bool = True, debug: bool = False, from_scratch: bool = False,
                 **objects: Any) -> None:
        given = {"every": every, "overhead": overhead, "keep": keep, "in_flight": in_flight, "mtbf": mtbf,
                 "on_full": on_full, "staging": staging, "tolerate": tolerate, "grace": grace,
                 "signals": signals, "rng": rng, "debug": debug, "from_scratch": from_scratch}
        self._path, self._objects = "", objects
        self._states: list[_torch.State] = []
        options: _options.Options | None = None
        failed: errors.Error | None = None
        try:
            self._path, options = _options.path_of(path), _options.checked(given)
            if not objects:
                raise errors.Argument("nothing to save: give model=, optimizer=, ...")
            self._states = _torch.states(objects)
            _lifetime.is_open(self._path)  # an earlier one that nothing refers to goes now, on every rank
        except errors.Error as e:
            failed = e
        # collective: an error above must not leave others waiting for this rank
        self._group = _group.find("auto")
        self._parts = _lifetime.Parts(self._path, self._group)
        try:
            self._group.agree_begin(os.path.realpath(self._path), options.shared() if options else {},
                                    lambda: _torch.names(self._states), failed)
            assert options is not None
            self._start(options)
        except BaseException:
            with contextlib.suppress(errors.Error):
                self._parts.close(None, None)
            raise
        finally:
            failed = None  # its traceback holds this frame

    # ---- Before and after ----

    def _start(self, options: _options.Options) -> None:
        """All that a Checkpointer has, once ranks have agreed. What is open when it fails is in _parts."""
        for state in self._states:
            if not isinstance(state, _torch.OptimizerState):
                state.own = self._group.size > 1
        self._fixed, self._rng, self._debug = options.every != "auto", options.rng, options.debug
        self._grace, self._from_scratch = options.grace, options.from_scratch
        self._pid, self._resumed = os.getpid(), False
        self._step = self._saved = self._last_id = 0
        self._devices = self._parts.devices
        self._gatherer = _gather.Gatherer(self._states, rank=self._group.rank, world=self._group.size,
                                          rng=options.rng, memory_of=self._devices.memory)
        self._handle = 0
        self._declared: list[_native.Tensor] | None = None
        self._hashes: list[tuple[str, torch.Tensor, bytes]] = []
        staging_bytes, staging_max_bytes = _staging(options.staging, self._group.size)
        self._ckpt = self._parts.ckpt = self._open(
            options.every, overhead=options.overhead, mtbf_s=options.mtbf or 0.0,
            in_flight=options.in_flight, keep=options.keep,
            full="block" if options.on_full == "wait" else "skip", tolerate=options.tolerate,
            staging_bytes=staging_bytes, staging_max_bytes=staging_max_bytes)
        for state in self._states:
            if isinstance(state, _torch.OptimizerState):
                hook = _lifetime.fence_before_step(state.optimizer, self._before_step)
                self._parts.hooks.append(hook)
        self._notices = self._parts.notices = _lifetime.Notices(options.signals)
        self._unfollow = _lifetime.follow(self, self._parts, options.grace)

    def _open(self, every: int | str, **options: Any) -> _native.Ckpt:
        """Opens the run's folder, on all ranks or on none."""
        ckpt, failed = None, None
        for first in (True, False):  # rank 0, then the others
            if first == (self._group.rank == 0):
                try:
                    ckpt = _native.Ckpt(self._path, rank=self._group.rank, rank_count=self._group.size,
                                        start=self._group.start, every=0 if every == "auto" else int(every),
                                        **options)
                except errors.Error as e:
                    failed = self._explained(e)
            if first:
                self._group.agree_first(self._path, failed)
        try:
            self._group.agree_opened(self._path, ckpt.status().run_id if ckpt else "", failed)
        except BaseException:
            if ckpt:
                ckpt.close()
            raise
        assert ckpt is not None
        return ckpt

    def _explained(self, error: errors.Error) -> errors.Error:
        """In the words of the program, where it is the program's own doing."""
        if isinstance(error, errors.Busy) and _lifetime.is_open(self._path):
            error = errors.Busy(f"{self._path}: this process has it open: close() the earlier Checkpointer "
                                "(or use `with`)")
            error.next = "REJECT"  # to try again is of no use
        if isinstance(error, errors.NoSpace):
            error.args = (f"{error}. Nothing was opened, and what was saved is whole: make room on that "
                          "device, then make the Checkpointer again",)
        if isinstance(error, errors.Foreign):
            error.args = (f"{error}. Nothing was changed: files of two runs lie in one folder. Give each run "
                          "its own, or put back the files that belong here",)
        return error

    def _before_step(self) -> None:
        if not self._parts.closed and self._is_mine():
            self.fence()

    def _is_mine(self) -> bool:
        """Not so in a child of os.fork(), which has the optimizer with this hook, and nothing to wait for:
        its memory is its own."""
        return os.getpid() == self._pid

    def _check(self) -> None:
        if not self._is_mine():
            raise errors.Argument(f"this Checkpointer of {self._path} belongs to process {self._pid}, this "
                                  f"is its child {os.getpid()}: make one of its own after the fork, in "
                                  "another folder, or save in the parent only")
        if self._parts.closed:
            raise errors.Argument(f"the Checkpointer of {self._path} is closed")

    def __enter__(self) -> Checkpointer:
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        if self._parts.closed or not self._is_mine():
            return
        if kind is None:
            self.close()
            return
        try:
            self._close(self._grace, self._grace if kind is errors.Preempted else 0.0)
        except errors.Error as e:
            print(f"pawl: {self._path}: while the program was failing: {e}", file=sys.stderr)

    def close(self, timeout: float | None = None) -> None:
        """Wait until all saves are durable, give handlers and hooks back. The first failure that no call has
        raised; Timeout after `timeout` seconds. A second call does nothing, nor does one in a child of
        os.fork()."""
        self._close(timeout, timeout)

    def _close(self, timeout: float | None, linger_s: float | None) -> None:
        if self._parts.closed or not self._is_mine():
            return
        self._unfollow()
        try:
            self._parts.close(timeout, linger_s)
        finally:
            self._gatherer.release()

    # ---- Saving ----

    def step(self, step: int | None = None) -> bool:
        """Call after opt.step(): counts (or is told) the steps done, saves when it is time. True: a save has
        begun. Raises what earlier saves failed with, see `tolerate`, and Preempted after a signal."""
        self._check()
        following = self._step + 1 if step is None else _options.steps_of("step", step, 1)
        if following <= self._step:
            raise errors.Argument(f"step({step}): {self._step} steps are already done, numbers of steps "
                                  "only grow")
        self._step = following
        for thing in self._objects.values():
            if hasattr(thing, "pawl_step"):
                thing.pawl_step()
        if self._group.agree_stop(self._step, self._notices.number is not None):
            self._leave()
        if self._group.agree_due(self._step, self._ckpt, self._fixed):
            return self._begin()
        return False

    def _leave(self) -> None:
        """Save this step, wait for it no longer than the grace, end the program."""
        text = f"pawl: {self._path}: told to stop at step {self._step}"
        try:
            deadline = time.monotonic() + self._grace
            if self._saved != self._step:
                self._make_room(self._grace)
                if not self._begin():
                    raise errors.Busy("too many saves wait for other ranks")
            self._ckpt.wait(self._last_id, "durable", max(0.0, deadline - time.monotonic()))
            text += ", which is saved"
        except errors.Error as e:
            text += f"; it was not saved: {e}"
        durable = int(self.status()["durable_step"])
        print(text, file=sys.stderr)
        raise errors.Preempted(text, durable)

    def _make_room(self, timeout: float) -> None:
        """Until no save is under way: the next one neither waits nor is skipped. Timeout."""
        try:
            if self._last_id:
                self._ckpt.wait(self._last_id, "committed", timeout)
        except errors.Timeout:
            raise
        except errors.Error:
            pass  # it has failed, and is under way no more

    def save(self, *, wait: bool = False) -> bool:
        """Begin to save the step that is done, due or not; `wait`: until it is durable. False: it was saved
        already, or skipped (on_full). StateMismatch and Unsupported: something cannot be saved, by name."""
        self._check()
        if self._step < 1:
            raise errors.Argument("nothing to save before the first step()")
        self._group.agree_save(self._step)  # also where it was saved: a rank that skipped it has not saved it
        if self._saved == self._step:
            if wait:
                self.wait()
            return False
        begun = self._begin()
        if begun and wait:
            self.wait()
        return begun

    def _begin(self) -> bool:
        self.fence()
        found = self._gatherer.gather(self._step)
        told = self._debug or self._group.size > 1
        late = [e for e in self._gatherer.entries() if e.late] if told else []
        self._group.agree_state(self._step, [(e.name, e.tensor) for e in late])
        if found.tensors is not self._declared:
            self._handle, self._declared = self._ckpt.declare(found.tensors), found.tensors
        hashes = [(e.name, e.tensor, _digest(e.tensor)) for e in late] if self._debug else []
        self._devices.follow()
        saved = self._ckpt.save(self._handle, self._step, unit=self._group.rank, unit_count=self._group.size,
                                blob=found.blob, addresses=found.addresses)
        if not saved:
            self._gatherer.release()
            return False
        self._hashes, self._saved, self._last_id = hashes, self._step, saved
        self._parts.newest = self._step
        if not self._parts.hooks:
            self.fence()
        return True

    def fence(self) -> None:
        """Wait until everything that is being saved may be changed; a hook calls it before opt.step().
        Diverged (debug): a tensor was changed before, by name."""
        self._check()
        self._ckpt.fence(None)
        self._gatherer.release()
        hashes, self._hashes = self._hashes, []
        changed = [name for name, tensor, before in hashes if _digest(tensor) != before]
        if changed:
            raise errors.Diverged(
                f"changed after save() of step {self._saved} and before the fence: {', '.join(changed)}. The "
                "step may hold a mixture. Call fence() before anything but opt.step() changes parameters")

    def wait(self, timeout: float | None = None) -> None:
        """Until the newest save is durable. Timeout, what it failed with, or PeerLost: a rank that is
        gone."""
        self._check()
        end = math.inf if timeout is None else time.monotonic() + timeout
        while self._last_id:
            try:
                self._ckpt.wait(self._last_id, "durable", min(_LOOK_S, max(0.0, end - time.monotonic())))
                return
            except errors.Timeout:
                if time.monotonic() >= end:
                    raise
            self._group.refuse_gone(self._saved)

    def status(self) -> dict[str, Any]:
        """Of the library, by the names of struct pawl_ckpt_status, and `step`. From any thread."""
        self._check()
        status: Any = self._ckpt.status()
        return {**(status if isinstance(status, dict) else status._asdict()), "step": self._step}

    def events(self) -> list[_native.Event]:
        """What happened since the last call, oldest first: begun, captured, committed, durable, skipped,
        cancelled, failed (id 0: something damaged that resume() passed over), interval. Of more than 1024 the
        oldest are dropped. Failures are raised by step() and save() all the same."""
        self._check()
        return self._ckpt.events()

    # ---- Resuming ----

    def steps(self, total: int) -> Iterator[int]:
        """for step in ckpt.steps(total): resumes, and calls step() after each body; saves the last step. Left
        by `break` it saves nothing more."""
        wanted = _options.steps_of("total", total, 0)
        for number in range(self.resume(), wanted):
            yield number
            if self._step > number:
                raise errors.Argument("step() was called in a loop over steps(), which calls it itself after "
                                      "each body: leave it out of the loop")
            self.step(number + 1)
        if self._step >= 1:
            self.save()

    def resume(self, *, strict: bool = False) -> int:
        """Restore the newest durable step: the number of steps done, 0 when nothing was ever saved. Once,
        before the first step(). A damaged step is marked bad and passed over for the next older one, with the
        warning StepLost; strict: Corrupt instead. StateMismatch: all differences, and nothing was loaded.
        User: an object's own load_state_dict() raised, with what was loaded before. Corrupt: no good step is
        left, the objects are partly overwritten. Io, Foreign; PeerLost: another rank failed."""
        self._check()
        if self._resumed or self._step:
            raise errors.Argument("resume() comes once, before the first step()")
        if self._from_scratch:
            self._ckpt.from_scratch()
        else:
            restore = _restore.Restore(self._path, self._ckpt, self._states, self._group, rng=self._rng)
            self._step = restore.newest(strict)
        self._saved, self._resumed = self._step, True
        return self._step


def _staging(wanted: int | None, ranks: int) -> tuple[int, int]:
    """Memory for copies: what is taken at the start (0: the library's default), and the most."""
    if wanted is None:
        here = os.environ.get("LOCAL_WORLD_SIZE", "")  # of torchrun: the ranks on this machine
        return 0, _memory.for_copies(int(here) if here.isdecimal() else ranks)
    return min(wanted, _STAGING_USUAL), wanted


def _digest(tensor: torch.Tensor) -> bytes:
    source = _shard.local(tensor).detach().cpu().contiguous()
    size = source.numel() * source.element_size()
    data = (ctypes.c_char * size).from_address(source.data_ptr()) if size else b""
    return hashlib.blake2b(data, digest_size=16).digest()
