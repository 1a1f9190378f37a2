"""What is stored of a module against the module that is here: compared by name.

Promises: every difference is named. Names that are one tensor here may be stored once, under any of them, or
apart with equal bits: files of others do not tell what was tied. Tested in
tests/python/{checkpointer,migrate_dcp}_test.py. """

from __future__ import annotations

from typing import Any

import torch

from . import _native, _shard, _torch

Stored = dict[str, _native.Tensor]


def tensors(state: _torch.ModuleState) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Those of a module by all of their stored names; and of names that share a tensor, the first one."""
    entries, mine = state.collect()
    extra = tuple(f"{state.key}/{name}" for name in mine["extra"])
    here = {e.name: e.tensor for e in entries if not e.name.startswith(extra)}
    here.update({alias: here[first] for alias, first in mine["aliases"].items()})
    return here, mine["aliases"]


def differences(state: _torch.ModuleState, body: dict[str, Any], stored: Stored) -> list[str]:
    """Names, types and shapes that differ."""
    here, tied = tensors(state)
    aliases: dict[str, str] = body["aliases"]
    prefix = f"{state.key}/"
    extra = tuple(prefix + name for name in body["extra"])
    names = {n for n in stored if n.startswith(prefix) and not n.startswith(extra)} | set(aliases)
    present = {tied.get(name, name) for name in names}
    out = []
    for name in sorted(names | set(here)):
        if name not in here:
            out.append(f"{name}: stored, and not here")
        elif name in names:
            was, now = stored[aliases.get(name, name)], here[name]
            kind = _torch.dtype_name(now, name)
            if (was.dtype, tuple(was.shape)) != (kind, tuple(now.shape)):
                out.append(f"{name}: stored {was.dtype} {tuple(was.shape)}, here {kind} {tuple(now.shape)}")
        elif tied.get(name, name) not in present:
            out.append(f"{name}: here with shape {tuple(here[name].shape)}, and not stored")
    mine = state.collect()[1]["extra"]
    return out + [f"{prefix}{n}: stored, and not here" for n in body["extra"] if n not in mine]


def apart(state: _torch.ModuleState, body: dict[str, Any],
          fresh: dict[str, torch.Tensor]) -> dict[str, tuple[str, str]]:
    """By stored name, where names that are one tensor here were stored as several: its name and the first
    one."""
    here, tied = tensors(state)
    groups: dict[str, dict[str, str]] = {}
    for name in here:
        source = body["aliases"].get(name, name)
        if source in fresh:
            groups.setdefault(tied.get(name, name), {}).setdefault(source, name)
    return {source: (name, next(iter(group))) for group in groups.values() if len(group) > 1
            for source, name in group.items()}


def torn(state: _torch.ModuleState, body: dict[str, Any], fresh: dict[str, torch.Tensor]) -> list[str]:
    """Of those, the ones that were read with other bits than the first."""
    return [f"{name}: stored apart from {first} with other values, here they are one tensor"
            for source, (name, first) in apart(state, body, fresh).items()
            if source != first and not _equal(fresh[source], fresh[first])]


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    x, y = (_shard.local(t).detach().contiguous().flatten().view(torch.uint8) for t in (a, b))
    return torch.equal(x, y)
