"""The stages of a pipeline as the executor needs them: names, shapes, decay, the optimizer's numbers, wires.

Everything is found, and everything that cannot be exact is refused, once a process in Model(): each stage is
made, its parameters are named, and one sample micro-batch goes through all stages and the loss. Stages that
are given as functions are made one at a time, seeded by their number, and freed again: module() makes them
anew. Errors: Argument and Unsupported, with the stage and the name. Tested in tests/python/pipeline_test.py.
"""

from __future__ import annotations

import weakref
from collections import Counter
from typing import Any, NamedTuple

import torch

from . import _reach, _user, _wire, errors, stages
from ._samples import INPUT, TARGET, Samples, tensors_in
from ._train_abi import RANK_MAX


class Numbers(NamedTuple):
    """Of an AdamW. weight_decay: of the groups that have one."""

    lr: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float


class Parameter(NamedTuple):
    """A parameter of a stage. own: its name in the stage's module; name: in the whole model."""

    own: str
    name: str
    shape: tuple[int, ...]
    trained: bool
    decay: bool


class Plan(NamedTuple):
    """What is known of one stage. incoming, outgoing: None at the model's two ends."""

    parameters: tuple[Parameter, ...]
    incoming: _wire.Wire | None
    outgoing: _wire.Wire | None


