"""The .metadata of torch.distributed.checkpoint: which tensors a folder holds, and where each box of them
lies.

Promises: it is a pickle, and nothing in it runs: the names it may use are the table below, each stands for a
plain record of ours, any other is refused by name. What read() returns fits together: every box inside its
tensor, none over another, none missing, every place in a file of the folder. Source of the layout:
torch.distributed.checkpoint, metadata.py and filesystem.py, as of PyTorch 2.0 to 2.13. Tested in
tests/python/migrate_dcp_test.py."""

from __future__ import annotations

import math
import pickle
import reprlib
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NamedTuple

from . import _safetensors, _torch, _tree, errors

NAME = ".metadata"
_METADATA = "torch.distributed.checkpoint.metadata"
_SHARDED = "torch.distributed._shard.sharded_tensor.metadata"  # where PyTorch 2.0 to 2.2 had two of them
_FILES = "torch.distributed.checkpoint.filesystem"
_RECORDS = [(_SHARDED, "TensorProperties"), (_FILES, "_StorageInfo")] + [(_METADATA, name) for name in (
    "Metadata", "TensorStorageMetadata", "BytesStorageMetadata", "ChunkStorageMetadata", "TensorProperties",
    "MetadataIndex", "StorageMeta")]
_PATHS = ("Path", "PosixPath", "PurePath", "PurePosixPath", "WindowsPath", "PureWindowsPath")
_DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in _torch.DTYPES}


class Place(NamedTuple):
    """Bytes of a file in the folder."""

    file: Path
    offset: int
    length: int


class Chunk(NamedTuple):
    """A box of a tensor, in elements, and where it lies; None: it is empty."""

    begin: tuple[int, ...]
    extent: tuple[int, ...]
    place: Place | None


class Tensor(NamedTuple):
    """Type, global shape and boxes of a tensor."""

    dtype: Any
    shape: tuple[int, ...]
    chunks: list[Chunk]


class Contents(NamedTuple):
    """By the flattened names ("model.0.weight"): tensors, other values, and the keys each name was made
    of."""

    tensors: dict[str, Tensor]
    values: dict[str, Place]
    paths: dict[str, tuple[str | int, ...]]


# ---- The pickle ----

class _Record:
    """What stands for an object of PyTorch's classes: its state, as it was pickled."""

    __slots__ = ("state",)
    state: Any

    def __new__(cls, *_: Any) -> _Record:
        return object.__new__(cls)

    def __setstate__(self, state: Any) -> None:
        self.state = state


def _record(name: str) -> type:
    return type(name, (_Record,), {"__slots__": ()})


def _table() -> dict[tuple[str, str], Any]:
    """What each allowed name stands for: made anew for each file, so that nothing a file sets outlives it."""
    table: dict[tuple[str, str], Any] = {where: _record(where[1]) for where in _RECORDS}
    table.update({("torch", name): dtype for name, dtype in _DTYPES.items()})
    for module in (_METADATA, _SHARDED):
        table.update({(module, name): int for name in ("_MEM_FORMAT_ENCODING", "MEM_FORMAT_ENCODING")})
    for module in ("pathlib", "pathlib._local"):  # where the folder was when it was written
        table.update({(module, name): _record("Path") for name in _PATHS})
    table.update({("torch", "Size"): tuple, ("torch.serialization", "_get_layout"): str})
    table.update({("collections", "OrderedDict"): dict, ("builtins", "set"): set})
    return table


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: Any, source: Path) -> None:
        super().__init__(file)
        self._source, self._known = source, _table()

    def find_class(self, module: str, name: str) -> Any:
        found = self._known.get((module, name))
        if found is None:
            raise errors.Format(f"{self._source}: needs {module}.{name}, which is no part of a checkpoint's "
                                "metadata or of a type that cannot be stored: nothing of it was run or "
                                "imported")
        return found


