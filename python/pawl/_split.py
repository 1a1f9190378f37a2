"""The gradient of a linear layer's input apart from those of its weight and bias.

Inside `with Split(...)`, torch.nn.functional.linear over a stage's own parameters goes into the graph as a
function whose backward computes the gradient of its input and notes what the parameters' gradients need: a
use. Their matrix products, half of what a backward costs, are left for later: gradients(). All other
operations, a linear layer under autocast or over computed weights included, keep autograd's own gradients,
which come with the input's.

The function in torch.nn.functional is exchanged while inside: torch.utils.checkpoint computes parts of a
forward again in the middle of a backward, where a TorchFunctionMode is switched off, and must find what it
found before.

A parameter's gradient is the sum of autograd's part and its uses in the order of the forward, so that the
bits do not depend on when it is asked for. A backward that user code itself runs inside the forward gets
everything at once. One thread, one Split at a time. Tested in tests/python/pipeline_test.py.
"""

from __future__ import annotations

from typing import Any, Sequence

import torch

LINEAR = torch.nn.functional.linear


class Use:
    """One call of linear: which parameters (places in the stage's list); later the input and the gradient."""

    __slots__ = ("split", "weight", "bias", "input", "gradient")

    def __init__(self, split: Split, weight: int, bias: int | None) -> None:
        self.split, self.weight, self.bias = split, weight, bias
        self.input: Any = None
        self.gradient: Any = None


class _Linear(torch.autograd.Function):
    """linear(); the parameters are inputs of it, so that backward comes here for their sake as well."""

    @staticmethod
    def forward(ctx: Any, input: Any, weight: Any, bias: Any, use: Use) -> Any:
        ctx.use = use
        ctx.save_for_backward(input, weight)
        return LINEAR(input, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        input, weight = ctx.saved_tensors
        inner = gradient @ weight if ctx.needs_input_grad[0] else None
        if ctx.use.split.deferring:
            ctx.use.input, ctx.use.gradient = input.detach(), gradient.detach()
            return inner, None, None, None
        of_weight = _of_weight(input, gradient) if ctx.needs_input_grad[1] else None
        of_bias = _of_bias(gradient) if ctx.needs_input_grad[2] else None
        return inner, of_weight, of_bias, None


_linear: Any = _Linear.apply


class Split:
    """Of one micro-batch in one stage. leaves: the stage's parameters as the forward is given them.

    Enter it around the forward, and with `deferring` set around the backward."""

    def __init__(self, leaves: Sequence[Any]) -> None:
        self.places = {id(leaf): place for place, leaf in enumerate(leaves) if leaf.requires_grad}
        self.uses: list[Use] = []
        self.deferring = False

    def __enter__(self) -> None:
        torch.nn.functional.linear = self._linear

    def __exit__(self, *error: Any) -> None:
        torch.nn.functional.linear = LINEAR

    def _linear(self, input: Any, weight: Any, bias: Any = None) -> Any:
        of_weight, of_bias = self.places.get(id(weight)), self.places.get(id(bias))
        if (
            of_weight is None
            or (bias is not None and of_bias is None)
            or type(input) is not torch.Tensor
            or input.dtype != weight.dtype
            or input.layout != torch.strided
            or torch.is_autocast_enabled("cpu")
            or not torch.is_grad_enabled()
        ):
            return LINEAR(input, weight, bias)
        use = Use(self, of_weight, of_bias)
        try:
            output = _linear(input, weight, bias, use)
        except RuntimeError as error:
            if "functorch" not in str(error):
                raise
            return LINEAR(input, weight, bias)  # inside torch.func.vmap, grad, ...
        self.uses.append(use)
        return output

    def forget(self) -> None:
        """Lets go of what the uses hold, now rather than when cycles are collected."""
        for use in self.uses:
            use.input = use.gradient = None
        self.uses.clear()


def gradients(split: Split, parts: list[Any]) -> list[Any]:
    """Each parameter's gradient from autograd's part (None: none) and the uses; None: it was not used."""
    sums = list(parts)
    for use in split.uses:
        if use.gradient is None:
            continue  # the loss does not depend on it
        _add(sums, use.weight, _of_weight(use.input, use.gradient))
        if use.bias is not None:
            _add(sums, use.bias, _of_bias(use.gradient))
    return sums


def _of_weight(input: Any, gradient: Any) -> Any:
    return gradient.reshape(-1, gradient.shape[-1]).t() @ input.reshape(-1, input.shape[-1])


def _of_bias(gradient: Any) -> Any:
    return gradient.reshape(-1, gradient.shape[-1]).sum(0)


def _add(sums: list[Any], place: int, part: Any) -> None:
    sums[place] = part if sums[place] is None else sums[place] + part
