"""Restoring the newest good step: from stored tensors into the objects that Checkpointer was given.

Promises: what does not fit (names, shapes, types, malformed values) is found before anything is changed, and
listed whole. Then parameters and buffers are read into the memory that they have, everything else into memory
that becomes the objects' own: there is no second copy of the state. Every chunk is verified; where one is
damaged the next older step is read over all of it, on all ranks, and a warning says so. Only where no good
step is left are the objects partly overwritten in the end: the exception says that too. Tested in
tests/python/restore_test.py."""

from __future__ import annotations

import contextlib
import json
from typing import Any, NamedTuple

import torch

from . import _group, _match, _native, _shard, _torch, _tree, _warn, errors

OVERWRITTEN = "The objects given to Checkpointer were partly overwritten: what they hold is of no meaning"
REMEDY = "Give what was saved, by the same names, or from_scratch=True, which replaces what is stored"
NOT_OURS = ("another program saved it. Give another folder; `pawl ckpt info` says what is in this one, "
            "`pawl ckpt export` copies its tensors")
TOLD_PROBLEMS_MAX = 3  # of damaged files, in a warning; `pawl ckpt ls` has all

Stored = dict[str, _native.Tensor]


class _Lost(NamedTuple):
    """A step that was passed over."""

    step: int
    why: str


class _Plan(NamedTuple):
    """What is read of a step, and the tensors (by stored name) that it is read into."""

    blob: dict[str, Any]
    tensors: dict[str, torch.Tensor]
    wanted: list[_native.Tensor]