def _unpickle(source: Path) -> Any:
    try:
        with open(source, "rb") as file:
            return _Unpickler(file, source).load()
    except OSError as e:
        raise errors.NotFound(f"{source}: {e.strerror}", e.errno or 0) from e
    except errors.Error:
        raise
    except Exception as e:  # what a pickle can make of its reader is no closed list
        raise errors.Format(f"{source}: malformed, or cut: {type(e).__name__}: {e}") from e


# ---- What it says, checked ----

Places = Callable[[str, "tuple[int, ...] | None"], Place]
_show = reprlib.repr  # bounded in length and depth


def _fields(value: Any, kind: str, what: str) -> dict[str, Any]:
    """The state of a record of the class `kind`."""
    state = getattr(value, "state", {} if kind == "BytesStorageMetadata" else None)
    if not isinstance(value, _Record) or type(value).__name__ != kind or not isinstance(state, dict):
        raise errors.Format(f"{what}: wanted a {kind}, had a {type(value).__name__}")
    return state


def _dict(value: Any, what: str) -> dict[Any, Any]:
    if type(value) is not dict:
        raise errors.Format(f"{what}: wanted a dict, had a {type(value).__name__}")
    return value


def _sizes(value: Any, rank: int | None, what: str) -> tuple[int, ...]:
    if type(value) is not tuple or not all(type(n) is int and 0 <= n < 2**63 for n in value):
        raise errors.Format(f"{what}: wanted a size, whole numbers from 0, had {_show(value)}")
    if rank is not None and len(value) != rank:
        raise errors.Format(f"{what}: {value} has {len(value)} dimensions, wanted {rank}")
    return value


def _place(folder: Path, info: Any, what: str) -> Place:
    """Where `info` points to, inside of a file that is inside of the folder."""
    had = _fields(info, "_StorageInfo", what)
    name, offset, length = had.get("relative_path"), had.get("offset"), had.get("length")
    if had.get("transform_descriptors"):
        raise errors.Unsupported(f"{what}: stored through the extensions "
                                 f"{_show(had['transform_descriptors'])}: "
                                 "save it without extensions")
    if type(name) is not str or not (type(offset) is type(length) is int and offset >= 0 and length >= 0):
        raise errors.Format(f"{what}: wanted a file's name, an offset and a length from 0, had {_show(had)}")
    try:
        file = (folder / name).resolve(strict=True)
        size = file.stat().st_size if file.is_file() else None
    except (OSError, ValueError) as e:
        raise errors.NotFound(f"{what}: its file {_show(name)} in {folder} cannot be read: {e}") from e
    if folder.resolve() not in file.parents or size is None:
        raise errors.Format(f"{what}: {_show(name)} is no file in {folder}: nothing outside of it is read")
    if offset + length > size:
        raise errors.Format(f"{what}: bytes {offset} to {offset + length} of {file}, which has {size}: it "
                            "was cut")
    return Place(file, offset, length)


def _covers(shape: tuple[int, ...], chunks: list[Chunk], what: str) -> None:
    """Every element in one box, none in two."""
    live: list[Chunk] = []
    for chunk in sorted((c for c in chunks if math.prod(c.extent)), key=lambda c: c.begin):
        live = [c for c in live if not shape or c.begin[0] + c.extent[0] > chunk.begin[0]]
        for other in live:
            if all(a < d + e and d < a + b for a, b, d, e in zip(*chunk[:2], *other[:2], strict=True)):
                raise errors.Format(f"{what}: the box at {chunk.begin} of {chunk.extent} lies over that at "
                                    f"{other.begin} of {other.extent}")
        live.append(chunk)
    had, wanted = sum(math.prod(c.extent) for c in chunks), math.prod(shape)
    if had != wanted:
        raise errors.Format(f"{what}: its {len(chunks)} boxes hold {had} elements, {shape} has {wanted}: "
                            "some are missing")


