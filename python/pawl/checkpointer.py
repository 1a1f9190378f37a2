"""Checkpointer: the state of a PyTorch training, saved while it goes on and restored exactly.

    ckpt = pawl.Checkpointer("runs/a", model=model, optimizer=opt, sampler=sampler)
    for step in range(ckpt.resume(), steps):
        ...; opt.step(); ckpt.step()

Promises: a step that resume() returns is whole, and everything given is as it was after that step. What only
opt.step() changes is copied by threads of the library after save() has returned, until a hook before the next
opt.step() waits for them; all else is copied in save(). Nothing is loaded when anything differs in name, shape
or type. One thread uses a Checkpointer. Failures: pawl.errors. Contract in prose: docs/pytorch.md.
Tested in tests/python/{checkpointer,exact}_test.py."""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import json
import math
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from . import _group, _native, _shard, _torch, _tree, errors

LOOK_S = 1.0  # wait() looks so often whether the ranks that it waits for live


class Checkpointer:
    """Saves and restores `objects`: modules, optimizers, anything with state_dict and load_state_dict, and
    dicts or lists of plain values (filled in place).

    every: steps between saves, or "auto": as often as `overhead` (share of the time) allows, towards the
    optimum for `mtbf` seconds between failures. keep: durable steps kept. in_flight: saves under way at once;
    when there are so many, on_full "wait" or "skip". tolerate: failed saves in a row that are only told by
    status(). grace: seconds that a save after one of `signals` may take. rng: the generators of torch, numpy
    and Python too. debug: hashes find tensors that were changed before they were captured (slow).
    from_scratch: step 0 although steps are stored.

    Errors: Busy (another process writes there), Foreign, Corrupt, NoSpace, Argument, Unsupported."""

    def __init__(self, path: str | os.PathLike[str], *, every: int | str = "auto", overhead: float = 0.03,
                 keep: int = 1, in_flight: int = 2, mtbf: float | None = None, on_full: str = "wait",
                 tolerate: int = 0, grace: float = 30.0, signals: Sequence[int] = (signal.SIGTERM,),
                 rng: bool = True, debug: bool = False, from_scratch: bool = False,
                 **objects: Any) -> None:
        self._path, self._objects = os.fspath(path), objects
        self._states: list[_torch.State] = []
        failed: errors.Error | None = None
        try:
            _check_options(every, on_full, objects)
            self._states = _torch.states(objects)
        except errors.Error as e:
            failed = e
        self._group = _group.find("auto")  # collective: an error above must not leave others waiting for this rank
        for state in self._states:
            if not isinstance(state, _torch.OptimizerState):
                state.own = self._group.size > 1
        self._fixed = every != "auto"
        self._rng, self._debug, self._grace, self._from_scratch = rng, debug, grace, from_scratch
        self._pid, self._closed, self._resumed = os.getpid(), False, False
        self._step = self._saved = self._last_id = 0
        self._signature: tuple[Any, ...] = ()
        self._handle = 0
        self._held: list[torch.Tensor] = []
        self._hashes: list[tuple[str, torch.Tensor, bytes]] = []
        self._notice: int | None = None
        shared = {"every": every, "overhead": overhead, "keep": keep, "in_flight": in_flight, "mtbf": mtbf,
                  "on_full": on_full, "tolerate": tolerate, "rng": rng, "from_scratch": from_scratch}
        try:
            self._group.agree_begin(os.path.realpath(self._path), shared,
                                    lambda: _torch.names(self._states), failed)
            self._ckpt = self._open(every, overhead=overhead, mtbf_s=mtbf or 0.0, in_flight=in_flight, keep=keep,
                                    full="block" if on_full == "wait" else "skip", tolerate=tolerate)
        except BaseException:
            self._group.leave(None)
            raise
        self._hooks = [self._hook(s.optimizer) for s in self._states if isinstance(s, _torch.OptimizerState)]
        self._handlers: dict[int, Any] = {}
        self._catch(signals)
        self._exit = _at_exit(self)

    # ---- Before and after ----

    def _open(self, every: int | str, **options: Any) -> _native.Ckpt:
        """Opens the run's folder, on all ranks or on none."""
        ckpt, failed = None, None
        for first in (True, False):  # rank 0, then the others
            if first == (self._group.rank == 0):
                try:
                    ckpt = _native.Ckpt(self._path, rank=self._group.rank, rank_count=self._group.size,
                                        start=self._group.start, every=0 if every == "auto" else int(every), **options)
                except errors.Error as e:
                    failed = e
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

    def _hook(self, optimizer: torch.optim.Optimizer) -> Any:
        """Fence before each optimizer.step(); what it returns undoes that."""
        me = weakref.ref(self)

        def fence(*_: Any) -> None:
            ckpt = me()
            if ckpt is not None and not ckpt._closed:
                ckpt.fence()

        if hasattr(optimizer, "register_step_pre_hook"):
            return optimizer.register_step_pre_hook(fence)
        return _Wrapped(optimizer, fence)  # PyTorch 1

    def _catch(self, signals: Sequence[int]) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # only the main thread may set handlers
        me = weakref.ref(self)

        def notice(number: int, frame: Any) -> None:
            ckpt = me()
            if ckpt is None:
                return
            previous = ckpt._handlers.get(number)
            if os.getpid() != ckpt._pid:  # a forked worker: as if there were no Checkpointer
                signal.signal(number, signal.SIG_DFL if previous is None else previous)
                os.kill(os.getpid(), number)
                return
            ckpt._notice = number
            if callable(previous):
                previous(number, frame)

        for number in signals:
            self._handlers[number] = signal.signal(number, notice)

    def _check(self) -> None:
        if os.getpid() != self._pid:
            raise errors.Argument(f"this Checkpointer of {self._path} belongs to process {self._pid}, this is its "
                                  f"child {os.getpid()}: make one after the fork, or save in the parent only")
        if self._closed:
            raise errors.Argument(f"the Checkpointer of {self._path} is closed")

    def __enter__(self) -> Checkpointer:
        return self

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        if self._closed or os.getpid() != self._pid:
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
        raised; Timeout after `timeout` seconds. A second call does nothing."""
        self._close(timeout, timeout)

    def _close(self, timeout: float | None, linger_s: float | None) -> None:
        if self._closed:
            return
        self._check()
        self._closed = True
        atexit.unregister(self._exit)
        for hook in self._hooks:
            hook.remove()
        if threading.current_thread() is threading.main_thread():
            for number, previous in self._handlers.items():
                signal.signal(number, signal.SIG_DFL if previous is None else previous)
        try:
            self._ckpt.close(timeout)
        finally:
            self._held.clear()
            self._group.leave(linger_s)

    # ---- Saving ----

    def step(self, step: int | None = None) -> bool:
        """Call after opt.step(): counts (or is told) the steps done, saves when it is time. True: a save has
        begun. Raises what earlier saves failed with, see `tolerate`, and Preempted after a signal."""
        self._check()
        following = self._step + 1 if step is None else step
        if following <= self._step:
            raise errors.Argument(f"step({step}): {self._step} steps are already done, numbers of steps only grow")
        self._step = following
        for thing in self._objects.values():
            if hasattr(thing, "pawl_step"):
                thing.pawl_step()
        if self._group.agree_stop(self._step, self._notice is not None):
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
        self._group.agree_save(self._step)  # also where it was saved: a rank that skipped it then has not saved it
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
        entries, blob = self._collect()
        tensors, held = self._native(entries)
        signature = tuple(t._replace(address=0) for t in tensors)
        self._group.agree_state(self._step, entries)
        if signature != self._signature:
            self._handle, self._signature = self._ckpt.declare(tensors), signature
        if self._debug:
            self._hashes = [(e.name, e.tensor, _digest(e.tensor)) for e in entries if e.late]
        saved = self._ckpt.save(self._handle, self._step, unit=self._group.rank, unit_count=self._group.size,
                                blob=blob, addresses=[t.address for t in tensors])
        if not saved:
            self._hashes = []
            return False
        self._held, self._saved, self._last_id = held, self._step, saved
        if not self._hooks:
            self.fence()
        return True

    def _collect(self) -> tuple[list[_torch.Entry], bytes]:
        entries: list[_torch.Entry] = []
        objects = {}
        for state in self._states:
            some, body = state.collect()
            entries += some
            objects[state.key] = {"kind": state.kind, **body}
        return entries, _tree.blob(self._step, objects, rank=self._group.rank, world=self._group.size,
                                   torch=str(torch.__version__), rng=_torch.rng_get() if self._rng else None)

    def _native(self, entries: list[_torch.Entry]) -> tuple[list[_native.Tensor], list[torch.Tensor]]:
        """As the library takes them, and the memory that has to stay until it was captured."""
        tensors, held = [], []
        for entry in entries:
            kind = _torch.dtype_name(entry.tensor, entry.name)
            share = self._group.rank, self._group.size
            if not entry.late and not hasattr(entry.tensor, "placements"):
                if share[0] > 0:
                    continue  # buffers may differ between ranks: rank 0's count, as for DistributedDataParallel
                share = 0, 1
            for piece in _shard.mine(entry.name, entry.tensor, *share):
                source = _still(piece.view, entry.late)
                held.append(source)
                shape = tuple(entry.tensor.shape)
                box = (None, None) if piece.extent == shape else (piece.begin, piece.extent)
                tensors.append(_native.Tensor(name=entry.name, dtype=kind, shape=shape, begin=box[0], extent=box[1],
                                              address=source.data_ptr()))
        return tensors, held

    def fence(self) -> None:
        """Wait until everything that is being saved may be changed; a hook calls it before opt.step().
        Diverged (debug): a tensor was changed before, by name."""
        self._check()
        self._ckpt.fence(None)
        self._held = []
        hashes, self._hashes = self._hashes, []
        changed = [name for name, tensor, before in hashes if _digest(tensor) != before]
        if changed:
            raise errors.Diverged(
                f"changed after save() of step {self._saved} and before the fence: {', '.join(changed)}. The step "
                "may hold a mixture. Call fence() before anything but opt.step() changes parameters")

    def wait(self, timeout: float | None = None) -> None:
        """Until the newest save is durable. Timeout, what it failed with, or PeerLost: a rank that is gone."""
        self._check()
        end = math.inf if timeout is None else time.monotonic() + timeout
        while self._last_id:
            try:
                self._ckpt.wait(self._last_id, "durable", min(LOOK_S, max(0.0, end - time.monotonic())))
                return
            except errors.Timeout:
                if time.monotonic() >= end:
                    raise
            self._group.refuse_gone(self._saved)

    def status(self) -> dict[str, Any]:
        """Of the library, by the names of struct pawl_ckpt_status, and `step`. From any thread."""
        status: Any = self._ckpt.status()
        return {**(status if isinstance(status, dict) else status._asdict()), "step": self._step}

    # ---- Resuming ----

    def steps(self, total: int) -> Iterator[int]:
        """for step in ckpt.steps(total): resumes, and calls step() after each body; saves the last step."""
        for number in range(self.resume(), total):
            yield number
            self.step(number + 1)
        if self._step >= 1:
            self.save()

    def resume(self) -> int:
        """Restore the newest durable step: the number of steps done, 0 when nothing is stored. Once, before
        the first step(). StateMismatch: all differences, and nothing was loaded. Corrupt, Io, Foreign."""
        self._check()
        if self._resumed or self._step:
            raise errors.Argument("resume() comes once, before the first step()")
        blob: dict[str, Any] = {"step": 0}
        fresh, failed = None, None
        try:
            if self._from_scratch:
                self._ckpt.from_scratch()
            elif stored := self._stored():
                blob, tensors = stored
                self._compare(blob, tensors)
                fresh = self._read(blob, tensors)
        except Exception as e:
            failed = e
        self._group.agree_resume(int(blob["step"]), failed)
        if fresh is not None:
            self._put(blob, fresh)
        self._step = self._saved = int(blob["step"])
        self._resumed = True
        return self._step

    def _stored(self) -> tuple[dict[str, Any], dict[str, _native.Tensor]] | None:
        with _native.Reader(self._path) as reader:
            index, agreed = reader.newest(), self._ckpt.stored_step()
            if agreed:  # ranks have agreed on it; what is newest may be seen differently by each
                index = next((i for i, s in enumerate(reader.steps()) if s.step == agreed and s.complete), index)
            if index is None:
                if reader.steps():
                    raise errors.Corrupt(f"{self._path}: steps are stored, and none is whole and good: see "
                                         f"`pawl ckpt ls {self._path}`; from_scratch=True begins anew")
                return None
            unit = self._group.rank if self._group.rank < reader.steps()[index].unit_count else 0
            return self._parse(reader.blob(index, unit)), {t.name: t for t in reader.tensors(index)}

    def _parse(self, blob: bytes) -> dict[str, Any]:
        try:
            out = json.loads(blob)
        except ValueError as e:
            raise errors.Format(f"{self._path}: not written by pawl.Checkpointer ({e})") from e
        if not isinstance(out, dict) or out.get("format") != _tree.FORMAT or not isinstance(out.get("objects"), dict):
            raise errors.Format(f"{self._path}: not written by pawl.Checkpointer")
        if out.get("version") != _tree.VERSION:
            raise errors.Format(f"{self._path}: written in version {out.get('version')} of the format, this pawl "
                                f"reads {_tree.VERSION}")
        return out

    def _compare(self, blob: dict[str, Any], tensors: dict[str, _native.Tensor]) -> None:
        """StateMismatch with every difference between what is stored and what is here."""
        here = {s.key: s for s in self._states}
        stored = blob["objects"]
        out = [f"{k}: stored as {stored[k].get('kind')}, and not given" for k in stored if k not in here]
        out += [f"{k}: given, and not stored" for k in here if k not in stored]
        for key, state in here.items():
            if key not in stored:
                continue
            if stored[key].get("kind") != state.kind:
                out.append(f"{key}: stored as {stored[key].get('kind')}, given as {state.kind}")
            elif isinstance(state, _torch.ModuleState):
                out += _module_differences(state, stored[key], tensors)
            elif isinstance(state, _torch.OptimizerState):
                out += state.differences(stored[key])
        if out:
            raise errors.StateMismatch(f"{self._path}, step {blob.get('step')}, does not fit; nothing was loaded:\n  "
                                       + "\n  ".join(out))

    def _like(self, stored: dict[str, _native.Tensor]) -> dict[str, torch.Tensor]:
        """Tensors that are here, by the stored names of what has to be cut as they are."""
        out: dict[str, torch.Tensor] = {}
        for state in self._states:
            if isinstance(state, _torch.ModuleState):
                out.update({e.name: e.tensor for e in state.collect()[0]})
            elif isinstance(state, _torch.OptimizerState):
                named = [(n, p) for ns, g in zip(state.names(), state.optimizer.param_groups)
                         for n, p in zip(ns, g["params"]) if hasattr(p, "placements")]
                out.update(_likes(named, state.key, stored))
        return out

    def _read(self, blob: dict[str, Any], stored: dict[str, _native.Tensor]) -> dict[str, torch.Tensor]:
        """All stored tensors, into fresh memory: a read that fails has changed nothing."""
        like = self._like(stored)
        placed = _tree.placed(blob["objects"])
        fresh = {t.name: _shard.fresh(t.name, tuple(t.shape), _torch.TORCH_OF[t.dtype], like.get(t.name),
                                      t.name in placed) for t in stored.values()}
        wanted = []
        for t in stored.values():
            piece = _shard.whole(t.name, fresh[t.name])
            if piece is not None:
                box = (None, None) if piece.extent == tuple(t.shape) else (piece.begin, piece.extent)
                wanted.append(t._replace(begin=box[0], extent=box[1], address=piece.view.data_ptr()))
        step = self._ckpt.resume(self._ckpt.declare(wanted))
        if step != blob["step"]:
            raise errors.Corrupt(f"{self._path}: step {blob['step']} is damaged, {step} is the newest that is good: "
                                 "start again to resume from it")
        return fresh

    def _put(self, blob: dict[str, Any], fresh: dict[str, torch.Tensor]) -> None:
        """Everything that was read in its place."""
        try:
            with torch.no_grad():
                for state in self._states:
                    body = blob["objects"][state.key]
                    if isinstance(state, _torch.ModuleState):
                        _fill(state, body, fresh)
                    state.restore(body, fresh)
            if self._rng and blob["rng"] is not None:
                _torch.rng_set(blob["rng"])
                if blob["rank"] != self._group.rank:
                    _torch.rng_derive(self._group.rank, blob["rng"])
        except (KeyError, TypeError, ValueError) as e:
            raise errors.Format(f"{self._path}: the stored state of step {blob['step']} is malformed: {e!r}") from e


def _check_options(every: int | str, on_full: str, objects: dict[str, Any]) -> None:
    if every != "auto" and (not isinstance(every, int) or every < 1):
        raise errors.Argument(f"every is {every!r}: wanted a number of steps, 1 or more, or 'auto'")
    if on_full not in ("wait", "skip"):
        raise errors.Argument(f"on_full is {on_full!r}: wanted 'wait' or 'skip'")
    if not objects:
        raise errors.Argument("nothing to save: give model=, optimizer=, ...")


def _likes(parameters: list[tuple[str, torch.Tensor]], key: str, stored: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Optimizer state by its stored name: the parameter whose cut it shares."""
    out = {}
    for name, parameter in parameters:
        prefix = f"{key}/{name}/"
        out.update({full: parameter for full in stored if full.startswith(prefix)})
    return out