class Restore:
    """One resume(): `states` of the objects given, of the run at `path` that `ckpt` has opened."""

    def __init__(self, path: str, ckpt: _native.Ckpt, states: list[_torch.State], group: _group.Group, *,
                 rng: bool) -> None:
        self._path, self._ckpt, self._states, self._group, self._rng = path, ckpt, states, group, rng
        self._lost: list[_Lost] = []
        self._overwrote = self._planned = False

    def newest(self, strict: bool) -> int:
        """Restores the newest good step and goes on from there; 0: nothing was ever saved.

        Errors: those of Checkpointer.resume()."""
        try:
            with _native.Reader(self._path, prefer=f"rank-{self._group.rank:04d}") as reader:
                return self._walk(reader, strict)
        except errors.Error as e:
            if self._overwrote and not isinstance(e, errors.User):  # that says itself what was loaded
                e.args = (f"{e}. {OVERWRITTEN}",)
            raise

    # ---- Which step ----

    def _walk(self, reader: _native.Reader, strict: bool) -> int:
        while (step := self._choose(reader)) is not None:
            damage = self._attempt(reader, step)
            if not damage:
                self._tell(step.step, self._ckpt.problems())
                return step.step
            self._lost.append(_Lost(step.step, "; ".join(damage)))
            if strict:
                raise errors.Corrupt(f"{self._path}: step {step.step} is damaged: {self._lost[-1].why}. It "
                                     "is marked bad, the next resume() takes an older one")
            reader.pass_over(_index(reader, step))
        if self._lost:
            raise errors.Corrupt(f"{self._path}: step {self._lost[0].step} is damaged, and no older one is "
                                 f"good: {self._lost[0].why}. from_scratch=True begins anew")
        try:
            self._ckpt.resume_from(0, 0)
        except errors.Corrupt as e:
            raise errors.Corrupt(f"{e}; see `pawl ckpt ls {self._path}`; from_scratch=True begins "
                                 "anew") from e
        return 0

    def _choose(self, reader: _native.Reader) -> _native.Step | None:
        """The newest step that was not passed over: as rank 0 sees it."""
        index = reader.newest()
        step = None if index is None else reader.steps()[index]
        mine = None if step is None else (step.step, step.incarnation)
        agreed = self._group.agree_step(len(self._lost), mine)
        if agreed is None:
            return None
        return next((s for s in reader.steps() if s.complete and (s.step, s.incarnation) == agreed),
                    _native.Step(*agreed, unit_count=0, complete=False, bad=False, bytes=0, missing=""))

    def _attempt(self, reader: _native.Reader, step: _native.Step) -> list[str]:
        """Restores this step, or says what of it is damaged, on any rank."""
        attempt, damage, plan = len(self._lost), "", None
        self._planned = False
        try:
            plan = self._read(reader, step)
        except (errors.Corrupt, errors.Io) as e:
            damage = str(e)
            self._plan_failed(attempt)
            if isinstance(e, errors.Corrupt):  # what could not be read may be readable next time
                with contextlib.suppress(errors.Error):
                    self._ckpt.mark_bad(step.step, step.incarnation, damage)
        except BaseException as e:
            self._plan_failed(attempt)
            self._group.fail_restored(attempt, f"{type(e).__name__}: {e}")
            raise
        all_damage = self._group.agree_restored(attempt, damage)
        if all_damage or plan is None:
            return all_damage
        self._put(plan, step.step)
        self._ckpt.resume_from(step.step, step.incarnation)
        return []

    def _plan_failed(self, attempt: int) -> None:
        """So that no other rank changes anything, where this one has not come to that either."""
        if not self._planned:
            self._group.agree_planned(attempt, False)

    def _tell(self, step: int, problems: list[str]) -> None:
        """Warns of what was passed over."""
        if self._group.rank > 0:
            return
        for lost in self._lost:
            count = lost.step - step
            again = f", {count} step{'s are' if count > 1 else ' is'} computed again" if count > 0 else ""
            _warn.warn(f"{self._path}: step {lost.step} is damaged and was passed over, going on from "
                          f"step {step}{again}: {lost.why}", errors.StepLost)
        if problems:
            more = len(problems) - TOLD_PROBLEMS_MAX
            text = "; ".join(problems[:TOLD_PROBLEMS_MAX]) + (f"; and {more} more" if more > 0 else "")
            _warn.warn(f"{self._path}: stored files are damaged and do not count, going on from step "
                          f"{step}, the newest that does: {text}", errors.StepLost)

    # ---- Reading ----

    def _read(self, reader: _native.Reader, step: _native.Step) -> _Plan | None:
        if not step.complete:
            raise errors.NotFound(f"{self._path}: step {step.step} of start {step.incarnation}, which rank 0 "
                                  "restores, is not complete here: do all ranks see the same folder?")
        index = _index(reader, step)
        unit = self._group.rank if self._group.rank < step.unit_count else 0
        blob = _parse(self._path, reader.blob(index, unit))
        stored = {t.name: t for t in reader.tensors(index)}
        try:
            plan = self._plan(blob, stored)
        except (KeyError, TypeError, ValueError, AttributeError) as e:
            loaded = "" if self._overwrote else ", nothing was loaded"
            raise errors.Format(f"{self._path}: the stored state of step {step.step} is malformed{loaded}: "
                                f"{e!r}") from e
        apart = {n for s in self._modules() for n in _match.apart(s, blob["objects"][s.key], plan.tensors)}
        reader.read(index, [t for t in plan.wanted if t.name in apart])  # into other memory than the objects'
        self._refuse(blob, [d for s in self._modules()
                            for d in _match.torn(s, blob["objects"][s.key], plan.tensors)])
        self._planned = True
        if not self._group.agree_planned(len(self._lost), True):
            return None  # another rank says why in agree_restored()
        self._overwrote = True
        reader.read(index, [t for t in plan.wanted if t.name not in apart])
        return plan

    def _modules(self) -> list[_torch.ModuleState]:
        return [s for s in self._states if isinstance(s, _torch.ModuleState)]

    def _plan(self, blob: dict[str, Any], stored: Stored) -> _Plan:
        """StateMismatch; ValueError and the like: the blob is malformed. Changes nothing."""
        self._compare(blob, stored)
        tensors = self._tensors(blob, stored)
        wanted = []
        for t in stored.values():
            piece = _shard.whole(t.name, tensors[t.name])
            if piece is not None:
                box = (None, None) if piece.extent == tuple(t.shape) else (piece.begin, piece.extent)
                wanted.append(t._replace(begin=box[0], extent=box[1], address=piece.view.data_ptr(),
                                         strides=_shard.strides(piece.view)))
        for part in (*blob["objects"].values(), blob["rng"]):
            _tree.decode(part, tensors)
        return _Plan(blob, tensors, wanted)

    def _tensors(self, blob: dict[str, Any], stored: Stored) -> dict[str, torch.Tensor]:
        """What each stored tensor is read into: what is here, or new memory that is cut as that is."""
        like: dict[str, torch.Tensor] = {}
        for state in self._states:
            if isinstance(state, _torch.ModuleState):
                like.update(state.tensors(blob["objects"][state.key]["extra"]))
            elif isinstance(state, _torch.OptimizerState):
                named = [(n, p) for ns, g in zip(state.names(), state.optimizer.param_groups)
                         for n, p in zip(ns, g["params"])]
                like.update(_likes(named, state.key, stored))
        here = _shard.in_place({n: t for n, t in like.items() if n in stored and self._is_module(n)})
        placed = _tree.placed(blob["objects"])
        return {t.name: here[t.name] if t.name in here else
                _shard.fresh(t.name, tuple(t.shape), _torch.TORCH_OF[t.dtype], like.get(t.name),
                             t.name in placed)
                for t in stored.values()}

    def _is_module(self, name: str) -> bool:
        key = name.partition("/")[0]
        return any(s.key == key and isinstance(s, _torch.ModuleState) for s in self._states)

    def _compare(self, blob: dict[str, Any], stored: Stored) -> None:
        """StateMismatch with every difference between what is stored and what is here."""
        here = {s.key: s for s in self._states}
        objects = blob["objects"]
        out = [f"{k}: stored as {objects[k].get('kind')}, and not given ({k}=...)"
               for k in objects if k not in here]
        out += [f"{k}: given, and not stored" for k in here if k not in objects]
        for key, state in here.items():
            if key not in objects:
                continue
            if objects[key].get("kind") != state.kind:
                out.append(f"{key}: stored as {objects[key].get('kind')}, given as {state.kind}")
            elif isinstance(state, _torch.ModuleState):
                out += _match.differences(state, objects[key], stored)
            else:
                out += state.differences(objects[key])
        self._refuse(blob, out)

    def _refuse(self, blob: dict[str, Any], out: list[str]) -> None:
        if out:
            loaded = "" if self._overwrote else "; nothing was loaded"
            raise errors.StateMismatch(f"{self._path}, step {blob.get('step')}, does not fit{loaded}. "
                                       + "\n  ".join([f"{REMEDY}:", *out]))

    # ---- Putting in place ----

    def _put(self, plan: _Plan, step: int) -> None:
        """What calls the user's code comes last, in the order given: what it may look at is restored then,
        and where it raises the rest is whole."""
        blob = plan.blob
        order = sorted(self._states, key=_calls_user)
        try:
            with torch.no_grad():
                for module in self._modules():
                    _fill(module, blob["objects"][module.key], plan.tensors)
                for place, state in enumerate(order):
                    try:
                        state.restore(blob["objects"][state.key], plan.tensors)
                    except errors.User as e:
                        e.args = (_half(self._path, step, e, order[:place], order[place + 1:], self._rng),)
                        raise
            if self._rng and blob["rng"] is not None:
                _torch.rng_set(blob["rng"])
                if blob["rank"] != self._group.rank:
                    _torch.rng_derive(self._group.rank, blob["rng"])
        except (KeyError, TypeError, ValueError) as e:
            raise errors.Format(f"{self._path}: the stored state of step {step} is malformed: {e!r}") from e