def _tensor(value: Any, places: Places, name: str, what: str) -> Tensor:
    had = _fields(value, "TensorStorageMetadata", what)
    properties = getattr(had.get("properties"), "state", None)
    dtype = properties.get("dtype") if isinstance(properties, dict) else (
        properties[0] if type(properties) is tuple and properties else None)
    if not any(dtype is known for known in _torch.DTYPES):
        raise errors.Format(f"{what}: wanted an element type, had {_show(properties)}")
    shape = _sizes(had.get("size"), None, what)
    if _safetensors.size_of(_torch.DTYPES[dtype], shape, what) >= 2**63:
        raise errors.Format(f"{what}: {shape} of {dtype} is larger than any memory")
    chunks: list[Chunk] = []
    boxes = had.get("chunks")
    for chunk in boxes if type(boxes) is list else ():
        box = _fields(chunk, "ChunkStorageMetadata", what)
        begin = _sizes(box.get("offsets"), len(shape), what)
        extent = _sizes(box.get("sizes"), len(shape), what)
        if any(b + e > s for b, e, s in zip(begin, extent, shape, strict=True)):
            raise errors.Format(f"{what}: the box at {begin} of {extent} leaves the tensor's {shape}")
        chunks.append(Chunk(begin, extent, places(name, begin) if math.prod(extent) else None))
    _covers(shape, chunks, what)
    return Tensor(dtype, shape, chunks)


def _keys(value: Any, what: str) -> tuple[str | int, ...]:
    if type(value) is not tuple or not 0 < len(value) <= _tree.DEPTH_MAX or not all(
            type(k) is str or type(k) is int and k >= 0 for k in value):
        raise errors.Format(f"{what}: the keys it was flattened from are {_show(value)}, wanted 1 to "
                            f"{_tree.DEPTH_MAX} "
                            "strings and numbers from 0")
    return value


def read(folder: Path, skip: Collection[str] = ()) -> Contents:
    """What the folder holds, but for the names in `skip` and all that is nested in them.

    Errors: NotFound (no .metadata, a file of it), Format (what is wrong, at which name), Argument (`skip`
    names nothing), Unsupported (stored through extensions)."""
    source = folder / NAME
    had = _fields(_unpickle(source), "Metadata", str(source))
    infos: dict[tuple[str, tuple[int, ...] | None], Any] = {}
    for index, info in _dict(had.get("storage_data"), f"{source}: storage_data").items():
        key = _fields(index, "MetadataIndex", f"{source}: storage_data")
        name, begin = key.get("fqn"), key.get("offset")
        if type(name) is not str or (begin is not None and type(begin) is not tuple):
            raise errors.Format(f"{source}: storage_data: wanted a name and an offset, had {_show(key)}")
        if infos.setdefault((name, begin), info) is not info:
            raise errors.Format(f"{source}: storage_data: {name} at {begin} stands there twice")

    def places(name: str, begin: tuple[int, ...] | None) -> Place:
        if (name, begin) not in infos:
            raise errors.Format(f"{source}: {name}: no place is given for {'it' if begin is None else begin}")
        return _place(folder, infos[name, begin], f"{source}: {name}")

    unused = set(skip)
    out = Contents({}, {}, {})
    paths = _dict(had.get("planner_data") or {}, f"{source}: planner_data")
    for name, value in _dict(had.get("state_dict_metadata"), f"{source}: state_dict_metadata").items():
        what = f"{source}: {name}"
        if type(name) is not str:
            raise errors.Format(f"{source}: state_dict_metadata: {_show(name)} is no name")
        matched = {s for s in skip if name == s or name.startswith(s + ".")}
        unused -= matched
        if matched:
            continue
        if type(value).__name__ == "BytesStorageMetadata":
            _fields(value, "BytesStorageMetadata", what)
            out.values[name] = places(name, None)
        else:
            out.tensors[name] = _tensor(value, places, name, what)
        out.paths[name] = _keys(paths.get(name, (name,)), what)
    if unused:
        raise errors.Argument(f"{source}: nothing to skip is named {', '.join(sorted(unused))}")
    return out