def _module_differences(state: _torch.ModuleState, body: dict[str, Any],
                        stored: dict[str, _native.Tensor]) -> list[str]:
    out = []
    entries, mine = state.collect()
    aliases: dict[str, str] = body["aliases"]
    prefix = f"{state.key}/"
    extra = tuple(prefix + name for name in body["extra"])
    names = {n for n in stored if n.startswith(prefix) and not n.startswith(extra)} | set(aliases)
    here = {e.name: e.tensor for e in entries if not e.name.startswith(tuple(prefix + n for n in mine["extra"]))}
    here.update({alias: here[first] for alias, first in mine["aliases"].items()})
    for name in sorted(names | set(here)):
        if name not in here:
            out.append(f"{name}: stored, and not here")
        elif name not in names:
            out.append(f"{name}: here with shape {tuple(here[name].shape)}, and not stored")
        else:
            was, now = stored[aliases.get(name, name)], here[name]
            kind = _torch.dtype_name(now, name)
            if (was.dtype, tuple(was.shape)) != (kind, tuple(now.shape)):
                out.append(f"{name}: stored {was.dtype} {tuple(was.shape)}, here {kind} {tuple(now.shape)}")
    for name, first in mine["aliases"].items():
        if name in names and aliases.get(name, name) != aliases.get(first, first):
            out.append(f"{name}: stored apart from {first}, here they are one tensor")
    out += [f"{prefix}{n}: stored, and not here" for n in body["extra"] if n not in mine["extra"]]
    return out


