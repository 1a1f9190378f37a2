"""Runs of pawl from checkpoints of others, and back: torch.save files, folders of
torch.distributed.checkpoint, safetensors, Hugging Face folders.

Promises: nothing is unpickled but what torch.load(weights_only=True) allows; a run is made new, with one
durable step that Checkpointer resumes from; an exported folder is complete when its index is there.
Tensors lie in mapped files on the way: nothing is copied as a whole. Prose: docs/migrating.md.
Tested in tests/python/migrate_test.py and migrate_dcp_test.py."""

from __future__ import annotations

import ctypes
import inspect
import json
import mmap
import os
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import _native, _safetensors, _tree, errors

SHARD_BYTES = 5_000_000_000  # what Hugging Face's tools write by default
INDEX = "model.safetensors.index.json"
METADATA, SHARDS = ".metadata", "*.distcp"  # of torch.distributed.checkpoint


def _save(run: str | os.PathLike[str], step: int, tensors: list[_native.Tensor],
          objects: dict[str, Any]) -> None:
    if step < 1:
        raise errors.Argument(f"step {step}: wanted the number of optimizer steps done, at least 1")
    if not tensors:
        raise errors.Format("there is no tensor in what is to be imported")
    try:
        ckpt = _native.Ckpt(run, must_be_new=True)
    except errors.Busy as e:
        raise errors.Busy(f"{e}: an import makes a new run: give a folder without one", e.os_errno) from None
    with ckpt:
        saved = ckpt.save(ckpt.declare(tensors), step, blob=_tree.blob(step, objects))
        ckpt.wait(saved, "durable")


def _check_finished(folder: Path) -> None:
    """NotFound: the folder has shards of torch.distributed.checkpoint, and not the file that is written
    last."""
    if not (folder / METADATA).exists() and any(folder.glob(SHARDS)):
        raise errors.NotFound(f"{folder}: looks like a folder of torch.distributed.checkpoint whose save did "
                              f"not finish: it has {SHARDS} files, and {METADATA}, which is written last, is "
                              "not there. Take an older checkpoint")


def _files(source: Path) -> list[Path]:
    """The safetensors files of a file or folder; with an index, those that it names."""
    if not source.is_dir():
        return [source]
    index = source / INDEX
    if not index.exists():
        found = sorted(source.glob("*.safetensors"))
        if not found:
            _check_finished(source)
            raise errors.NotFound(f"{source}: neither {INDEX} nor any *.safetensors in this folder")
        return found
    try:
        names = sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise errors.Format(f"{index}: wanted {{\"weight_map\": {{tensor: file}}}}: {e!r}") from e
    for name in names:
        if not isinstance(name, str) or Path(name).name != name:
            raise errors.Format(f"{index}: {name!r} is no name of a file in the same folder")
    return [source / name for name in names]


def import_safetensors(source: str | os.PathLike[str], run: str | os.PathLike[str], *, step: int,
                       key: str = "model") -> int:
    """Makes the run `run` of a safetensors file or a folder of them; names become `key/NAME`. Returns how
    many tensors. Errors: NotFound, Format (which file, which tensor), Busy (the run exists), Argument,
    NoSpace."""
    tensors: dict[str, _native.Tensor] = {}
    kept = []
    for path in _files(Path(source)):
        try:
            with open(path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                data: Any = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) if size else b""
        except OSError as e:
            raise errors.NotFound(f"{path}: {e.strerror}", e.errno or 0) from e
        items = _safetensors.parse(data, str(path))
        view = (ctypes.c_char * len(data)).from_buffer(data)
        kept.append(view)
        for name, item in items.items():
            if name in tensors:
                raise errors.Format(f"{path}: {name} is in an earlier file too")
            tensors[name] = _native.Tensor(f"{key}/{name}", item.dtype, item.shape, None, None,
                                           ctypes.addressof(view) + item.offset)
    _save(run, step, list(tensors.values()), {key: {"kind": "module", "aliases": {}, "extra": {}}})
    return len(tensors)


