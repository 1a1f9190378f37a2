"""The contents of a torch.distributed.checkpoint folder as the state_dicts they were saved from.

Promises: every item is read by torch.load(weights_only=True), out of a zip archive whose records are stored
plainly and match their checksums where they have any; a tensor is put together from its boxes in a file
without name, so that memory holds one box at a time. Tested in tests/python/migrate_dcp_test.py."""

from __future__ import annotations

import errno
import io
import mmap
import os
import pickle
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch

from . import _dcp, _migrate_torch, _safetensors, _torch, _tree, errors

ALIGNMENT = 64  # of a tensor in the scratch file
VALUES = "values"  # the object that takes plain values that stand outside of any dict


class _Part(io.RawIOBase):
    """The bytes of one item, as a file of its own."""

    def __init__(self, place: _dcp.Place) -> None:
        super().__init__()
        self._file = open(place.file, "rb")
        self._begin, self._length, self._at = place.offset, place.length, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._length}[whence]
        if base + offset < 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        self._at = base + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")[:max(0, self._length - self._at)]
        done = os.preadv(self._file.fileno(), [view], self._begin + self._at) if len(view) else 0
        self._at += done
        return done

    def close(self) -> None:
        self._file.close()
        super().close()


def _load(place: _dcp.Place, what: str) -> Any:
    """The value that an item holds. Errors: Format, Corrupt, Io."""
    try:
        with io.BufferedReader(_Part(place)) as file:
            _migrate_torch.verify(file, what)
            file.seek(0)
            return torch.load(file, map_location="cpu", weights_only=True)
    except errors.Error:
        raise
    except OSError as e:
        raise errors.Io(f"{what}: {place.file}: {e.strerror or e}", e.errno or 0) from e
    except (RuntimeError, pickle.UnpicklingError, EOFError, ValueError, TypeError, KeyError, AttributeError,
            AssertionError, IndexError, OverflowError) as e:
        raise errors.Format(f"{what}: not of tensors and plain values alone, or damaged: "
                            f"{_migrate_torch.cause(e)}. "
                            "To leave it out, skip it by its name (skip=, --skip)") from e


# ---- Tensors ----

def _room(tensor: _dcp.Tensor, what: str) -> int:
    size = _safetensors.size_of(_torch.DTYPES[tensor.dtype], tensor.shape, what)
    return -(-size // ALIGNMENT) * ALIGNMENT


def _scratch(size: int, folder: Path) -> mmap.mmap | None:
    """Memory that a file without a name in `folder` stands behind: it goes with the last tensor in it."""
    if size == 0:
        return None
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, size)
            return mmap.mmap(file.fileno(), size)
    except OSError as e:
        raise (errors.NoSpace if e.errno in (errno.ENOSPC, errno.EDQUOT) else errors.Io)(
            f"{folder}: no room for {size} bytes of tensors while they are put together: {e.strerror}",
            e.errno or 0) from e


def _fill(target: torch.Tensor, tensor: _dcp.Tensor, what: str) -> None:
    for chunk in tensor.chunks:
        if chunk.place is None:
            continue
        where = f"{what}: the box at {chunk.begin} in {chunk.place.file.name} from byte {chunk.place.offset}"
        part = _load(chunk.place, where)
        if type(part) is not torch.Tensor or part.layout != torch.strided or part.is_meta:
            raise errors.Format(f"{where}: wanted a dense tensor, had a {type(part).__name__}")
        if (tuple(part.shape), part.dtype) != (chunk.extent, tensor.dtype):
            raise errors.Format(f"{where}: wanted {tensor.dtype} {chunk.extent}, had {part.dtype} "
                                f"{tuple(part.shape)}")
        view = target
        for dim, (begin, extent) in enumerate(zip(chunk.begin, chunk.extent)):
            view = view.narrow(dim, begin, extent)
        view.copy_(part.detach())


def _tensors(found: dict[str, _dcp.Tensor], source: Path, folder: Path) -> dict[str, torch.Tensor]:
    memory = _scratch(sum(_room(t, name) for name, t in found.items()), folder)
    out, at = {}, 0
    for name, tensor in found.items():
        size = _safetensors.size_of(_torch.DTYPES[tensor.dtype], tensor.shape, name)
        if size == 0 or memory is None:
            out[name] = torch.empty(tensor.shape, dtype=tensor.dtype)
            continue
        raw = torch.frombuffer(memory, dtype=torch.uint8, count=size, offset=at)
        out[name] = raw.view(tensor.dtype).view(tensor.shape)
        _fill(out[name], tensor, f"{source}: {name}")
        at += _room(tensor, name)
    return out


# ---- The nest that names were flattened from ----

class _Branch(dict[Any, Any]):
    """Of the nest, as against a dict that is a value."""


def _put(root: _Branch, keys: tuple[str | int, ...], value: Any, what: str) -> None:
    here = root
    for key in keys[:-1]:
        here = here.setdefault(key, _Branch())
        if type(here) is not _Branch:
            raise errors.Format(f"{what}: what it is nested in is a value too")
    if keys[-1] in here:
        raise errors.Format(f"{what}: stands there twice")
    here[keys[-1]] = value