def _fill(state: _torch.ModuleState, body: dict[str, Any], fresh: dict[str, torch.Tensor]) -> None:
    for name, value in state.module.state_dict(keep_vars=True).items():
        full = f"{state.key}/{name}"
        source = fresh.get(body["aliases"].get(full, full))
        if name not in body["extra"] and source is not None:
            value.copy_(source)


def _still(view: torch.Tensor, late: bool) -> torch.Tensor:
    """Dense memory of the processor with what is in `view` now: a copy, unless it may be captured `late`."""
    if view.device.type != "cpu" or not view.is_contiguous():
        view = view.to("cpu", copy=True).contiguous()
    elif not late:
        view = view.clone()
    return view.resolve_conj().resolve_neg()


def _digest(tensor: torch.Tensor) -> bytes:
    source = _shard.local(tensor).detach().cpu().contiguous()
    size = source.numel() * source.element_size()
    data = (ctypes.c_char * size).from_address(source.data_ptr()) if size else b""
    return hashlib.blake2b(data, digest_size=16).digest()


class _Wrapped:
    """A hook before step() of optimizers that have none."""

    def __init__(self, optimizer: Any, before: Any) -> None:
        self._optimizer, step = optimizer, optimizer.step

        def fenced(*args: Any, **kwargs: Any) -> Any:
            before()
            return step(*args, **kwargs)

        optimizer.step = fenced

    def remove(self) -> None:
        del self._optimizer.step


def _at_exit(ckpt: Checkpointer) -> Any:
    """Close what the program left open when the interpreter ends, and say what failed."""
    def finish() -> None:
        if ckpt._closed or os.getpid() != ckpt._pid:
            return
        try:
            failing = getattr(sys, "last_value", None) is not None  # the program ends with an exception
            ckpt._close(ckpt._grace, 0.0 if failing else ckpt._grace)
        except errors.Error as e:
            print(f"pawl: {ckpt._path}: at exit: {type(e).__name__}: {e}", file=sys.stderr)

    atexit.register(finish)
    return finish