def import_torch(source: str | os.PathLike[str], run: str | os.PathLike[str], *, step: int,
                 optimizer_class: str | None = None, names: Sequence[str] | None = None,
                 model_key: str | None = None, optimizer_key: str | None = None,
                 left_out: list[str] | None = None) -> int:
    """Makes the run `run` of a torch.save file: a state_dict, or a dict with a model's and, if it has one, an
    optimizer's. Other entries are left out, and their names appended to `left_out`; the return value counts
    the tensors.

    optimizer_class: "AdamW" (the file does not say it), which has to fit the state; of another package than
    torch.optim with a dot, "package.Lion", which is not checked. names: of the parameters in the optimizer's
    order, when the model's order does not give them. model_key, optimizer_key: the entries; None: "model",
    "model_state_dict" or "state_dict", and "optimizer", "optimizer_state_dict", "optimizer_states" (a list
    of one) or "optim". Errors: Format, StateMismatch, Unsupported, Argument, NotFound, Busy (the run
    exists)."""
    import torch

    from . import _migrate_torch

    mapped: Any = {"mmap": True} if "mmap" in inspect.signature(torch.load).parameters else {}  # from 2.1 on
    try:
        with open(source, "rb") as file:
            _migrate_torch.verify(file, str(source))
        content = torch.load(source, map_location="cpu", weights_only=True, **mapped)
    except OSError as e:
        raise errors.NotFound(f"{source}: {e.strerror or e}", e.errno or 0) from e
    except (RuntimeError, pickle.UnpicklingError, EOFError, ValueError) as e:
        raise errors.Format(f"{source}: not a torch.save file of tensors and plain values alone: "
                            f"{_migrate_torch.cause(e)}. Save state_dicts only") from e
    keys = _migrate_torch.find(content, str(source), _migrate_torch.Keys(model_key, optimizer_key))
    entries, objects = _migrate_torch.convert(content, str(source), keys, optimizer_class, names)
    tensors, kept = _migrate_torch.native(entries)
    _save(run, step, tensors, objects)
    if left_out is not None and keys.model is not None:
        left_out += [str(key) for key in content if key not in keys]
    return len(kept)


def import_dcp(source: str | os.PathLike[str], run: str | os.PathLike[str], *, step: int,
               optimizer_class: str | None = None, names: Sequence[str] | None = None,
               model_key: str | None = None, optimizer_key: str | None = None,
               skip: Sequence[str] = ()) -> int:
    """Makes the run `run` of a folder that torch.distributed.checkpoint wrote, from any number of ranks.
    Returns how many tensors.

    skip: flattened names ("app.sampler") to leave out with all that is nested in them. optimizer_class,
    names, model_key, optimizer_key: as in import_torch. While it goes on it takes as much room
    again as the tensors, beside `run`.
    Errors: NotFound, Format, Corrupt, StateMismatch, Unsupported, Argument, Busy (the run exists), NoSpace,
    Io; no run is made then."""
    from . import _migrate_dcp, _migrate_torch

    folder = Path(source)
    _check_finished(folder)
    beside = next(p for p in Path(run).absolute().parents if p.is_dir())  # the run is made with its parents
    content = _migrate_dcp.contents(folder, beside, skip)
    keys = _migrate_torch.Keys(model_key, optimizer_key)
    entries, objects = _migrate_dcp.convert(content, folder, keys, optimizer_class, names)
    tensors, kept = _migrate_torch.native(entries)
    _save(run, step, tensors, objects)
    return len(kept)


def _shards(tensors: dict[str, _native.Tensor], limit: int) -> list[dict[str, _native.Tensor]]:
    out: list[dict[str, _native.Tensor]] = []
    room = 0
    for name in sorted(tensors):
        size = _safetensors.size_of(tensors[name].dtype, tensors[name].shape, name)
        if not out or size > room:
            out.append({})
            room = limit
        out[-1][name] = tensors[name]
        room -= size
    return out


def export(run: str | os.PathLike[str], target: str | os.PathLike[str], *, key: str = "model",
           shard_bytes: int = SHARD_BYTES) -> int:
    """Writes the tensors `key/...` of the newest whole step into the new folder `target`, as Hugging Face
    lays them out: model.safetensors, or numbered files of at most `shard_bytes` and their index. Returns the
    step.

    Errors: NotFound (no step, no such tensors), Argument (the folder exists), Corrupt, NoSpace, Io."""
    if shard_bytes < 1:
        raise errors.Argument(f"shard_bytes {shard_bytes}: wanted at least 1")
    folder = Path(target)
    with _native.Reader(run) as reader:
        index = reader.newest()
        if index is None:
            raise errors.NotFound(f"{run}: no whole step is stored")
        step = reader.steps()[index].step
        found = {t.name[len(key) + 1:]: t for t in reader.tensors(index) if t.name.startswith(key + "/")}
        if not found:
            raise errors.NotFound(f"{run}, step {step}: no tensor's name begins with {key}/")
        try:
            folder.mkdir(parents=True)
        except OSError as e:
            raise errors.Argument(f"{folder}: {e.strerror}: give a new folder", e.errno or 0) from e
        _write(folder, _shards(found, shard_bytes), reader, index)
    return step


def _write(folder: Path, shards: list[dict[str, _native.Tensor]], reader: _native.Reader, index: int) -> None:
    where, total = {}, 0
    for i, shard in enumerate(shards):
        file = f"model-{i + 1:05}-of-{len(shards):05}.safetensors" if len(shards) > 1 else "model.safetensors"
        _safetensors.write(folder / file, shard, reader, index)
        where.update(dict.fromkeys(shard, file))
        total += sum(_safetensors.size_of(t.dtype, t.shape, n) for n, t in shard.items())
    if len(shards) > 1:
        part = folder / (INDEX + ".part")
        with open(part, "x") as out:
            json.dump({"metadata": {"total_size": total}, "weight_map": where}, out, indent=2)
            out.flush()
            os.fsync(out.fileno())
        os.rename(part, folder / INDEX)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
