"""The objects of a torch.save file under the names that Checkpointer stores.

Promises: an optimizer's state, which such a file numbers, gets the name of a parameter only where names are
given or counts and shapes leave no doubt. Tested in tests/python/migrate_test.py."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from . import _native, _optimizers, _torch, _tree, errors

Entries = dict[str, torch.Tensor]
ZIP_MAGIC = b"PK\3\4"
MODEL_KEYS = ("model", "model_state_dict", "state_dict")
OPTIMIZER_KEYS = ("optimizer", "optimizer_state_dict", "optimizer_states", "optim")
LISTED_MAX = 20  # entries in an error


class Keys(NamedTuple):
    """Under which names a file has a model and an optimizer. None, as an answer: the file is a model; it has
    no optimizer. None, as a question: the usual names."""

    model: str | None = None
    optimizer: str | None = None


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


def find(content: Any, source: str, asked: Keys) -> Keys:
    """Where the model and the optimizer are in what a file holds. Format: no dict, or its entries say
    neither. Argument: there is no such entry as asked for."""
    if not isinstance(content, dict):
        raise errors.Format(f"{source}: holds a {type(content).__name__}, wanted a dict")
    model = _entry(content, source, asked.model, MODEL_KEYS, "--model-key")
    if model is None and any(isinstance(value, (dict, list)) for value in content.values()):
        raise errors.Format(f"{source}: none of its entries is named {', '.join(MODEL_KEYS)}: say which is "
                            f"the model's state_dict (--model-key, model_key=). It has {_listed(content)}")
    optimizer = _entry(content, source, asked.optimizer, OPTIMIZER_KEYS, "--optimizer-key") if (
        model is not None or asked.optimizer is not None) else None
    return Keys(model, optimizer)


def _entry(content: dict[Any, Any], source: str, asked: str | None, usual: Sequence[str],
           option: str) -> str | None:
    python = option[2:].replace("-", "_")
    if asked is not None:
        if isinstance(content.get(asked), (dict, list)):
            return asked
        raise errors.Argument(f"{source}: {option} {asked}: no dict is stored under that name. The file has "
                              f"{_listed(content)}")
    found = [key for key in usual if isinstance(content.get(key), (dict, list))]
    if len(found) > 1:
        raise errors.Format(f"{source}: has {' and '.join(found)}: say which is meant ({option}, {python}=)")
    return found[0] if found else None


def _listed(content: dict[Any, Any]) -> str:
    """The names and kinds of a dict's entries, the first ones."""
    sizes = {key: f" of {len(value)}" for key, value in content.items() if isinstance(value, (dict, list))}
    told = [f"{key} (a {type(value).__name__}{sizes.get(key, '')})" for key, value in content.items()]
    more = len(told) - LISTED_MAX
    return ", ".join(told[:LISTED_MAX]) + (f" and {more} more" if more > 0 else "")


def convert(content: dict[Any, Any], source: str, keys: Keys, optimizer_class: str | None,
            names: Sequence[str] | None) -> tuple[Entries, dict[str, Any]]:
    """Tensors by their stored names, and the objects of the blob. `keys`: what find() returned."""
    entries: Entries = {}
    model = content if keys.model is None else content[keys.model]
    objects = {"model": _module(model, source, entries)}
    if keys.optimizer is not None:
        shapes = {n: tuple(t.shape) for n, t in model.items() if isinstance(t, torch.Tensor)
                  and f"model/{n}" in entries}
        stored = single(content[keys.optimizer], source)
        objects["optimizer"] = _optimizer(stored, source, shapes, names, entries)
        objects["optimizer"]["class"] = _optimizers.check(optimizer_class, stored["param_groups"],
                                                          stored["state"], source)
    elif optimizer_class or names:
        raise errors.Argument(f"{source}: has no optimizer under the names {', '.join(OPTIMIZER_KEYS)}: say "
                              "which entry it is (--optimizer-key, optimizer_key=). The file has "
                              f"{_listed(content)}")
    return entries, objects


def single(stored: Any, source: str) -> Any:
    """Of the list of optimizers that some write, the only one."""
    if not isinstance(stored, list):
        return stored
    if len(stored) != 1:
        raise errors.Unsupported(f"{source}: has the state of {len(stored)} optimizers, wanted one")
    return stored[0]


def _module(model: Any, source: str, entries: Entries) -> dict[str, Any]:
    if not isinstance(model, dict):
        raise errors.Format(f"{source}: the model is a {type(model).__name__}, wanted a state_dict")
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
