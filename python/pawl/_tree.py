"""Values to JSON and back, with tensors as leaves that are stored elsewhere.

Promises: what decodes is what was encoded, to the bit (floats, types of containers, order of keys); anything
that cannot be told exactly is refused with its path. Nothing here runs code that a file names: no pickle, no
import, a closed list of types. The format: docs/formats/python.md. Tested in tests/python/tree_test.py."""

from __future__ import annotations

import base64
import collections
import ctypes
import json
import math
import sys
from collections.abc import Callable
from typing import Any

from . import errors

FORMAT, VERSION = "pawl-python", 1
TAG = "!"  # a JSON object with this key is a typed value, not a dict
DEPTH_MAX = 100

Leaf = Callable[[str, Any], "bool | None"]  # takes a tensor that is stored elsewhere; False: it does not
_AS_THEY_ARE = (type(None), bool, int, str)


class Text(str):
    """A value that is JSON already."""


def encode(value: Any, path: str, leaf: Leaf | None, depth: int = 0) -> Any:
    """`value` as JSON. A tensor is handed to `leaf(path, tensor)`, or stored inline when `leaf` is None."""
    if depth > DEPTH_MAX:
        raise errors.Unsaveable(f"{path}: nested deeper than {DEPTH_MAX} levels: does it contain itself?")
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return value
    if kind is float:
        return value if math.isfinite(value) else {TAG: "float", "v": repr(value)}
    if kind is list:
        return [encode(v, f"{path}/{i}", leaf, depth + 1) for i, v in enumerate(value)]
    if kind in (tuple, set, frozenset, collections.deque):
        return _sequence(value, path, leaf, depth)
    if kind in (dict, collections.OrderedDict, collections.Counter):
        return _mapping(value, path, leaf, depth)
    if kind is bytes:
        return {TAG: "bytes", "v": base64.b64encode(value).decode()}
    if kind is complex:
        return {TAG: "complex", "v": [encode(value.real, path, None), encode(value.imag, path, None)]}
    return _foreign(value, path, leaf)


def _sequence(value: Any, path: str, leaf: Leaf | None, depth: int) -> Any:
    items = value
    if isinstance(value, (set, frozenset)):
        try:
            items = sorted(value)
        except TypeError:
            items = sorted(value, key=repr)
    out: dict[str, Any] = {TAG: type(value).__name__}
    # Generators of numbers have hundreds of integers: no call for each.
    out["v"] = [v if type(v) in _AS_THEY_ARE else encode(v, f"{path}/{i}", leaf, depth + 1)
                for i, v in enumerate(items)]
    if isinstance(value, collections.deque):
        out["max"] = value.maxlen
    return out


def _mapping(value: Any, path: str, leaf: Leaf | None, depth: int) -> Any:
    if type(value) is dict and TAG not in value and all(type(k) is str for k in value):
        return {k: encode(v, f"{path}/{k}", leaf, depth + 1) for k, v in value.items()}
    pairs = [[encode(k, f"{path}/{k}", None, depth + 1), encode(v, f"{path}/{k}", leaf, depth + 1)]
             for k, v in value.items()]
    return {TAG: type(value).__name__, "v": pairs}


def _foreign(value: Any, path: str, leaf: Leaf | None) -> Any:
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None:
        if isinstance(value, torch.Tensor):
            return _tensor(value, path, leaf)
        if isinstance(value, torch.Size):
            return {TAG: "size", "v": list(value)}
        if isinstance(value, (torch.dtype, torch.device)):
            return {TAG: f"torch.{type(value).__name__}", "v": str(value).removeprefix("torch.")}
    if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
        return _array(numpy, value, path)
    hint = "" if not hasattr(value, "__dict__") else "; give it state_dict() and load_state_dict()"
    if hasattr(value, "state_dict") and hasattr(value, "load_state_dict"):
        hint = (". It has state_dict() and load_state_dict(): give it to Checkpointer under a name of its "
                f"own, outside of {path.partition('/')[0]}")
    raise errors.Unsaveable(f"{path}: a value of type {type(value).__module__}.{type(value).__qualname__} "
                            "cannot be saved: wanted numbers, strings, bytes, containers of them, tensors or "
                            f"arrays{hint}")


def _tensor(value: Any, path: str, leaf: Leaf | None) -> Any:
    if leaf is not None and leaf(path, value) is not False:
        return {TAG: "tensor", "name": path, **({"placed": True} if hasattr(value, "placements") else {})}
    here = value.detach().cpu().contiguous().resolve_conj().resolve_neg()
    raw = ctypes.string_at(here.data_ptr(), here.numel() * here.element_size()) if here.numel() else b""
    return {TAG: "inline", "dtype": str(value.dtype).removeprefix("torch."), "shape": list(value.shape),
            "v": base64.b64encode(raw).decode()}


