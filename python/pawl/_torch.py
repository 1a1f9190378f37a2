"""What of PyTorch's objects is saved, under which names, and how it is put back.

Promises: every parameter, persistent buffer and optimizer state has a name that a reader of the model knows
(optimizer state by the parameter's name, never by index); memory that two names share is stored once; what
cannot be saved exactly is refused with its name. Objects are told apart by what they can do, never by index.
Public interfaces of torch only. Tested in tests/python/torch_state_test.py."""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import struct
import sys
from collections.abc import Collection, Iterable, Iterator
from typing import Any, NamedTuple

import torch

from . import _tree, data, errors

_DTYPES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "float8_e5m2": "F8_E5M2", "float8_e4m3fn": "F8_E4M3",
    "int16": "I16", "uint16": "U16", "float16": "F16", "bfloat16": "BF16", "int32": "I32", "uint32": "U32",
    "float32": "F32", "float64": "F64", "int64": "I64", "uint64": "U64", "float8_e8m0fnu": "F8_E8M0",
    "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2fnuz": "F8_E5M2FNUZ", "complex64": "C64"}
DTYPES = {getattr(torch, name): text for name, text in _DTYPES.items() if hasattr(torch, name)}
TORCH_OF = {text: dtype for dtype, text in DTYPES.items()}


# Tensors of so many bytes in objects and extra state are in the blob of each rank where there are several:
# they may be a rank's own. A state of torch's generator for the processor has 5056.
OWN_BYTES_MAX = 16384


class Entry(NamedTuple):
    """A tensor to be stored as `name`. `late`: only the optimizer's step changes it, capture can wait."""

    name: str
    tensor: torch.Tensor
    late: bool


def _leaf(entries: list[Entry], own: bool) -> _tree.Leaf:
    """Takes tensors of an object; where there are several ranks (`own`) those that are not small."""
    def take(name: str, tensor: torch.Tensor) -> bool:
        dtype_name(tensor, name)
        small = tensor.numel() * tensor.element_size() <= OWN_BYTES_MAX and not hasattr(tensor, "placements")
        if own and small:
            return False
        entries.append(Entry(name, tensor, False))
        return True

    return take


def dtype_name(tensor: torch.Tensor, name: str) -> str:
    """Name of the element type; Unsupported, with the tensor's name, when its bytes cannot be stored."""
    kind = None
    if isinstance(tensor, (torch.nn.UninitializedParameter, torch.nn.UninitializedBuffer)):
        raise errors.Unsupported(f"{name}: it has no shape yet: call the lazy module once before it is saved "
                                 "or restored")
    if tensor.is_nested:
        kind = "a nested tensor"
    elif tensor.is_quantized:
        kind = "a quantized tensor"
    elif tensor.layout != torch.strided:
        kind = f"a tensor of layout {tensor.layout}"
    elif tensor.is_meta:
        raise errors.Unsupported(f"{name}: a tensor on the device meta has no data to save, and no memory to "
                                 "restore it into: module.to_empty(device=...) gives it some")
    elif tensor.dtype not in DTYPES:
        kind = f"a tensor of type {tensor.dtype}"
    if kind is not None:
        raise errors.Unsupported(f"{name}: {kind} can be neither saved nor restored: make it a dense tensor "
                                 "of one of " + ", ".join(str(d).removeprefix("torch.") for d in DTYPES))
    return DTYPES[tensor.dtype]


def _refuse(name: str, tensor: torch.Tensor) -> bool:
    """A leaf that stores nothing: only what cannot be saved is told."""
    dtype_name(tensor, name)
    return True


def unwrap(module: torch.nn.Module) -> torch.nn.Module:
    """The user's module inside DistributedDataParallel, DataParallel and torch.compile."""
    while True:
        compiled = getattr(module, "_orig_mod", None)
        if isinstance(compiled, torch.nn.Module):
            module = compiled
        elif isinstance(module, (torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel)):
            module = module.module
        else:
            return module


