"""struct pawl_engine over PyTorch: what the C executor calls to compute the stages of a pawl.pipeline.

Torch is made deterministic. A forward runs the stage's module by torch.func.functional_call over views of the
version's own memory, with all generators set by (seed, stage, step, micro-batch); `input_grad` is one
backward, in which linear layers leave out their parameters' part (_split); `weight_grad` computes that. The
flags no_input_grad and no_weight_grad change what is handed over, never what is computed: the bits of one do
not depend on the other.

Callbacks let no exception out. Those of the user's code become USER, with their traceback on the standard
error output; pawl's own keep their code. One thread. Tested in tests/python/pipeline_test.py.
"""

from __future__ import annotations

import inspect
import os
from collections import OrderedDict
from contextlib import contextmanager
from typing import Any, Callable, Iterator

import torch

from . import _model, _user, _wire, errors
from ._abi import CError
from ._samples import INPUT, TARGET, Samples
from ._split import Split, gradients
from ._train_abi import (
    CEngine,
    CEngineCall,
    CEngineLayout,
    CEngineOptimizer,
    CEngineTensor,
    code_number,
)

VIEWS = 16  # versions whose views a stage keeps: the executor has 3 and a few for saves
TORCH_MIN = (2, 4)  # torch.func, torch.is_autocast_enabled of a device, dtype.itemsize
ENDED = 130  # exit code after KeyboardInterrupt