class Model:
    """All stages of `pipeline`. Not for several threads."""

    def __init__(self, pipeline: stages.Pipeline, seed: int, samples: Samples) -> None:
        self.pipeline, self.seed = pipeline, seed
        self._seen: dict[
            int, tuple[Any, str]
        ] = {}  # by id and by address of memory: a parameter of an earlier stage
        self._numbers: list[tuple[str, Numbers]] = []
        self._ways: list[_reach.Ways] = []
        found, wires = [], []
        value = samples.half(INPUT, 0, 0)
        for index in range(len(pipeline.stages)):
            parameters, value = self._look_at(index, value, samples)
            found.append(parameters)
            if index + 1 < len(pipeline.stages):
                wires.append(_wire.of_output(value, f"stage {index}"))
        self.numbers = self._one_optimizer()
        _reach.check(self._ways)
        prefixed = _prefixed([[p.own for p in part] for part in found])
        self.plans = [
            Plan(
                tuple(p._replace(name=f"stages.{k}.{p.own}" if prefixed[k] else p.own) for p in part),
                wires[k - 1] if k else None,
                wires[k] if k < len(wires) else None,
            )
            for k, part in enumerate(found)
        ]
        names = Counter(p.name for plan in self.plans for p in plan.parameters)
        twice = [name for name, count in names.items() if count > 1]
        if twice:
            raise errors.Argument(f"two stages have a parameter {twice[0]}: rename the module in one of them")
        self._seen.clear()

    def module(self, index: int) -> Any:
        """The stage's module; from a function: made anew, with the same initial values each time."""
        stage = self.pipeline.stages[index]
        if not isinstance(stage, torch.nn.Module):
            _user.seed(self.seed, "stage", index)
            with _user.within(f"stage {index}"):
                stage = stage()
            if not isinstance(stage, torch.nn.Module):
                raise errors.Argument(
                    f"stages[{index}] made {type(stage).__name__}: a torch.nn.Module is wanted"
                )
        check_module(f"stage {index}", stage)
        return stage

    def opened(self, index: int) -> Any:
        """As module(); Argument when it has other parameters than at the first time."""
        module = self.module(index)
        had = [(name, tuple(p.shape), p.requires_grad) for name, p in module.named_parameters()]
        wanted = [(p.own, p.shape, p.trained) for p in self.plans[index].parameters]
        if had != wanted:
            raise errors.Argument(
                f"stages[{index}] makes another module each time: first with the parameters {wanted}, "
                f"then with {had}; it must depend on nothing but torch's random numbers"
            )
        return module

    def _look_at(self, index: int, value: Any, samples: Samples) -> tuple[list[Parameter], Any]:
        """A stage's parameters and output, the loss of the last. A module from a function is gone
        afterwards."""
        module = self.module(index)
        parameters = self._parameters(index, module)
        output = self._probe(index, module, value)
        if index + 1 == len(self.pipeline.stages):
            output = self._probe_loss(output, samples.half(TARGET, 0, 0))
        outputs = list(map(_tensor, arguments(output)))
        self._ways.append(_reach.ways(outputs, tensors_in(value) if index else (), module.named_parameters()))
        many = isinstance(output, (tuple, list))
        return parameters, tuple(map(_detached, output)) if many else _detached(output)

    def _parameters(self, index: int, module: Any) -> list[Parameter]:
        named = list(module.named_parameters())
        for name, parameter in named:
            _check_parameter(f"stage {index}: parameter {name}", parameter)
            self._check_shared(f"stage {index}: {name}", parameter)
        decay = self._decay(index, named)
        return [
            Parameter(name, name, tuple(p.shape), p.requires_grad, p.requires_grad and id(p) in decay)
            for name, p in named
        ]

    def _check_shared(self, name: str, parameter: Any) -> None:
        keys = (id(parameter), parameter.untyped_storage().data_ptr())
        for key in keys if parameter.numel() else keys[:1]:
            other, of = self._seen.get(key, (lambda: None, ""))
            if other() is not None:
                raise errors.Unsupported(
                    f"{of} and {name} share memory. A parameter belongs to one stage, and within one stage "
                    "what is "
                    "tied is the same Parameter: give each its own, or put the modules that share it into "
                    "one stage"
                )
            self._seen[key] = (weakref.ref(parameter), name)

    def _decay(self, index: int, named: list[tuple[str, Any]]) -> set[int]:
        """The ids of those that decay; notes the optimizer's numbers."""
        trained = [(name, p) for name, p in named if p.requires_grad]
        if not trained:
            return set()
        where = f"the optimizer of stage {index}"
        with _user.within(where):
            optimizer = _optimizer(self.pipeline.optimizer, trained)
        _check_kind(where, optimizer)
        numbers, decay, given = _groups(where, optimizer.param_groups)
        self._numbers.append((where, numbers))
        for name, parameter in trained:
            if id(parameter) not in given:
                raise errors.Argument(
                    f"{where} does not have {name}: give it all parameters, or make this one constant "
                    "with requires_grad_(False)"
                )
        return decay

    def _one_optimizer(self) -> Numbers:
        if not self._numbers:
            raise errors.Argument(
                "no stage has a parameter that requires a gradient: there is nothing to train"
            )
        decaying = [(where, n) for where, n in self._numbers if n.weight_decay]
        of, first = (decaying or self._numbers)[0]
        for where, numbers in self._numbers:
            if numbers._replace(weight_decay=numbers.weight_decay or first.weight_decay) != first:
                raise errors.Unsupported(
                    f"{of} has {first}, and {where} {numbers}: one AdamW for all stages is wanted"
                )
        return first

    def _probe(self, index: int, module: Any, value: Any) -> Any:
        """The module's output. Unsupported: it changes a parameter or a buffer."""
        before = {name: (tensor, tensor.detach().clone()) for name, tensor in _held(module)}
        _user.seed(self.seed, "forward", index, 0, 0)
        with torch.enable_grad(), _user.within(f"stage {index}"):
            output = module(*map(_sent, arguments(value)) if index else arguments(value))
        after = dict(_held(module))
        for name in {**before, **after}:
            was, values = before.get(name, (None, None))
            if after.get(name) is not was or not _same(was, values):
                raise errors.Unsupported(changed(f"stage {index}", name))
        return output

    def _probe_loss(self, output: Any, target: Any) -> Any:
        loss = self.pipeline.loss
        if isinstance(loss, torch.nn.Module) and any(p.requires_grad for p in loss.parameters()):
            raise errors.Unsupported(
                "pipeline(loss=...) has parameters that require a gradient, and only stages are "
                "trained: put them into the last stage"
            )
        with torch.enable_grad(), _user.within("the loss"):
            value = loss(output, target)
        check_loss(value)
        return value


def _tensor(value: Any) -> Any:
    """What is no tensor has no gradient; whoever sends it says what is wrong with it."""
    return value if isinstance(value, torch.Tensor) else torch.empty(0)


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else value


def _sent(value: Any) -> Any:
    """As a stage gets what the one before it returned."""
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.requires_grad_().clone()
    return value


def _held(module: Any) -> list[tuple[str, Any]]:
    return [*module.named_parameters(), *module.named_buffers()]


def _same(tensor: Any, values: Any) -> bool:
    now = tensor.detach()
    return torch.equal(now, values) or (
        now.is_floating_point() and torch.equal(now.nan_to_num(), values.nan_to_num())
    )


