"""safetensors files: every byte checked on reading, whole files renamed into place on writing.

Promises: what parse() accepts lies inside the file, without gaps or overlaps, each tensor with as many bytes
as its type and shape need. Needs neither torch nor numpy. Source: the safetensors format. Tested in
tests/python/migrate_test.py."""

from __future__ import annotations

import ctypes
import json
import math
import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from . import _abi, _native, errors

HEADER_BYTES_MAX = 100_000_000  # the format's own limit
ALIGNMENT = 8


class Item(NamedTuple):
    """One tensor of a file: type, shape, first byte and bytes from the file's beginning."""

    dtype: str
    shape: tuple[int, ...]
    offset: int
    size: int


def size_of(dtype: str, shape: tuple[int, ...], what: str) -> int:
    """Bytes of a tensor; Format when they are no whole number."""
    bits = _abi.dtype_bits()[dtype] * math.prod(shape)
    if bits % 8:
        raise errors.Format(f"{what}: {bits} bits of {dtype} {shape} are no whole bytes")
    return bits // 8


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("a name stands there twice")
    return out


def _item(body: Any, begin: int, what: str) -> Item:
    def numbers(value: Any) -> bool:
        return isinstance(value, list) and all(type(n) is int and 0 <= n < 2**63 for n in value)

    if not isinstance(body, dict) or set(body) != {"dtype", "shape", "data_offsets"}:
        raise errors.Format(f"{what}: wanted dtype, shape and data_offsets")
    if not isinstance(body["dtype"], str) or body["dtype"] not in _abi.dtype_bits():
        raise errors.Format(f"{what}: {body['dtype']!r} is no element type of the format")
    if not numbers(body["shape"]) or not numbers(body["data_offsets"]) or len(body["data_offsets"]) != 2:
        raise errors.Format(f"{what}: shape and the two data_offsets have to be whole numbers from 0")
    first, end = body["data_offsets"]
    shape = tuple(body["shape"])
    wanted = size_of(body["dtype"], shape, what)
    if end - first != wanted:
        raise errors.Format(f"{what}: {body['dtype']} {shape} needs {wanted} bytes, "
                            f"data_offsets give {end - first}")
    return Item(body["dtype"], shape, begin + first, wanted)


def parse(data: Any, path: str) -> dict[str, Item]:
    """The tensors of a file's bytes. Format: what is wrong, and at which tensor."""
    length = int.from_bytes(data[:8], "little") if len(data) >= 8 else -1
    if not 0 < length <= min(HEADER_BYTES_MAX, len(data) - 8):
        raise errors.Format(f"{path}: {len(data)} bytes with a header of {length} bytes: "
                            "no safetensors file, or cut")
    try:
        header = json.loads(bytes(data[8:8 + length]), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as e:
        raise errors.Format(f"{path}: the header is malformed: {e}") from e
    if not isinstance(header, dict):
        raise errors.Format(f"{path}: the header is no JSON object")
    out = {n: _item(b, 8 + length, f"{path}: {n}") for n, b in header.items() if n != "__metadata__"}
    end = 8 + length
    for name, item in sorted(out.items(), key=lambda pair: (pair[1].offset, pair[1].size)):
        if item.offset != end:
            raise errors.Format(f"{path}: {name} begins at byte {item.offset}, wanted {end}: "
                                "a gap or an overlap")
        end += item.size
    if end != len(data):
        raise errors.Format(f"{path}: the tensors end at byte {end}, the file at {len(data)}: "
                            "it was cut or added to")
    return out


def write(path: Path, tensors: Mapping[str, _native.Tensor], reader: _native.Reader, index: int) -> None:
    """Reads `tensors` (name in the file: tensor of step `index`) straight into a new file, synced and
    renamed.

    Errors: those of Reader.read, NoSpace, Io; then `path` does not exist."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, t in tensors.items():
        size = size_of(t.dtype, t.shape, name)
        header[name] = {"dtype": t.dtype, "shape": list(t.shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    begin, part = 8 + len(text), path.with_name(path.name + ".part")
    try:
        with open(part, "x+b") as file:
            os.posix_fallocate(file.fileno(), 0, begin + end)
            file.write(len(text).to_bytes(8, "little") + text)
            file.flush()
            with mmap.mmap(file.fileno(), begin + end) as memory:
                _read(memory, begin, header, tensors, reader, index)
                memory.flush()
            os.fsync(file.fileno())
        os.rename(part, path)
    except OSError as e:
        raise (errors.NoSpace if e.errno == 28 else errors.Io)(f"{part}: {e.strerror}", e.errno or 0) from e
    finally:
        part.unlink(missing_ok=True)


def _read(memory: mmap.mmap, begin: int, header: dict[str, Any], tensors: Mapping[str, _native.Tensor],
          reader: _native.Reader, index: int) -> None:
    view = (ctypes.c_char * len(memory)).from_buffer(memory)
    try:
        base = ctypes.addressof(view) + begin
        reader.read(index,
                    [t._replace(address=base + header[n]["data_offsets"][0]) for n, t in tensors.items()])
    finally:
        del view