class _Holder(torch.nn.Module):
    """Runs a function while the module has a version's parameters: its forward, or a backward that user code
    takes part in (torch.utils.checkpoint calls parts of the forward again)."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, function: Callable[[], Any]) -> Any:
        return function()


class _Given(torch.autograd.Function):
    """A number whose gradients are those given. (autograd.grad's grad_outputs import sympy: seconds.)"""

    @staticmethod
    def forward(ctx: Any, gradients: tuple[Any, ...], *outputs: Any) -> Any:
        ctx.gradients = gradients
        return torch.zeros(())

    @staticmethod
    def backward(ctx: Any, one: Any) -> Any:
        return None, *ctx.gradients


_given: Any = _Given.apply


class _Slot:
    """A micro-batch in a stage, from forward to drop."""

    def __init__(self, leaves: list[Any], split: Split) -> None:
        self.leaves, self.split = leaves, split
        self.inputs: list[Any] = []  # leaves of the graph over what the stage before sent; None: no gradient
        self.outputs: list[Any] = []  # the loss on the last stage
        self.parts: list[Any] = []  # autograd's part of the parameters' gradients, after input_grad


class _Stage:
    """An open stage."""

    def __init__(self, index: int, module: Any, plan: _model.Plan) -> None:
        self.index, self.module, self.plan = index, module, plan
        self._holder = _Holder(module)
        self.layout = _layout_tensors(plan)
        self.slots: dict[int, _Slot] = {}
        self.kept_bytes: int | None = None  # of a micro-batch; measured at the first forward
        self._views: OrderedDict[tuple[int, ...], list[Any]] = OrderedDict()
        self._buffers: list[tuple[str, Any, int]] = [(n, b, b._version) for n, b in module.named_buffers()]

    def leaves(self, params: int, offsets: list[int]) -> list[Any]:
        """The parameters of a version, as leaves of the graph."""
        key = (params, *offsets)
        if key not in self._views:
            self._views[key] = [
                _wire.at(params + 4 * offset, torch.float32, p.shape).requires_grad_(p.trained)
                for p, offset in zip(self.plan.parameters, offsets, strict=True)
            ]
            if len(self._views) > VIEWS:
                self._views.popitem(last=False)
        self._views.move_to_end(key)
        return self._views[key]

    def run(self, slot: _Slot, function: Callable[[], Any]) -> Any:
        """function() with the slot's parameters in the module and its linear layers split."""
        named = {f"inner.{p.own}": leaf for p, leaf in zip(self.plan.parameters, slot.leaves, strict=True)}
        with torch.enable_grad(), slot.split:
            return torch.func.functional_call(self._holder, named, (function,))

    def check_unchanged(self, leaves: list[Any]) -> None:
        """Errors: Unsupported, when a forward has changed a buffer or a parameter."""
        for (name, was, version), now in zip(self._buffers, self.module.buffers()):
            if now is not was or now._version != version:
                raise errors.Unsupported(_model.changed(f"stage {self.index}", name))
        for parameter, leaf in zip(self.plan.parameters, leaves):
            if leaf._version:
                raise errors.Unsupported(_model.changed(f"stage {self.index}", parameter.own))


class Engine:
    """Computes the stages of one job. struct() is for pawl_engine_register; the Engine must outlive it."""

    def __init__(self) -> None:
        self._stages: dict[int, _Stage] = {}
        self._given: list[Any] = []  # gradients handed to C, until the next call
        self._model: _model.Model | None = None
        self._samples: Any = None
        self._seed = 0
        self._struct = CEngine(
            **{
                name: kind(_guarded(getattr(self, name), kind))
                for name, kind, *_ in CEngine._fields_
                if name != "context"
            }
        )

    def struct(self) -> CEngine:
        return self._struct

    def model(self) -> _model.Model:
        if self._model is None:
            raise errors.Argument("the engine was not opened, or is closed")
        return self._model

    def open(self, context: Any, job: Any) -> None:
        """Imports the user's module, finds out all about its stages, and sets torch to what is exact."""
        job = job.contents
        _check_version()
        torch.set_num_threads(max(1, job.threads))
        torch.set_deterministic_debug_mode("error")
        with _without_compiler():
            self._open(job)

    def _open(self, job: Any) -> None:
        pipeline = _user.load(os.fsdecode(job.module or b""), (job.options or b"").decode(), job.seed)
        count = len(pipeline.stages)
        if count != job.stages:
            raise errors.Argument(
                f"{os.fsdecode(job.module)} has {count} stages, and the specification has {job.stages}: set "
                f"parallel.stages to {count}"
            )
        self._seed = job.seed
        self._samples = Samples(pipeline, job.seed, job.batch, job.contributions)
        self._model = _model.Model(pipeline, job.seed, self._samples)

    def close(self, context: Any) -> None:
        self._stages.clear()
        self._given.clear()
        self._model = self._samples = None

    def optimizer(self, context: Any, out: Any) -> None:
        out[0] = CEngineOptimizer(**self.model().numbers._asdict())

    def samples(self, context: Any, out: Any) -> None:
        self.model()
        out[0] = self._samples.size

    def stage_open(self, context: Any, index: int, out: Any) -> None:
        model = self.model()
        if index >= len(model.plans):
            raise errors.Argument(f"there is no stage {index}: {len(model.plans)} are there")
        plan = model.plans[index]
        stage = self._stages[index] = _Stage(index, model.opened(index), plan)
        out[0] = CEngineLayout(
            tensors=stage.layout,
            tensor_count=len(plan.parameters),
            input_bytes=plan.incoming.bytes if plan.incoming else 0,
            output_bytes=plan.outgoing.bytes if plan.outgoing else 0,
        )

    def stage_close(self, context: Any, index: int) -> None:
        self._stages.pop(index, None)

    def init(self, context: Any, index: int, params: int, offsets: Any) -> None:
        """The values that the module's parameters have."""
        stage = self._stages[index]
        for place, parameter in enumerate(stage.module.parameters()):
            to = _wire.at(params + 4 * offsets[place], torch.float32, tuple(parameter.shape))
            to.copy_(parameter.detach())

    def forward(self, context: Any, call: Any) -> None:
        call = call.contents
        self._given.clear()
        stage = self._stages[call.stage]
        leaves = stage.leaves(call.params or 0, call.offsets[: len(stage.plan.parameters)])
        slot = _Slot(leaves, Split(leaves))
        target = None
        if stage.plan.outgoing is None:
            target = self._samples.half(TARGET, call.step, call.microbatch)
        value = self._input(stage, slot, call)
        self._run(stage, slot, value, target, call)
        stage.check_unchanged(leaves)
        if stage.plan.outgoing is None:
            call.loss = float(slot.outputs[0].detach())
        else:
            _send(stage, slot.outputs, call.output)
        stage.slots[call.slot] = slot
        call.kept_bytes = stage.kept_bytes or 0

    def _input(self, stage: _Stage, slot: _Slot, call: CEngineCall) -> Any:
        wire = stage.plan.incoming
        if wire is None:
            return self._samples.half(INPUT, call.step, call.microbatch)
        views = [_wire.at(call.input + part.at, part.dtype, part.shape) for part in wire.parts]
        slot.inputs = [view.requires_grad_() if view.is_floating_point() else None for view in views]
        with torch.enable_grad():
            values = tuple(
                view.clone() for view in views
            )  # the memory is C's, and the clone may be changed in place
        return values if wire.many else values[0]

    def _run(self, stage: _Stage, slot: _Slot, value: Any, target: Any, call: CEngineCall) -> None:
        """Fills slot.outputs."""
        loss, values = self.model().pipeline.loss, _model.arguments(value)

        def compute() -> Any:
            output = stage.module(*values)
            return output if stage.plan.outgoing is not None else loss(output, target)

        def run() -> Any:
            _user.seed(self._seed, "forward", stage.index, call.step, call.microbatch)
            return stage.run(slot, compute)

        output = _measured(stage, slot, run) if stage.kept_bytes is None else run()
        if stage.plan.outgoing is None:
            _model.check_loss(output)
        slot.outputs = list(output) if isinstance(output, (tuple, list)) else [output]
        if stage.plan.outgoing is not None:
            had = _wire.of_output(output, f"stage {stage.index}")
            if had != stage.plan.outgoing:
                raise errors.Argument(
                    f"stage {stage.index} returned {had.told()} for micro-batch {call.microbatch} of step "
                    f"{call.step}, and "
                    f"{stage.plan.outgoing.told()} for the first: shapes must be the same for every "
                    "micro-batch; pad"
                )

    def input_grad(self, context: Any, call: Any) -> None:
        call = call.contents
        self._given.clear()
        stage = self._stages[call.stage]
        slot = stage.slots[call.slot]
        asked = [t for t in [*slot.inputs, *slot.leaves] if t is not None and t.requires_grad]
        found = iter(_backward(stage, slot, asked, _gradients_in(stage, slot, call)))
        of_inputs = [next(found) if t is not None else None for t in slot.inputs]
        slot.parts = [next(found) if leaf.requires_grad else None for leaf in slot.leaves]
        slot.outputs, slot.inputs = [], []
        if stage.plan.incoming is not None and not call.no_input_grad:
            _wire.pack(stage.plan.incoming, of_inputs, call.grad_out)
        if call.no_weight_grad:
            slot.split.forget()
            slot.parts = []

    def weight_grad(self, context: Any, call: Any) -> None:
        call = call.contents
        stage = self._stages[call.stage]
        slot = stage.slots[call.slot]
        with torch.no_grad():
            sums = [_dense(g) for g in gradients(slot.split, slot.parts)]
        slot.split.forget()
        slot.parts = []
        self._given = sums
        for place, gradient in enumerate(sums):
            call.grads[place] = None if gradient is None or not gradient.numel() else gradient.data_ptr()

    def drop(self, context: Any, index: int, number: int) -> None:
        stage = self._stages.get(index)
        slot = stage.slots.pop(number, None) if stage else None
        if slot is not None:
            slot.split.forget()


def _check_version() -> None:
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < TORCH_MIN:
        raise errors.Unsupported(
            f"PyTorch here is {torch.__version__}: stages need {'.'.join(map(str, TORCH_MIN))} or newer"
        )


@contextmanager
def _without_compiler() -> Iterator[None]:
    """Inside, an optimizer is made without what keeps add_param_group from being compiled: at its first call
    that wrapper imports the compiler, seconds in every worker, for five numbers. Where torch does not wrap
    the method this changes nothing."""
    optimizer: Any = torch.optim.Optimizer
    wrapper = optimizer.add_param_group
    optimizer.add_param_group = inspect.unwrap(wrapper)
    try:
        yield
    finally:
        optimizer.add_param_group = wrapper


def _gradients_in(stage: _Stage, slot: _Slot, call: CEngineCall) -> list[Any]:
    if stage.plan.outgoing is None:
        return [torch.ones_like(slot.outputs[0])]
    return [
        _wire.at(call.grad_in + part.at, part.dtype, part.shape).clone() for part in stage.plan.outgoing.parts
    ]


def _backward(stage: _Stage, slot: _Slot, asked: list[Any], gradients_in: list[Any]) -> list[Any]:
    """Gradients of `asked`; None: the outputs do not depend on it."""
    pairs = [(out, g) for out, g in zip(slot.outputs, gradients_in, strict=True) if out.requires_grad]
    if not pairs or not asked:
        return [None] * len(asked)
    outputs, given = zip(*pairs)
    slot.split.deferring = True
    found = stage.run(
        slot, lambda: torch.autograd.grad(_given(given, *outputs), asked, allow_unused=True)
    )
    slot.split.deferring = False
    return list(found)


def _measured(stage: _Stage, slot: _Slot, run: Callable[[], Any]) -> Any:
    """run(), noting the memory that its graph keeps. What does not bear hooks is run without: 0, unknown."""
    found: dict[int, int] = {}
    own = {leaf.untyped_storage().data_ptr() for leaf in slot.leaves}

    def note(tensor: Any) -> Any:
        memory = tensor.untyped_storage()
        if memory.data_ptr() not in own:
            found[memory.data_ptr()] = memory.nbytes()
        return tensor

    try:
        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            output = run()
        stage.kept_bytes = sum(found.values())
    except Exception:  # the user's, which comes again, or torch.func's refusal of hooks
        slot.split.forget()
        output = run()
        stage.kept_bytes = 0
    return output


def _send(stage: _Stage, outputs: list[Any], address: int) -> None:
    assert stage.plan.outgoing is not None
    _wire.pack(stage.plan.outgoing, outputs, address)


def _dense(gradient: Any) -> Any:
    if gradient is None:
        return None
    return (gradient if gradient.layout == torch.strided else gradient.to_dense()).detach().contiguous()


def _layout_tensors(plan: _model.Plan) -> Any:
    tensors = (CEngineTensor * len(plan.parameters))()
    for out, p in zip(tensors, plan.parameters, strict=True):
        out.name, out.rank, out.decay = p.name.encode(), len(p.shape), p.decay
        for axis, extent in enumerate(p.shape):
            out.shape[axis] = extent
    return tensors


def _guarded(method: Callable[..., None], kind: Any) -> Callable[..., int | None]:
    """The callback of a method: its exceptions become the struct pawl_error, which C gives last."""
    fallible = kind._restype_ is not None

    def callback(*arguments: Any) -> int | None:
        try:
            method(*(arguments[:-1] if fallible else arguments))
        except KeyboardInterrupt:
            os._exit(ENDED)
        except BaseException as error:
            return _failed(error, arguments[-1] if fallible else None)
        return 0 if fallible else None

    return callback


def _failed(error: BaseException, out: Any) -> int | None:
    own = isinstance(error, errors.Error)
    code = code_number(
        error.code
        if isinstance(error, errors.Error)
        else "MEMORY"
        if isinstance(error, MemoryError)
        else "USER"
    )
    if not own or isinstance(error, errors.User) or out is None:
        _user.print_traceback(error)
    if out is None:
        return None
    if out:
        text = (str(error) if own else _user.told(error)).replace("\0", " ").encode(errors="replace")
        limit = CError.text.size - 1
        out[0] = CError(code=code, text=text[:limit].decode(errors="ignore").encode())
    return code