@contextlib.contextmanager
def _told(what: str) -> Iterator[None]:
    """Around a call of the user's code, which may raise anything: User says where. Memory and what ends the
    program go through."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as e:
        raise errors.User(f"{what} raised {type(e).__name__}: {e}") from e


class ModuleState:
    """Tensors and extra state of one module."""

    kind = "module"
    own = False  # several ranks: each has its own extra state

    def __init__(self, key: str, module: torch.nn.Module) -> None:
        self.key, self.module = key, unwrap(module)
        for name, part in self.module.named_modules():
            if type(part).__name__ == "FullyShardedDataParallel":
                raise errors.Unsupported(f"{key}.{name}: FullyShardedDataParallel (FSDP1) keeps its "
                                         "parameters in flat buffers; use torch.distributed.fsdp.fully_shard")

    def parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Every parameter by its first name, tied ones once."""
        prefix = "" if self.key == "model" else f"{self.key}/"
        for name, parameter in self.module.named_parameters():
            yield prefix + name, parameter

    def collect(self) -> tuple[list[Entry], dict[str, Any]]:
        entries: list[Entry] = []
        aliases: dict[str, str] = {}
        extra: dict[str, Any] = {}
        seen: dict[tuple[Any, ...], str] = {}

        leaf = _leaf(entries, self.own)
        for name, value in self.module.state_dict(keep_vars=True).items():
            full = f"{self.key}/{name}"
            if name.rpartition(".")[2] == "_extra_state" or not isinstance(value, torch.Tensor):
                extra[name] = _tree.encode(value, full, leaf)
                continue
            dtype_name(value, full)
            _check_apart(value, full)
            first = seen.setdefault(identity(value), full)
            if first != full:
                aliases[full] = first
            else:
                entries.append(Entry(full, value, isinstance(value, torch.nn.Parameter)))
        return entries, {"aliases": aliases, "extra": extra}

    def tensors(self, extra: Collection[str]) -> dict[str, torch.Tensor]:
        """Parameters and persistent buffers by their stored names, tied ones by each of theirs, without those
        of `extra` state."""
        return {f"{self.key}/{name}": value for name, value in self.module.state_dict(keep_vars=True).items()
                if name not in extra and isinstance(value, torch.Tensor)}

    def restore(self, blob: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        """Extra state only: parameters and buffers were filled in place. User: set_extra_state() has
        raised."""
        for name, value in blob["extra"].items():
            owner = self.module.get_submodule(name.rpartition(".")[0])
            decoded = _tree.decode(value, tensors)
            with _told(f"{self.key}/{name}: set_extra_state() of {type(owner).__qualname__}"):
                owner.set_extra_state(decoded)


def _check_apart(value: torch.Tensor, name: str) -> None:
    if value.layout == torch.strided and any(s == 0 and n > 1 for s, n in zip(value.stride(), value.shape)):
        raise errors.Unsupported(f"{name}: of shape {tuple(value.shape)} with the strides {value.stride()}: "
                                 "elements "
                                 "that share memory (expand) cannot be restored one by one: give it memory "
                                 "of its "
                                 "own, .contiguous()")


def identity(t: torch.Tensor) -> tuple[Any, ...]:
    """Equal for tensors that are the same elements of the same memory."""
    local = t.to_local() if hasattr(t, "to_local") else t
    if t.is_meta or local.numel() == 0 or t.layout != torch.strided or t.is_quantized:
        return (id(t),)
    return local.data_ptr(), tuple(t.shape), tuple(local.shape), local.stride(), t.dtype, t.device


class OptimizerState:
    """State and hyperparameters of an optimizer, by the names of the parameters it steps."""

    kind = "optimizer"

    def __init__(self, key: str, optimizer: torch.optim.Optimizer, modules: list[ModuleState]) -> None:
        self.key, self.optimizer, self.modules = key, optimizer, modules
        self.names()

    def names(self) -> list[list[str]]:
        """Of the parameters of each group. StateMismatch: one is in no module given."""
        known = {id(p): name for m in self.modules for name, p in m.parameters()}
        lost, out = [], []
        for g, group in enumerate(self.optimizer.param_groups):
            out.append([known.get(id(p), "") for p in group["params"]])
            lost += [f"group {g} parameter {i} of shape {tuple(group['params'][i].shape)}"
                     for i, name in enumerate(out[-1]) if not name]
        if lost:
            raise errors.StateMismatch(f"{self.key}: it steps parameters that are in no module given to "
                                       f"Checkpointer: {', '.join(lost)}. Give the model too (model=...)")
        return out

    def options(self, number: int, leaf: _tree.Leaf) -> Any:
        """Of one group, encoded."""
        options = {k: v for k, v in self.optimizer.param_groups[number].items() if k != "params"}
        return _tree.encode(options, f"{self.key}/@group{number}", leaf)

    def collect(self) -> tuple[list[Entry], dict[str, Any]]:
        entries: list[Entry] = []

        def leaf(name: str, tensor: torch.Tensor) -> bool:
            entries.append(Entry(name, tensor, True))
            return True

        groups, state = [], {}
        for g, (group, names) in enumerate(zip(self.optimizer.param_groups, self.names())):
            groups.append({"params": names, "options": self.options(g, leaf)})
            for name, parameter in zip(names, group["params"]):
                if parameter in self.optimizer.state:
                    value = dict(self.optimizer.state[parameter])
                    state[name] = _tree.encode(value, f"{self.key}/{name}", leaf)
        return entries, {"class": type(self.optimizer).__name__, "groups": groups, "state": state}

    def differences(self, blob: dict[str, Any]) -> list[str]:
        out = []
        if blob["class"] != type(self.optimizer).__name__:
            out.append(f"{self.key}: stored is the state of {blob['class']}, "
                       f"this is {type(self.optimizer).__name__}")
        stored, here = [g["params"] for g in blob["groups"]], self.names()
        if len(stored) != len(here):
            todo = ("add the others (add_param_group) before resume()" if len(stored) > len(here) else
                    "those that were added while training (add_param_group) are added again after resume()")
            out.append(f"{self.key}: stored with {len(stored)} parameter groups, here are {len(here)}: "
                       f"{todo}")
        for g, (a, b) in enumerate(zip(stored, here)):
            out += [f"{self.key}: group {g}: {n} is stored, and not here" for n in sorted(set(a) - set(b))]
            out += [f"{self.key}: group {g}: {n} is here, and not stored" for n in sorted(set(b) - set(a))]
        return out

    def restore(self, blob: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        """Takes `tensors` as the new state, on the device where the optimizer wants them."""
        self.optimizer.state.clear()
        for stored, group, names in zip(blob["groups"], self.optimizer.param_groups, self.names()):
            group.update(_tree.decode(stored["options"], tensors))
            on_device = bool(group.get("capturable") or group.get("fused"))
            for name, parameter in zip(names, group["params"]):
                if name not in blob["state"]:
                    continue
                value = _tree.decode(blob["state"][name], tensors)
                for key, item in value.items():
                    if isinstance(item, torch.Tensor) and (key != "step" or on_device):
                        value[key] = item.to(parameter.device)
                self.optimizer.state[parameter] = value


_SCHEDULERS = tuple(getattr(torch.optim.lr_scheduler, name) for name in
                    ("LRScheduler", "_LRScheduler", "ReduceLROnPlateau", "ChainedScheduler")
                    if hasattr(torch.optim.lr_scheduler, name))  # PyTorch 1 has no common base


def _class(thing: Any) -> str | None:
    """Of a scheduler, whose state fits others' classes too, with those that it is made of: "SequentialLR
    (LinearLR, StepLR)". None: of no scheduler."""
    if not isinstance(thing, _SCHEDULERS):
        return None
    parts = [part for part in map(_class, getattr(thing, "_schedulers", ())) if part is not None]
    return type(thing).__name__ + (f" ({', '.join(parts)})" if parts else "")


class ObjectState:
    """Anything with state_dict and load_state_dict, or a dict or list of values that is filled in place."""

    kind = "object"
    own = False  # several ranks: each has its own

    def __init__(self, key: str, thing: Any) -> None:
        self.key, self.thing = key, thing
        self.plain = type(thing) in (dict, list)
        if not self.plain and not (hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict")):
            raise errors.Unsupported(
                f"{key}: a {type(thing).__module__}.{type(thing).__qualname__} cannot be restored: wanted an "
                "object with state_dict() and load_state_dict(), or a dict or list (numbers go into one: "
                "{'epoch': 0})")
        if self.plain:
            _tree.encode(thing, key, _refuse)  # what cannot be saved is told now, not at the first save

    def collect(self) -> tuple[list[Entry], dict[str, Any]]:
        entries: list[Entry] = []
        value = self.thing if self.plain else self.thing.state_dict()
        kind = _class(self.thing)
        return entries, {**({} if kind is None else {"class": kind}),
                         "value": _tree.encode(value, self.key, _leaf(entries, self.own))}

    def differences(self, blob: dict[str, Any]) -> list[str]:
        """What is known before anything is loaded: of dicts and lists, of pawl's samplers, and of schedulers
        that were stored with their class."""
        stored, here = blob.get("class"), _class(self.thing)
        if stored is not None and here is not None and stored != here:
            return [f"{self.key}: stored is the state of {stored}, this is {here}"]
        if self.plain and _tree.container(blob["value"]) is not type(self.thing):
            was = _tree.container(blob["value"])
            return [f"{self.key}: stored is a {was.__name__ if was else 'value of another kind'}, this is a "
                    f"{type(self.thing).__name__}"]
        if isinstance(self.thing, (data.Sampler, data.Loader)):
            try:
                self.thing.check_state(blob["value"])
            except (ValueError, TypeError) as e:
                return [f"{self.key}: {e}"]
        return []

    def restore(self, blob: dict[str, Any], tensors: dict[str, torch.Tensor]) -> None:
        """User: its load_state_dict() has raised."""
        value = _tree.decode(blob["value"], tensors)
        if not self.plain:
            with _told(f"{self.key}: load_state_dict() of {type(self.thing).__qualname__}"):
                self.thing.load_state_dict(value)
        elif isinstance(self.thing, dict):
            self.thing.clear()
            self.thing.update(value)
        else:
            self.thing[:] = value


State = ModuleState | OptimizerState | ObjectState


def states(objects: dict[str, Any]) -> list[State]:
    """What each object given to Checkpointer is, modules first: optimizers take names from them."""
    for key in objects:
        if "/" in key or key.startswith("_"):
            raise errors.Argument(f"{key!r} cannot name an object: no '/', no '_' at the beginning")
    modules = [ModuleState(k, o) for k, o in objects.items() if isinstance(o, torch.nn.Module)]
    out: list[State] = list(modules)
    for key, thing in objects.items():
        if isinstance(thing, torch.optim.Optimizer):
            out.append(OptimizerState(key, thing, modules))
        elif not isinstance(thing, torch.nn.Module):
            out.append(ObjectState(key, thing))
    return out


def lines(named: Iterable[tuple[str, torch.Tensor]]) -> list[str]:
    """What has to be equal on all ranks, a line a tensor: name, type, shape and where it is cut."""
    return [f"{name}: {str(t.dtype).removeprefix('torch.')} {tuple(t.shape)}"
            + (f" {list(t.placements)}" if hasattr(t, "placements") else "") for name, t in named]


def names(states: list[State]) -> list[str]:
    """Likewise of all objects, and of the tensors that are in modules: before any step is done."""
    out = [f"{s.key} is a {s.kind}" for s in states]
    for state in states:
        if isinstance(state, ModuleState):
            out += lines((e.name, e.tensor) for e in state.collect()[0])
        elif isinstance(state, OptimizerState):
            out.append(f"{state.key} is a {type(state.optimizer).__name__}")
    return out


def rng_get() -> dict[str, Any]:
    """Generators of torch, of its CUDA devices, of Python, and of numpy where the program has loaded it."""
    numpy = sys.modules.get("numpy")
    version, words, gauss = random.getstate()
    packed = struct.pack(f"<{len(words)}I", *words)
    state = {"torch": torch.get_rng_state(), "python": (version, packed, gauss),
             "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
             "numpy": None if numpy is None else numpy.random.get_state()}
    out: dict[str, Any] = _tree.encode(state, "rng", None)
    return out


def rng_set(stored: dict[str, Any]) -> None:
    state = _tree.decode(stored, {})
    torch.set_rng_state(state["torch"])
    version, words, gauss = state["python"]
    if isinstance(words, bytes):  # a tuple of numbers before
        words = struct.unpack(f"<{len(words) // 4}I", words)
    random.setstate((version, words, gauss))
    if state["cuda"] and torch.cuda.is_available() and torch.cuda.device_count() == len(state["cuda"]):
        torch.cuda.set_rng_state_all(state["cuda"])
    if state["numpy"] is not None:
        import numpy
        numpy.random.set_state(state["numpy"])


def rng_derive(rank: int, stored: dict[str, Any]) -> None:
    """For a rank that no stored state is of: a seed from the state stored of rank 0 and the rank, so that
    another resume at another step gives others."""
    text = f"pawl rank {rank} {json.dumps(stored, sort_keys=True)}"
    seed = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1
    torch.manual_seed(seed)
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)