def _array(numpy: Any, value: Any, path: str) -> Any:
    array = numpy.asarray(value)
    if array.dtype.hasobject or array.dtype.kind in "VO":
        raise errors.Unsaveable(f"{path}: an array of type {array.dtype} cannot be saved: wanted numbers")
    tag = "array" if isinstance(value, numpy.ndarray) else "scalar"
    return {TAG: tag, "dtype": array.dtype.str, "shape": list(array.shape),
            "v": base64.b64encode(array.tobytes()).decode()}


def decode(value: Any, tensors: dict[str, Any]) -> Any:
    """The value that `encode` was given; `tensors` holds the leaves by path. ValueError: not this format."""
    if isinstance(value, list):
        return [decode(v, tensors) for v in value]
    if not isinstance(value, dict):
        return value
    if TAG not in value:
        return {k: decode(v, tensors) for k, v in value.items()}
    try:
        return _typed(value, value[TAG], tensors)
    except (KeyError, TypeError, IndexError, AttributeError) as e:
        raise ValueError(f"a stored value of type {value[TAG]!r} is malformed: {e}") from e


def container(value: Any) -> type | None:
    """dict or list: what an encoded value can be put into; None: neither."""
    if isinstance(value, list):
        return list
    return dict if isinstance(value, dict) and value.get(TAG, "dict") in _MAPPINGS else None


def placed(value: Any) -> set[str]:
    """Names of the tensors in an encoded value that were DTensors."""
    out: set[str] = set()
    for item in value if isinstance(value, list) else value.values() if isinstance(value, dict) else ():
        out |= placed(item)
    if isinstance(value, dict) and value.get(TAG) == "tensor" and value.get("placed") is True:
        out.add(str(value.get("name")))
    return out


_SEQUENCES: dict[str, Callable[[Any], Any]] = {"tuple": tuple, "set": set, "frozenset": frozenset}
_MAPPINGS: dict[str, Callable[[Any], Any]] = {
    "dict": dict, "OrderedDict": collections.OrderedDict, "Counter": lambda p: collections.Counter(dict(p))}


def _typed(value: dict[str, Any], tag: Any, tensors: dict[str, Any]) -> Any:
    if tag == "tensor":
        return tensors[value["name"]]
    body = value["v"]
    if tag == "float":
        return float(body)
    if tag == "bytes":
        return base64.b64decode(body, validate=True)
    if tag == "complex":
        return complex(*[decode(v, tensors) for v in body])
    if tag in _SEQUENCES:
        return _SEQUENCES[tag](decode(v, tensors) for v in body)
    if tag == "deque":
        return collections.deque((decode(v, tensors) for v in body), value["max"])
    if tag in _MAPPINGS:
        return _MAPPINGS[tag]([(decode(k, tensors), decode(v, tensors)) for k, v in body])
    if tag in ("array", "scalar"):
        import numpy
        array = numpy.frombuffer(base64.b64decode(body, validate=True), numpy.dtype(value["dtype"]))
        array = array.reshape(value["shape"]).copy()
        return array if tag == "array" else array[()]
    return _typed_torch(value, tag, body)


def _typed_torch(value: dict[str, Any], tag: Any, body: Any) -> Any:
    import torch
    if tag == "size":
        return torch.Size(body)
    if tag == "torch.device":
        return torch.device(body)
    if tag == "torch.dtype":
        return _dtype(torch, body)
    if tag == "inline":
        raw = bytearray(base64.b64decode(body, validate=True))
        empty = torch.empty(0, dtype=torch.uint8)
        tensor = torch.frombuffer(raw, dtype=torch.uint8).clone() if raw else empty
        return tensor.view(_dtype(torch, value["dtype"])).reshape(value["shape"])
    raise ValueError(f"a stored value has the unknown type {tag!r}: was it written by a newer pawl?")


def _dtype(torch: Any, name: str) -> Any:
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"torch {torch.__version__} has no element type {name!r}")
    return found


def dumps(value: Any) -> str:
    return value if isinstance(value, Text) else json.dumps(value, allow_nan=False)


def blob(step: int, objects: dict[str, Any], *, rank: int = 0, world: int = 1, torch: str = "",
         rng: Any = None) -> bytes:
    """What is stored beside the tensors of a step: docs/formats/python.md. Objects may be Text."""
    head = dumps({"format": FORMAT, "version": VERSION, "step": step, "rank": rank, "world": world,
                  "torch": torch})
    body = ", ".join(f"{dumps(key)}: {dumps(value)}" for key, value in objects.items())
    return f'{head[:-1]}, "objects": {{{body}}}, "rng": {dumps(rng)}}}'.encode()
