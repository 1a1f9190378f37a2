"""Which parameters the gradient of the loss comes to, found on the graphs of one sample micro-batch.

A stage's graph is looked at while it exists, without a backward, and only the ways through it are kept: no
two stages are in memory for it. Errors: Argument, with the stage and what to change. Tested in
tests/python/pipeline_errors_test.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from . import errors

TOLD_MAX = 3  # names in an error
CUTS = ".detach(), .data, .item(), argmax, numpy, torch.no_grad() and checkpoint(use_reentrant=True) cut it"


class Ways(NamedTuple):
    """Through one stage. inputs: of each of its outputs, the numbers of the inputs it depends on.
    parameters: likewise, the names of those that require a gradient. trained: all such names."""

    inputs: tuple[frozenset[int], ...]
    parameters: tuple[frozenset[str], ...]
    trained: tuple[str, ...]


def leaves(tensor: Any) -> set[int]:
    """The ids of the tensors that require a gradient and that autograd follows `tensor` to."""
    if tensor.grad_fn is None:
        return {id(tensor)} if tensor.requires_grad else set()
    found, seen, left = set(), {tensor.grad_fn}, [tensor.grad_fn]
    while left:
        node = left.pop()
        variable = getattr(node, "variable", None)
        if variable is not None:
            found.add(id(variable))
        fresh = {after for after, _ in node.next_functions if after is not None} - seen
        seen |= fresh
        left += fresh
    return found


def ways(outputs: Iterable[Any], inputs: Iterable[Any], named: Iterable[tuple[str, Any]]) -> Ways:
    """Of a stage that has computed `outputs`, tensors, from `inputs` (the leaves) and its parameters."""
    reached = [leaves(output) for output in outputs]
    places, trained = list(enumerate(inputs)), [(name, p) for name, p in named if p.requires_grad]
    return Ways(
        tuple(frozenset(place for place, leaf in places if id(leaf) in found) for found in reached),
        tuple(frozenset(name for name, p in trained if id(p) in found) for found in reached),
        tuple(name for name, _ in trained),
    )


def check(stages: list[Ways]) -> None:
    """Follows the gradient from the loss, the only output of the last stage, to the first stage. Argument:
    it comes to no parameter of a stage that has some to train."""
    if not stages[-1].inputs[0] and not stages[-1].parameters[0]:
        raise errors.Argument(
            "pipeline(loss=...) returned a number without a gradient: nothing would be trained. Compute it "
            f"from the output of stage {len(stages) - 1} by operations that autograd follows, in the stage "
            f"and in the loss: {CUTS}"
        )
    live: frozenset[int] = frozenset({0})
    for index, stage in reversed(list(enumerate(stages))):
        if stage.trained and not any(stage.parameters[output] for output in live):
            raise errors.Argument(_untrained(index, stage, bool(live)))
        live = frozenset().union(*(stage.inputs[output] for output in live))


def _untrained(index: int, stage: Ways, asked: bool) -> str:
    names = ", ".join(stage.trained[:TOLD_MAX])
    more = len(stage.trained) - TOLD_MAX
    where = (
        f"the loss depends on none of them through what stage {index} returns"
        if asked
        else f"stage {index + 1} computes the loss from nothing that stage {index} returns"
    )
    return (
        f"stage {index}: no gradient of the loss comes to its parameters {names}"
        f"{f' and {more} more' if more > 0 else ''}: {where}. {CUTS}; what is to stay as it is gets "
        "requires_grad_(False)"
    )