def changed(where: str, name: str) -> str:
    return (
        f"{where}: a forward changes {name}. What a micro-batch leaves behind would depend on the order of "
        "micro-batches: "
        "use a layer without it (BatchNorm with track_running_stats=False, GroupNorm, LayerNorm)"
    )


def arguments(value: Any) -> tuple[Any, ...]:
    """What a stage is called with: a tuple or list as several arguments."""
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def check_loss(loss: Any) -> None:
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or not loss.is_floating_point():
        what = f"{loss.dtype}{list(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
        raise errors.Argument(
            f"pipeline(loss=...) returned {what}: one floating number is wanted, the mean over the "
            "micro-batch"
        )


def check_module(where: str, module: Any) -> None:
    """Unsupported: wrappers that do what pawl does, or that hide the parameters."""
    for name, part in module.named_modules():
        kind = type(part).__name__
        if (
            isinstance(
                part,
                (torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel, torch.jit.ScriptModule),
            )
            or kind == "FullyShardedDataParallel"
            or hasattr(part, "_orig_mod")
        ):
            raise errors.Unsupported(
                f"{where}{'.' if name else ''}{name} is a {kind}: give the plain module inside it; "
                "replicas and their sums are pawl's"
            )


def _check_parameter(where: str, parameter: Any) -> None:
    if isinstance(parameter, torch.nn.parameter.UninitializedParameter):
        raise errors.Unsupported(
            f"{where} has no shape yet: call the lazy module once before pawl.pipeline()"
        )
    if type(parameter.detach()) is not torch.Tensor or parameter.layout != torch.strided:
        raise errors.Unsupported(
            f"{where} is a {type(parameter.data).__name__} of layout {parameter.layout}: a dense "
            "tensor is wanted"
        )
    if parameter.device.type != "cpu":
        raise errors.Unsupported(
            f"{where} is on the device {parameter.device}: stages compute on the processor"
        )
    if parameter.dtype != torch.float32:
        raise errors.Unsupported(
            f"{where} is of type {parameter.dtype}: parameters are float32; compute in another type "
            "with torch.autocast inside the stage"
        )
    if parameter.dim() > RANK_MAX:
        raise errors.Unsupported(f"{where} has {parameter.dim()} dimensions, at most {RANK_MAX}")


def _optimizer(function: Any, trained: list[tuple[str, Any]]) -> Any:
    code = getattr(function, "__code__", None)
    first = code.co_varnames[0] if code is not None and code.co_argcount else ""
    return function(list(trained) if "named" in first else [parameter for _, parameter in trained])


def _check_kind(where: str, optimizer: Any) -> None:
    plain = type(optimizer) is torch.optim.Adam and all(not g["weight_decay"] for g in optimizer.param_groups)
    if type(optimizer) is not torch.optim.AdamW and not plain:
        raise errors.Unsupported(
            f"{where} is {type(optimizer).__name__}: torch.optim.AdamW is wanted (or Adam without "
            "weight decay, which is the same)"
        )


def _groups(where: str, groups: list[dict[str, Any]]) -> tuple[Numbers, set[int], set[int]]:
    """The numbers that all groups share, the ids of what decays, the ids of all."""
    found: list[tuple[float, float, float, float]] = []
    decay: set[int] = set()
    given: set[int] = set()
    for group in groups:
        for flag in ("amsgrad", "maximize"):
            if group.get(flag):
                raise errors.Unsupported(f"{where} has {flag}=True, which is not supported")
        beta1, beta2 = group["betas"]
        found.append((float(group["lr"]), float(beta1), float(beta2), float(group["eps"])))
        ids = {id(parameter) for parameter in group["params"]}
        given |= ids
        decay |= ids if group["weight_decay"] else set()
    if len(set(found)) > 1:
        raise errors.Unsupported(
            f"{where} has groups with different (lr, beta1, beta2, eps): {found}; one is wanted"
        )
    decays = {float(g["weight_decay"]) for g in groups} - {0.0}
    if len(decays) > 1:
        raise errors.Unsupported(
            f"{where} has groups with the weight decays {sorted(decays)}: one, and 0, are possible"
        )
    return Numbers(*found[0], max(decays, default=0.0)), decay, given


def _prefixed(names: list[list[str]]) -> list[bool]:
    """Which stages have a name that another stage has, too."""
    count = Counter(name for of_stage in names for name in of_stage)
    return [any(count[name] > 1 for name in of_stage) for of_stage in names]
