"""A model as a pipeline of PyTorch modules, for `pawl train` with `run: {engine: torch}`.

    # train_me.py
    import pawl, torch
    pipeline = pawl.pipeline(stages=[front, back], loss=torch.nn.functional.cross_entropy, data=dataset,
                             optimizer=lambda params: torch.optim.AdamW(params, lr=3e-4))

The file says what is computed and on which samples; when, where and after which failures is pawl's. Nothing
here needs torch, and nothing is computed: each worker process imports the file and takes from it what its
stages need. docs/pytorch-pipeline.md is the guide. Tested in tests/python/pipeline_test.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from . import errors

__all__ = ["Pipeline", "pipeline"]


class Pipeline:
    """What pipeline() returns. The attributes are its arguments; they are not changed by anybody."""

    def __init__(
        self,
        stages: Iterable[Any],
        loss: Callable[[Any, Any], Any],
        data: Any,
        optimizer: Callable[[Any], Any],
        collate: Callable[[list[Any]], Any] | None,
    ) -> None:
        self.stages = tuple(stages)
        self.loss, self.data, self.optimizer, self.collate = loss, data, optimizer, collate
        if not self.stages:
            raise errors.Argument("pipeline(stages=[]): at least one stage is wanted")
        for index, stage in enumerate(self.stages):
            _check_callable(
                f"stages[{index}]", stage, "a torch.nn.Module, or a function without arguments that makes one"
            )
        _check_callable("loss", loss, "a function of (output of the last stage, target)")
        _check_callable("optimizer", optimizer, "a function of parameters that returns a torch.optim.AdamW")
        if collate is not None:
            _check_callable("collate", collate, "a function of a list of samples")
        for method in ("__len__", "__getitem__"):
            if not hasattr(data, method):
                raise errors.Argument(
                    f"pipeline(data=...): {type(data).__name__} has no {method}: give a map-style "
                    "data set, with len(data) and data[i] -> (input, target)"
                )


def pipeline(
    *,
    stages: Iterable[Any],
    loss: Callable[[Any, Any], Any],
    data: Any,
    optimizer: Callable[[Any], Any],
    collate: Callable[[list[Any]], Any] | None = None,
) -> Pipeline:
    """Describes a model of several stages. All arguments by name.

    stages     torch.nn.Module objects, or functions without arguments that make one. Parameters float32 on
               the processor, of no other stage. The first stage is called with the input of a micro-batch,
               others with what the stage before returned: a tensor, or a tuple of tensors as several
               arguments. Shapes are the same for every micro-batch. A module keeps nothing from call to call
               but parameters.
    loss       (output of the last stage, target) -> the mean over the micro-batch, a floating scalar.
    data       map-style: len(data), data[i] -> (input, target). Fetched one by one, in the worker's thread.
    optimizer  parameters of one stage -> torch.optim.AdamW over all that require a gradient. Only its numbers
               are used. A function whose argument's name has "named" in it gets (name, parameter) pairs.
    collate    list of samples -> (input, target) of a micro-batch; None: torch.utils.data.default_collate.

    Errors: Argument. What torch has to say is checked when `pawl train` starts.
    """
    return Pipeline(stages, loss, data, optimizer, collate)


def _check_callable(what: str, value: Any, wanted: str) -> None:
    if not callable(value):
        raise errors.Argument(f"pipeline({what}): {wanted} is wanted, and got {type(value).__name__}")