def _nest(value: Any, what: str) -> Any:
    """Branches with numbers for keys become the lists that they were, others dicts."""
    if type(value) is not _Branch:
        return value
    out = {key: _nest(item, f"{what}.{key}" if what else str(key)) for key, item in value.items()}
    if not any(type(key) is int for key in out):
        return out
    if set(out) != set(range(len(out))):
        raise errors.Format(f"{what}: of a list only the places {sorted(map(str, out))[:20]} are stored: "
                            "empty ones "
                            f"are not told apart from missing ones; skip {what} as a whole (skip=, --skip)")
    return [out[i] for i in range(len(out))]


def contents(source: Path, scratch: Path, skip: Collection[str]) -> dict[str, Any]:
    """The state_dict that the folder was saved from, without `skip`; in dicts' keys numbers are strings, as
    PyTorch stores them. `scratch`: a folder with room for the tensors; they live as long as the result.

    Errors: those of _dcp.read, Format and Corrupt (an item, by name), Unsupported (a value that cannot be
    kept), NoSpace, Io."""
    found = _dcp.read(source, skip)
    root = _Branch()
    for name, place in found.values.items():
        what = f"{source}: {name}"
        value = _load(place, what)
        try:
            _tree.encode(value, name, lambda *_: None)
        except errors.Unsupported as e:
            hint = "to leave it out, skip it by its name (skip=, --skip)"
            raise errors.Unsupported(f"{source}: {e}; {hint}") from e
        _put(root, found.paths[name], value, what)
    for name, tensor in _tensors(found.tensors, source, scratch).items():
        _put(root, found.paths[name], tensor, f"{source}: {name}")
    out: dict[str, Any] = _nest(root, "")
    return out


# ---- Under the names of Checkpointer ----

def _optimizer(stored: Any, model: dict[str, Any], source: Path) -> Any:
    """An optimizer's state_dict as torch.optim makes it."""
    if not isinstance(stored, dict):
        raise errors.Format(f"{source}: optimizer is a {type(stored).__name__}, wanted a state_dict")
    if "param_groups" not in stored:
        stored = _unflatten(stored, model, source)
    state = stored.get("state", {})
    groups = stored["param_groups"]
    numbered = isinstance(groups, list) and all(type(i) is int for g in groups for i in g.get("params", ()))
    if numbered and all(str(key).isdecimal() for key in state):
        state = {int(key): value for key, value in state.items()}
    return {"state": state, "param_groups": groups}


def _unflatten(stored: dict[str, Any], model: dict[str, Any], source: Path) -> dict[str, Any]:
    """Of flatten_optimizer_state_dict: "state.NAME.KEY" and "param_groups.NAME.OPTION". Parameters that
    follow each other with equal options are taken for one group."""
    found: dict[str, dict[str, dict[str, Any]]] = {"state": {}, "param_groups": {}}
    for full, value in stored.items():
        kind, _, rest = str(full).partition(".")
        ends = [i for i, letter in enumerate(rest) if letter == "." and rest[:i] in model]
        if kind not in found or not ends:
            raise errors.Format(f"{source}: optimizer: {full} is neither state nor an option of a tensor in "
                                "the model")
        found[kind].setdefault(rest[:ends[-1]], {})[rest[ends[-1] + 1:]] = value
    groups: list[dict[str, Any]] = []
    for name in model:
        options = found["param_groups"].get(name)
        if options is None:
            continue
        if groups and {k: v for k, v in groups[-1].items() if k != "params"} == options:
            groups[-1]["params"].append(name)
        else:
            groups.append({**options, "params": [name]})
    return {"state": found["state"], "param_groups": groups}


def _is_whole(content: dict[str, Any], asked: _migrate_torch.Keys) -> bool:
    known = _migrate_torch.MODEL_KEYS if asked.model is None else (asked.model,)
    return any(isinstance(content.get(key), dict) for key in known)


def convert(content: dict[str, Any], source: Path, asked: _migrate_torch.Keys, optimizer_class: str | None,
            names: Any) -> tuple[_migrate_torch.Entries, dict[str, Any]]:
    """As _migrate_torch.convert, with the other entries kept: dicts and lists as objects, the rest in
    `values`."""
    while not _is_whole(content, asked) and len(content) == 1 and isinstance([*content.values()][0], dict):
        content = [*content.values()][0]
    keys = _migrate_torch.find(content, str(source), asked)
    known = dict(content)
    if keys.model is not None and keys.optimizer is not None:
        stored = _migrate_torch.single(content[keys.optimizer], str(source))
        known[keys.optimizer] = _optimizer(stored, content[keys.model], source)
    entries, objects = _migrate_torch.convert(known, str(source), keys, optimizer_class, names)
    if keys.model is None:
        return entries, objects
    rest = {k: v for k, v in content.items() if k not in keys}
    plain = {k: v for k, v in rest.items() if not isinstance(v, (dict, list))}
    rest = {k: v for k, v in rest.items() if k not in plain}
    if plain and VALUES in rest:
        raise errors.Format(f"{source}: {VALUES} is stored, and {', '.join(plain)} would have to go there: "
                            "skip one")
    for name, value in {**rest, **({VALUES: plain} if plain else {})}.items():
        objects[name] = {"kind": "object", "value": _tree.encode(value, name, entries.__setitem__)}
    return entries, objects
