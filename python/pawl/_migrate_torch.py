"""The objects of a torch.save file under the names that Checkpointer stores.

Promises: an optimizer's state, which such a file numbers, gets the name of a parameter only where names are
given or counts and shapes leave no doubt. Tested in tests/python/migrate_test.py."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from typing import Any

import torch

from . import _native, _torch, _tree, errors

Entries = dict[str, torch.Tensor]
ZIP_MAGIC = b"PK\3\4"


def verify(file: Any, what: str) -> None:
    """Format unless the file is what torch.save writes: from its first byte a zip archive of plainly stored
    records, no TorchScript (torch.load hands such files, and those in the older layouts, to readers that some
    versions of it do not restrict). Corrupt: a record does not match its checksum; there may be none."""
    try:
        file.seek(0)
        begins = file.read(len(ZIP_MAGIC)) == ZIP_MAGIC
        with zipfile.ZipFile(file) as archive:
            records = archive.infolist()
            odd = [r.filename for r in records if r.compress_type != zipfile.ZIP_STORED
                   or r.filename.rpartition("/")[2] == "constants.pkl"]
            bad = archive.testzip() if begins and not odd and any(r.CRC for r in records) else None
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, RuntimeError, EOFError) as e:
        raise errors.Format(f"{what}: nothing that torch.save wrote in the zip layout (the default), or cut: "
                            f"{e}") from e
    if odd or not begins:
        raise errors.Format(f"{what}: {odd[0] if odd else 'what stands before the zip archive'} is nothing "
                            "that "
                            "torch.save writes: save state_dicts only, in the zip layout (the default)")
    if bad is not None:
        raise errors.Corrupt(f"{what}: {bad} does not match its checksum: the file was damaged")


def cause(e: Exception) -> str:
    """What torch.load says, without its advice to trust the file."""
    text = str(e).rpartition("WeightsUnpickler error: ")[2] or type(e).__name__
    lines = text.splitlines()
    first = next((line for line in lines if "GLOBAL" in line), lines[0]).strip(" .")
    newer = f" (by torch.load of PyTorch {torch.__version__}: newer ones read more types)"
    return first + (newer if "Unsupported op" in first else "")


def convert(content: Any, source: str, optimizer_class: str | None,
            names: Sequence[str] | None) -> tuple[Entries, dict[str, Any]]:
    """Tensors by their stored names, and the objects of the blob."""
    if not isinstance(content, dict):
        raise errors.Format(f"{source}: holds a {type(content).__name__}, wanted a dict")
    model = content["model"] if isinstance(content.get("model"), dict) else content
    entries: Entries = {}
    objects = {"model": _module(model, source, entries)}
    if model is not content and "optimizer" in content:
        if not optimizer_class:
            raise errors.Argument(f"{source}: holds an optimizer's state, not its class: name it (AdamW)")
        shapes = {n: tuple(t.shape) for n, t in model.items() if isinstance(t, torch.Tensor)
                  and f"model/{n}" in entries}
        objects["optimizer"] = _optimizer(content["optimizer"], source, shapes, names, entries)
        objects["optimizer"]["class"] = optimizer_class
    return entries, objects


def _module(model: dict[str, Any], source: str, entries: Entries) -> dict[str, Any]:
    aliases: dict[str, str] = {}
    seen: dict[Any, str] = {}
    for name, value in model.items():
        if not isinstance(name, str) or not isinstance(value, torch.Tensor):
            raise errors.Format(f"{source}: {name!r} of the model is no tensor: {type(value).__name__}")
        full = f"model/{name}"
        _torch.dtype_name(value, full)
        place = (value.data_ptr(), value.shape, value.stride(), value.dtype) if value.numel() else full
        first = seen.setdefault(place, full)
        if first != full:
            aliases[full] = first
        else:
            entries[full] = value
    return {"kind": "module", "aliases": aliases, "extra": {}}


def _optimizer(stored: Any, source: str, shapes: dict[str, tuple[int, ...]], names: Sequence[str] | None,
               entries: Entries) -> dict[str, Any]:
    try:
        groups, state = stored["param_groups"], stored["state"]
        order = [i for g in groups for i in g["params"]]
        given = [n for g in groups for n in g.get("param_names", ())]
        if all(isinstance(i, str) for i in order):
            given = order  # torch.distributed.checkpoint.state_dict names them
        known = dict(zip(order, _names(order, state, shapes, names or given, source)))
        leaf = entries.__setitem__
        out = []
        for g, group in enumerate(groups):
            options = {k: v for k, v in group.items() if k != "params"}
            out.append({"params": [known[i] for i in group["params"]],
                        "options": _tree.encode(options, f"optimizer/@group{g}", leaf)})
        body = {known[i]: _tree.encode(dict(v), f"optimizer/{known[i]}", leaf) for i, v in state.items()}
    except (KeyError, TypeError, AttributeError) as e:
        raise errors.Format(f"{source}: optimizer is no state_dict of a torch optimizer: {e!r}") from e
    return {"kind": "optimizer", "groups": out, "state": body}


def _names(order: list[int], state: dict[int, Any], shapes: dict[str, tuple[int, ...]], names: Sequence[str],
           source: str) -> list[str]:
    out = list(names) or list(shapes)
    hint = "give the parameters' names in the optimizer's order (names=, --names)"
    if len(out) != len(order) or len(set(out)) != len(out):
        raise errors.StateMismatch(f"{source}: the optimizer has {len(order)} parameters, there are "
                                   f"{len(set(out))} names for them: {hint}")
    wrong = [f"{n}: not in the model" for n in out if n not in shapes]
    for index, name in zip(order, out):
        for key, value in state.get(index, {}).items():
            shape = tuple(value.shape) if isinstance(value, torch.Tensor) else ()
            if shape and shapes.get(name, shape) != shape:
                wrong.append(f"{name}: shape {shapes[name]}, its {key} (number {index}) has {shape}")
    if wrong:
        raise errors.StateMismatch(f"{source}: the optimizer's state does not fit; {hint}:\n  "
                                   + "\n  ".join(wrong))
    return out


def native(entries: Entries) -> tuple[list[_native.Tensor], list[torch.Tensor]]:
    """As the library takes them, and the memory that has to stay until it was captured."""
    kept = [t.detach().resolve_conj().resolve_neg().contiguous() for t in entries.values()]
    return [_native.Tensor(n, _torch.dtype_name(t, n), tuple(t.shape), None, None, t.data_ptr())
            for n, t in zip(entries, kept)], kept
