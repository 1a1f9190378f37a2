"""Micro-batches of the user's data set: which samples, fetched the same in every process.

Sample n of the run, n = (step * contributions + microbatch) * batch + row, is sample n modulo len(data) of
the order of epoch n // len(data), the keyed permutation of pawl.data: it does not depend on pipelines or
stages, nothing is dropped, and a global batch goes on into the next epoch. The first stage needs the input
and the last one the target, maybe in two processes: all generators are set by (seed, step, microbatch) before
a fetch, so that random augmentation is the same in both. Tested in tests/python/pipeline_test.py.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Iterator

import torch

from . import _user, errors, stages
from .data import Permutation

KEPT = 8  # micro-batches whose other half was not asked for yet: a process that holds both ends fetches once
INPUT, TARGET = 0, 1
SAMPLES_MAX = 1 << 53  # FOREIGN_SAMPLES_MAX: what the run's description can hold


class Samples:
    """Fetches micro-batches of `pipeline.data`. Errors of the user's code go through."""

    def __init__(self, pipeline: stages.Pipeline, seed: int, batch: int, contributions: int) -> None:
        self.data, self.collate = pipeline.data, pipeline.collate or torch.utils.data.default_collate
        self.seed, self.batch, self.contributions = seed, batch, contributions
        self.size = len(pipeline.data)
        if not 1 <= self.size <= SAMPLES_MAX:
            raise errors.Argument(
                f"pipeline(data=...): len(data) is {self.size}, and 1 to {SAMPLES_MAX} is wanted"
            )
        self._orders: OrderedDict[int, Permutation] = OrderedDict()
        self._halves: OrderedDict[tuple[int, int], dict[int, tuple[Any, list[int]]]] = OrderedDict()

    def indices(self, step: int, microbatch: int) -> list[int]:
        """Which samples of the data set a micro-batch has."""
        first = (step * self.contributions + microbatch) * self.batch
        return [self._order(n // self.size)[n % self.size] for n in range(first, first + self.batch)]

    def _order(self, epoch: int) -> Permutation:
        if epoch not in self._orders:
            self._orders[epoch] = Permutation(self.size, self.seed, epoch)
            if len(self._orders) > 2:
                self._orders.popitem(last=False)
        return self._orders[epoch]

    def both(self, step: int, microbatch: int) -> tuple[Any, Any]:
        """(input, target) of a micro-batch."""
        _user.seed(self.seed, "data", step, microbatch)
        made = self.collate([self.data[index] for index in self.indices(step, microbatch)])
        if not isinstance(made, (tuple, list)) or len(made) != 2:
            what = f"{type(made).__name__}" + (f" of {len(made)}" if isinstance(made, (tuple, list)) else "")
            raise errors.Argument(
                f"pipeline(data=...): a micro-batch is {what}, and (input, target) is wanted: let "
                "data[i] return a pair, or collate make one"
            )
        return made[INPUT], made[TARGET]

    def half(self, which: int, step: int, microbatch: int) -> Any:
        """INPUT or TARGET, fetched together; again when changed in place since (they may share memory)."""
        key = (step, microbatch)
        kept = self._halves.get(key, {})
        value, versions = kept.pop(which, (None, None))
        if not kept:
            self._halves.pop(key, None)
        if versions is not None and versions == _versions(value):
            return value
        pair = self.both(step, microbatch)
        other = 1 - which
        self._halves[key] = {other: (pair[other], _versions(pair[other]))}
        if len(self._halves) > KEPT:
            self._halves.popitem(last=False)
        return pair[which]


def _versions(value: Any) -> list[int]:
    return [tensor._version for tensor in tensors_in(value)]


def tensors_in(value: Any) -> Iterator[Any]:
    """All tensors in nested tuples, lists and dicts."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from tensors_in(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from tensors_in(part)