def _calls_user(state: _torch.State) -> bool:
    return isinstance(state, _torch.ObjectState) and not state.plain


def _half(path: str, step: int, error: errors.User, before: list[_torch.State], after: list[_torch.State],
          rng: bool) -> str:
    """What was loaded when an object of the user's raised."""
    loaded = ["the modules' parameters and buffers"]
    loaded += [s.key for s in before if not isinstance(s, _torch.ModuleState)]
    left = [f"{s.key}'s extra state" if isinstance(s, _torch.ModuleState) else s.key for s in after]
    left += ["the generators"] if rng else []
    return (f"{path}: step {step} was not restored whole: {error}. Loaded before: {', '.join(loaded)}; not "
            f"loaded: {', '.join(left) or 'nothing else'}. What is stored is whole: mend that object or give "
            "one that takes the stored state, make all objects anew, then resume() again")


def _index(reader: _native.Reader, step: _native.Step) -> int:
    return next(i for i, s in enumerate(reader.steps()) if (s.step, s.incarnation, s.unit_count) ==
                (step.step, step.incarnation, step.unit_count))


def _parse(path: str, blob: bytes) -> dict[str, Any]:
    try:
        out = json.loads(blob)
    except ValueError as e:
        raise errors.Format(f"{path}: not written by pawl.Checkpointer ({e}): {NOT_OURS}") from e
    if not isinstance(out, dict) or out.get("format") != _tree.FORMAT or \
            not isinstance(out.get("objects"), dict):
        raise errors.Format(f"{path}: not written by pawl.Checkpointer: {NOT_OURS}")
    if out.get("version") != _tree.VERSION:
        raise errors.Format(f"{path}: written in version {out.get('version')} of the format, this pawl "
                            f"reads {_tree.VERSION}: resume with the pawl that saved it, or a newer one")
    return out


def _likes(parameters: list[tuple[str, torch.Tensor]], key: str, stored: Stored) -> dict[str, torch.Tensor]:
    """Optimizer state by its stored name: the parameter whose cut it shares."""
    prefixes = {f"{key}/{name}": parameter for name, parameter in parameters}
    out = {}
    for full in stored:
        cut = full.rfind("/")
        while cut > 0 and full[:cut] not in prefixes:
            cut = full.rfind("/", 0, cut)
        if cut > 0:
            out[full] = prefixes[full[:cut]]
    return out


def _fill(state: _torch.ModuleState, body: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
    """Copies what was not read into place."""
    for name, value in state.tensors(body["extra"]).items():
        source = tensors.get(body["aliases"].get(name, name))
        if source is not None and source is not value and _torch.identity(source) != _torch.identity(value):
            value.copy_(source)
