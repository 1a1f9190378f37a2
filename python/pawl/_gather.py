"""What a save hands to the library: each tensor with its memory, and the text beside them.

Promises: it is what _torch, _shard and _tree make of the state as it is now. At nearly every save a
training's tensors are where they were at the last one, and naming, cutting and writing down hundreds of them
takes milliseconds, with the interpreter's lock held. So what was found of a module or an optimizer is kept,
without its tensors, and taken again where a walk meets the same keys with tensors of the same type, address,
shape and strides. Looked at anew each time: objects of other kinds, states that hold anything but plain
tensors of the processor, options of optimizers, the generators. Failures: those of collect(), by name. Tested
in tests/python/gather_test.py."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from . import _native, _shard, _torch, _tree

_PLAIN = (torch.Tensor, torch.nn.Parameter)
Walk = list[tuple[Any, Any]]
MemoryOf = Callable[[torch.Tensor], int]
# What keeps a tensor's memory, for least; PyTorch 1 has only the tensor itself.
_memory_of: Any = getattr(torch.Tensor, "untyped_storage", torch.Tensor.detach)


class Found(NamedTuple):
    # That of the last time where all is equal. Addresses are 0, but for strided ones, declared with them.
    tensors: list[_native.Tensor]
    addresses: list[int]  # of the memory of each
    held: list[Any]  # has to live until that was captured
    blob: bytes


def still(view: torch.Tensor, late: bool) -> torch.Tensor:
    """Memory of the processor with what is in `view` now: a dense copy, unless it may be captured `late`."""
    if late and _shard.is_readable(view):
        return view
    return view.to("cpu", copy=True).contiguous().resolve_conj().resolve_neg()


def _walk(state: _torch.State) -> Walk | None:
    """All that decides what collect() says of the state, but for options; None: not to be told without it.
    A group of parameters begins with (None, None)."""
    if isinstance(state, _torch.ModuleState):
        return list(state.module.state_dict(keep_vars=True).items())
    if not isinstance(state, _torch.OptimizerState):
        return None
    out: Walk = []
    known = state.optimizer.state
    for group in state.optimizer.param_groups:
        out.append((None, None))
        for parameter in group["params"]:
            out.append((parameter in known, parameter))
            out += known.get(parameter, {}).items()
    return out


def _leaf(value: Any) -> tuple[Any, ...]:
    return type(value), value.data_ptr(), value.shape, value.stride(), value.dtype


def _is_plain(value: Any) -> bool:
    return (type(value) in _PLAIN and value.is_cpu and value.layout == torch.strided
            and not value.is_quantized and not value.is_complex() and not value.is_neg())


def _know(walk: Walk) -> list[tuple[Any, Any]] | None:
    """What to compare the next walk with; None: there are values whose place says nothing about them."""
    if not all(value is None or _is_plain(value) for _, value in walk):
        return None
    return [(key, None if value is None else _leaf(value)) for key, value in walk]


def _is_same(walk: Walk, known: list[tuple[Any, Any]]) -> bool:
    if len(walk) != len(known):
        return False
    for (key, value), (key_then, leaf) in zip(walk, known):
        if key != key_then or (value is None) != (leaf is None):
            return False
        if value is not None and (type(value) not in _PLAIN or not value.is_cpu or _leaf(value) != leaf):
            return False
    return True


class _Changed(Exception):
    pass


class _Part:
    """What one state gave at the last save."""

    def __init__(self, state: _torch.State, rank: int, world: int, memory_of: MemoryOf) -> None:
        self.state, self._rank, self._world, self._memory_of = state, rank, world, memory_of
        self.tensors: list[_native.Tensor] = []
        self.addresses: list[int] = []
        self.held: list[Any] = []
        self.text = _tree.Text()
        self._known: list[tuple[Any, Any]] | None = None
        # Tensors whose memory is a copy: number, place in the walk, late.
        self._copied: list[tuple[int, int, bool]] = []
        self._entries: list[_torch.Entry] = []  # as they were collected; empty: as `_placed` says of the walk
        self._walk: Walk = []
        self._placed: list[tuple[str, int, bool]] = []  # name, place in the walk, late
        self._names: list[list[str]] = []  # of an optimizer's parameters
        self._state_text = ""

    def look(self) -> None:
        walk = _walk(self.state)
        if walk is None or self._known is None or not _is_same(walk, self._known) or not self._again(walk):
            self._anew(walk)

    # ---- As the last time ----

    def _again(self, walk: Walk) -> bool:
        if isinstance(self.state, _torch.OptimizerState):
            try:
                self.text = self._optimizer_text(self.state)
            except _Changed:
                return False
        self.held = [_memory_of(value) for _, value in walk if value is not None]
        for number, place, late in self._copied:
            source = still(self._cut(self.tensors[number].name, walk[place][1], late)[0].view, late)
            self.addresses[number] = source.data_ptr()
            self.held.append(source)
        self._entries, self._walk = [], walk
        return True

    def _optimizer_text(self, state: _torch.OptimizerState) -> _tree.Text:
        def leaf(name: str, tensor: torch.Tensor) -> None:
            raise _Changed

        groups = [{"params": names, "options": state.options(g, leaf)} for g, names in enumerate(self._names)]
        return _tree.Text(f'{{"kind": "{state.kind}", "class": {json.dumps(type(state.optimizer).__name__)}, '
                          f'"groups": {_tree.dumps(groups)}, "state": {self._state_text}}}')

    def entries(self) -> list[_torch.Entry]:
        """All tensors of the last look; not after release()."""
        if self._entries or not self._walk:
            return self._entries
        return [_torch.Entry(name, self._walk[place][1], late) for name, place, late in self._placed]

    def release(self) -> None:
        self.held, self._entries, self._walk = [], [], []

    # ---- Anew ----

    def _anew(self, walk: Walk | None) -> None:
        entries, body = self.state.collect()
        tensors: list[_native.Tensor] = []
        self.addresses, self.held, self._copied, copied = [], [], [], []
        self._entries = entries
        for entry in entries:
            kind = _torch.dtype_name(entry.tensor, entry.name)
            for piece in self._cut(entry.name, entry.tensor, entry.late):
                memory = self._memory_of(piece.view) if entry.late else 0
                source = piece.view if memory else still(piece.view, entry.late)
                if source.data_ptr() != piece.view.data_ptr():
                    copied.append((len(tensors), entry))
                self.held.append(source)
                self.addresses.append(source.data_ptr())
                tensors.append(_as_told(entry, kind, piece, source)._replace(memory=memory))
        if tensors != self.tensors:
            self.tensors = tensors
        self.text = _tree.Text(_tree.dumps({"kind": self.state.kind, **body}))
        self._known = None
        if walk is not None:
            self._keep(walk, entries, copied, body)

    def _cut(self, name: str, tensor: torch.Tensor, late: bool) -> list[_shard.Piece]:
        """What this rank saves of it. Buffers may differ between ranks: rank 0's count, as for
        DistributedDataParallel."""
        if late or hasattr(tensor, "placements"):
            return _shard.mine(name, tensor, self._rank, self._world)
        return _shard.mine(name, tensor, 0, 1) if self._rank == 0 else []

    def _keep(self, walk: Walk, entries: list[_torch.Entry], copied: list[tuple[int, _torch.Entry]],
              body: dict[str, Any]) -> None:
        """For the next time, unless something was collected that the walk does not meet."""
        places = {id(value): place for place, (_, value) in enumerate(walk)}
        if body.get("extra") or not all(id(e.tensor) in places for e in entries):
            return
        self._copied = [(number, places[id(e.tensor)], e.late) for number, e in copied]
        self._placed = [(e.name, places[id(e.tensor)], e.late) for e in entries]
        if isinstance(self.state, _torch.OptimizerState):
            self._names = [group["params"] for group in body["groups"]]
            self._state_text = _tree.dumps(body["state"])
        self._known = _know(walk)


def _as_told(entry: _torch.Entry, kind: str, piece: _shard.Piece, source: torch.Tensor) -> _native.Tensor:
    """Without its address, which each save tells; memory with strides is declared with it."""
    strides = _shard.strides(source)
    shape = tuple(entry.tensor.shape)
    box = (None, None) if piece.extent == shape else (piece.begin, piece.extent)
    return _native.Tensor(name=entry.name, dtype=kind, shape=shape, begin=box[0], extent=box[1],
                          address=source.data_ptr() if strides else 0, strides=strides)


class Gatherer:
    """Of one Checkpointer; used by its thread."""

    def __init__(self, states: list[_torch.State], *, rank: int, world: int, rng: bool,
                 memory_of: MemoryOf = lambda _: 0) -> None:
        """memory_of: address of the kind of memory that a tensor is captured from late; 0: the
        processor's."""
        self._parts = [_Part(state, rank, world, memory_of) for state in states]
        self._rank, self._world, self._rng = rank, world, rng
        self._tensors: list[_native.Tensor] = []
        self._lists: list[list[_native.Tensor]] = []  # of the parts, as they were joined

    def gather(self, step: int) -> Found:
        """The state after `step` steps. Unsupported, StateMismatch: something cannot be saved, by name."""
        for part in self._parts:
            part.look()
        lists = [part.tensors for part in self._parts]
        if not self._lists or any(now is not then for now, then in zip(lists, self._lists)):
            self._tensors, self._lists = [t for some in lists for t in some], lists
        blob = _tree.blob(step, {part.state.key: part.text for part in self._parts}, rank=self._rank,
                          world=self._world, torch=str(torch.__version__),
                          rng=_torch.rng_get() if self._rng else None)
        return Found(self._tensors, [a for part in self._parts for a in part.addresses],
                     [h for part in self._parts for h in part.held], blob)

    def entries(self) -> list[_torch.Entry]:
        """What the last gather() found, by name; after release() nothing."""
        return [entry for part in self._parts for entry in part.entries()]

    def holds(self) -> bool:
        """Is memory of the last save kept?"""
        return any(part.held for part in self._parts)

    def release(self) -> None:
        """The memory of the last save need not be kept any longer."""
        for part in self._parts:
            part.release()
