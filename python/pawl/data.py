"""Where training is in its data: a sampler that goes on exactly where a saved step left it.

Sampler makes every rank's indices of every global batch from (seed, epoch, position) alone: the order of an
epoch is a keyed permutation that is computed index by index and never stored, so that going on costs the same
at any position. The position counts samples of the whole job that were trained on (Checkpointer.step() moves
it by pawl_step()), not what workers fetched ahead; it knows nothing of ranks, so another number of ranks
takes up the same global batches.

Nothing here needs torch: a Sampler is an iterable of lists of indices. As a DataLoader's batch_sampler it
works with any number of workers. Not safe for several threads at once. Tested in tests/python/data_test.py;
docs/pytorch-data.md."""
from __future__ import annotations

import hashlib
import os
import struct
import sys
from typing import Any, Dict, Iterator, List, Optional, Tuple

__all__ = ["Loader", "Sampler"]

# of the Feistel network: 4 make a strong permutation of a random function; twice that for tiny halves
ROUNDS = 8
WORD = 0xFFFFFFFF
SIZE_MAX = 1 << 62  # both halves of an index fit 32 bits: the mixing below works on words of 32 bits
STATE_VERSION = 1
STALE = ("this iterator was made before the position was loaded: call resume() first, and iter() of the "
         "sampler, the DataLoader or the Loader after it")


class Permutation:
    """A bijection of 0..size-1, chosen by (seed, epoch, size): the same on every machine and every Python.

    An alternating Feistel network over the next power of two, walked until it falls below size: less than two
    walks an index on average. Source: Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA
    2002, section 5."""

    def __init__(self, size: int, seed: int, epoch: int) -> None:
        bits = max(2, (size - 1).bit_length())
        self.size = size
        self.low_bits = bits // 2
        self.low_mask = (1 << self.low_bits) - 1
        self.high_mask = (1 << (bits - self.low_bits)) - 1
        text = f"pawl order 1 {size} {seed} {epoch}".encode()
        self.keys = struct.unpack(f"<{ROUNDS}I", hashlib.blake2b(text, digest_size=4 * ROUNDS).digest())

    def __getitem__(self, index: int) -> int:
        while True:
            index = self._once(index)
            if index < self.size:
                return index

    def _once(self, index: int) -> int:
        low, high = index & self.low_mask, index >> self.low_bits
        for round_, key in enumerate(self.keys):
            word = (high if round_ % 2 == 0 else low) ^ key
            word = ((word ^ (word >> 16)) * 0x85EBCA6B) & WORD  # the finalizer of MurmurHash3
            word = ((word ^ (word >> 13)) * 0xC2B2AE35) & WORD
            word ^= word >> 16
            if round_ % 2 == 0:
                low ^= word & self.low_mask
            else:
                high ^= word & self.high_mask
        return high << self.low_bits | low


class Sampler:
    """Lists of indices of one rank's part of each global batch: a DataLoader's batch_sampler, or a plain
    iterable.

    iter() begins at the position and ends with the epoch; the next iter() is of the next epoch, once the last
    batch was counted by pawl_step(). Rank r of `world` gets a run of each global batch; the runs, in the
    order of the ranks, are the global batch whatever `world` is, and differ by one sample at most. len() is
    of a whole epoch, in batches.

    size          samples of the data set, 1 and more
    global_batch  samples of one batch of all ranks together, `world` and more
    rank, world   None: those of torch.distributed where it is initialised, else one rank
    shuffle       False: every epoch in the order 0, 1, ...
    seed          of the order; the same on all ranks
    drop_last     True: what is left of an epoch and is no whole global batch is not used in that epoch

    Errors: ValueError (a number out of range, a last batch with less samples than ranks), TypeError (not an
    integer), RuntimeError (ranks asked for before torch.distributed is initialised; a batch of an iterator
    that a later load_state_dict() has made wrong; a step without a batch)."""

    def __init__(self, size: int, global_batch: int, *, rank: Optional[int] = None,
                 world: Optional[int] = None,
                 shuffle: bool = True, seed: int = 0, drop_last: bool = False) -> None:
        self.rank, self.world = _place(rank, world)
        self.size = _whole("size", size, 1, SIZE_MAX)
        self.global_batch = _whole("global_batch", global_batch, self.world, SIZE_MAX)
        self.shuffle, self.drop_last = bool(shuffle), bool(drop_last)
        self.seed = _whole("seed", seed, -(1 << 63), (1 << 64) - 1)
        self.epoch = 0
        self.consumed = 0  # samples of this epoch that were trained on, all ranks together
        # (epoch, samples) the newest iterator has given out up to
        self._issued: Optional[Tuple[int, int]] = None
        # where a Loader's next iterator begins, if not at the position
        self._begin_at: Optional[Tuple[int, int]] = None
        self._loads = 0  # an iterator made before a load_state_dict() must not go on after it
        self._check_rest(0)
        if self.drop_last and self.global_batch > self.size:
            raise ValueError(f"drop_last with a global_batch of {self.global_batch} leaves nothing of "
                             f"{self.size} samples: take a smaller batch, or drop_last=False")

    def __len__(self) -> int:
        return self.size // self.global_batch if self.drop_last else -(-self.size // self.global_batch)

    def __iter__(self) -> Iterator[List[int]]:
        return (indices for _, indices in self.numbered())

    def numbered(self) -> Iterator[Tuple[int, List[int]]]:
        """As iter(), each with the samples of the whole global batch: what a sum over it is divided by for
        its mean."""
        # the position is that of this call, not of the first batch
        return self._batches(self._loads, *self._start())

    def _start(self) -> Tuple[int, int]:
        start = self._begin_at if self._begin_at is not None else (self.epoch, self.consumed)
        self._issued = start
        return start

    def _batches(self, loads: int, epoch: int, begin: int) -> Iterator[Tuple[int, List[int]]]:
        order = Permutation(self.size, self.seed, epoch) if self.shuffle else range(self.size)
        while True:
            count = self._count(begin)
            if count == 0:
                return
            if loads != self._loads:
                raise RuntimeError(STALE)
            self._issued = (epoch, begin + count)
            yield count, [order[begin + i] for i in self._share(count)]
            begin += count

    def pawl_step(self, batches: int = 1) -> None:
        """Counts `batches` global batches as trained on. Called by Checkpointer.step() before it saves."""
        for _ in range(_whole("batches", batches, 0, SIZE_MAX)):
            end = (self.epoch, self.consumed + self._count(self.consumed))
            if self._issued is None or self._issued < end:
                raise RuntimeError(f"a step at sample {self.consumed} of epoch {self.epoch} without a batch "
                                   "from this sampler: is it the batch_sampler of the DataLoader that is "
                                   "trained from?")
            self._advance(end[1])

    def _advance(self, consumed: int) -> None:
        self.consumed = consumed
        if self._count(consumed) == 0:
            self.epoch, self.consumed = self.epoch + 1, 0

    def state_dict(self) -> Dict[str, Any]:
        """The position and what it is a position of: plain values, equal on all ranks."""
        return {"version": STATE_VERSION, "size": self.size, "seed": self.seed, "shuffle": self.shuffle,
                "epoch": self.epoch, "consumed": self.consumed}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Goes to a saved position. global_batch, drop_last and the ranks may differ: the epoch's other
        samples follow.

        Errors, and nothing taken over: those of check_state()."""
        self.epoch, consumed = self._position(state)
        self._advance(consumed)
        self._loads += 1
        self._issued = None

    def check_state(self, state: Dict[str, Any]) -> None:
        """What load_state_dict() would refuse of a saved position, without going there; Checkpointer.resume()
        asks before it loads anything.

        ValueError with all that differs: another size, seed or shuffle is another order. ValueError,
        TypeError: no position, or none in this data."""
        self._position(state)

    def _position(self, state: Any) -> Tuple[int, int]:
        """Epoch and samples consumed of a saved state that fits."""
        if not isinstance(state, dict) or "version" not in state:
            raise ValueError("what was saved is no position of a pawl.data.Sampler: give the object that was "
                             "saved by this name")
        differs = [f"{key}: saved {state.get(key)!r}, here {wanted!r}" for key, wanted in
                   (("version", STATE_VERSION), ("size", self.size), ("seed", self.seed),
                    ("shuffle", self.shuffle))
                   if state.get(key) != wanted]
        if differs:
            raise ValueError("the saved position is of other data or another order ("
                             + "; ".join(differs) + "): give the sampler the same values. To go on with "
                             "other data, load with them, then save with a new sampler to another folder")
        epoch = _whole("epoch", state.get("epoch"), 0, SIZE_MAX)
        consumed = _whole("consumed", state.get("consumed"), 0, self.size - 1)
        self._check_rest(consumed)
        return epoch, consumed

    def _count(self, begin: int) -> int:
        """Samples of the global batch that begins there; 0 at the epoch's end."""
        count = min(self.global_batch, self.size - begin)
        return 0 if self.drop_last and count < self.global_batch else count

    def _share(self, count: int) -> range:
        return range(count * self.rank // self.world, count * (self.rank + 1) // self.world)

    def _check_rest(self, begin: int) -> None:
        """No rank may be left without a sample: it would not take part in the step's collectives."""
        rest = (self.size - begin) % self.global_batch
        if not self.drop_last and 0 < rest < self.world:
            raise ValueError(f"the last batch from sample {begin} of {self.size} has {rest} samples for "
                             f"{self.world} ranks: give drop_last=True, or another global_batch than "
                             f"{self.global_batch}")


class Loader:
    """One batch after another over all epochs, without end, counting what was handed out.

    Loader(DataLoader(data, batch_sampler=Sampler(...))), or Loader(Sampler(...)) for the indices themselves.
    Given to the Checkpointer in the sampler's place: each step() counts the batches handed out since the last
    one, so that several batches a step (accumulated gradients) are right as well. What workers have fetched
    ahead is not counted.

    Errors: TypeError (what is wrapped does not follow a Sampler), RuntimeError (as Sampler, and at the first
    batch)."""

    def __init__(self, source: Any) -> None:
        sampler = source if isinstance(source, Sampler) else getattr(source, "batch_sampler", None)
        if not isinstance(sampler, Sampler):
            raise TypeError(f"Loader wants a pawl Sampler or a DataLoader with one as its batch_sampler, and "
                            f"got {type(source).__name__} with {type(sampler).__name__}")
        self.source, self.sampler = source, sampler
        self._handed_out = 0  # batches since the last pawl_step()

    def __iter__(self) -> Iterator[Any]:
        """Begins at the position of its first batch's time, so that zip(ckpt.steps(n), loader) resumes before
        it.

        One iterator at a time: a new one begins at the position again.
        """
        self._handed_out = 0
        loads, epoch, begin = self.sampler._loads, self.sampler.epoch, self.sampler.consumed
        while True:
            for batch in self._open(epoch, begin):
                if loads != self.sampler._loads:
                    raise RuntimeError(STALE)
                self._handed_out += 1
                yield batch
            epoch, begin = epoch + 1, 0  # the sampler may be behind: its last batches are not counted yet

    def _open(self, epoch: int, begin: int) -> Iterator[Any]:
        """A DataLoader draws a seed for its workers from torch's generator when it is iterated. After a
        resume it is iterated where the undisturbed run was not: the generator must not show it."""
        torch = sys.modules.get("torch")
        numbers = torch.get_rng_state() if torch is not None else None
        self.sampler._begin_at = (epoch, begin)
        try:
            return iter(self.source)
        finally:
            self.sampler._begin_at = None
            if torch is not None:
                torch.set_rng_state(numbers)

    def pawl_step(self) -> None:
        self.sampler.pawl_step(self._handed_out)
        self._handed_out = 0

    def state_dict(self) -> Dict[str, Any]:
        return self.sampler.state_dict()

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        self.sampler.load_state_dict(state)

    def check_state(self, state: Dict[str, Any]) -> None:
        self.sampler.check_state(state)


def _whole(name: str, value: Any, least: int, most: int) -> int:
    """An int in least..most; numpy's integers are taken as well, True and 1.0 are not."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} is {value!r}, and an integer is wanted")
    number = value.__index__()
    if not least <= number <= most:
        raise ValueError(f"{name} is {number}, and {least} to {most} is wanted")
    return int(number)


def _place(rank: Optional[int], world: Optional[int]) -> Tuple[int, int]:
    if (rank is None) != (world is None):
        raise ValueError(f"rank is {rank} and world is {world}: give both, or neither for those of "
                         "torch.distributed")
    if rank is None:
        return _place_of_torch()
    count = _whole("world", world, 1, WORD)
    return _whole("rank", rank, 0, count - 1), count


def _place_of_torch() -> Tuple[int, int]:
    torch = sys.modules.get("torch")  # who has initialised it has imported it
    if torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise RuntimeError(f"WORLD_SIZE is {os.environ['WORLD_SIZE']} and torch.distributed is not "
                           "initialised: every rank would train on the same samples. Call "
                           "init_process_group() before this, or give rank= and world=")
    return 0, 1
