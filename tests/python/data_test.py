"""The data's position: every sample once an epoch, whatever is killed, fetched ahead or re-sized."""
import importlib.util
import os
import subprocess
import sys
import unittest
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
from pawl.data import Loader, Permutation, Sampler  # noqa: E402

TORCH = importlib.util.find_spec("torch") is not None


def steps(sampler: Any, count: int) -> list[list[int]]:
    """The lists of `count` steps, each trained on, over as many epochs as it takes."""
    got: list[list[int]] = []
    while len(got) < count:
        for indices in sampler:
            got.append(indices)
            sampler.pawl_step()
            if len(got) == count:
                break
    return got


def joined(lists: Iterable[list[int]]) -> list[int]:
    return [index for one in lists for index in one]


def resumed(state: dict[str, Any], size: int, batch: int, **how: Any) -> Sampler:
    sampler = Sampler(size, batch, **how)
    sampler.load_state_dict(state)
    return sampler


class Rows:
    """A data set whose samples are their own indices."""

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> int:
        return index


class PermutationTest(unittest.TestCase):
    def test_every_size_is_a_bijection(self) -> None:
        for size in list(range(1, 140)) + [255, 256, 257, 1000, 4097]:
            order = Permutation(size, 7, 3)
            self.assertEqual(sorted(order[i] for i in range(size)), list(range(size)), f"size {size}")

    def test_the_order_is_the_same_on_every_machine(self) -> None:
        order = Permutation(1000, 1, 0)
        self.assertEqual([order[i] for i in range(8)], [940, 272, 682, 115, 914, 186, 472, 701])

    def test_epochs_and_seeds_have_orders_of_their_own(self) -> None:
        orders = {tuple(Permutation(64, seed, epoch)[i] for i in range(64))
                  for seed in range(8) for epoch in range(8)}
        self.assertEqual(len(orders), 64)

    def test_every_sample_comes_first_about_equally_often(self) -> None:
        for place in (0, 1, 5):
            counts = [0] * 10
            for seed in range(4000):
                counts[Permutation(10, seed, 0)[place]] += 1
            chi = sum((c - 400) ** 2 / 400 for c in counts)
            self.assertLess(chi, 27.9, f"place {place}: {counts}")  # 9 degrees of freedom, 0.1 %

    def test_neighbours_are_not_kept_together(self) -> None:
        order = Permutation(5000, 3, 0)
        close = sum(abs(order[i] - order[i + 1]) == 1 for i in range(4999))
        self.assertLess(close, 12)  # 2 are expected of a random order

    def test_a_huge_data_set_costs_no_more(self) -> None:
        size = 1 << 62
        order = Permutation(size, 0, 0)
        got = {order[i] for i in range(0, size, size // 100)}
        self.assertEqual(len(got), len(range(0, size, size // 100)))
        self.assertLess(max(got), size)


class SamplerTest(unittest.TestCase):
    def test_an_epoch_has_each_sample_once(self) -> None:
        for shuffle in (True, False):
            got = joined(steps(Sampler(50, 8, shuffle=shuffle), 7))
            self.assertEqual(sorted(got), list(range(50)))
            self.assertEqual(got == list(range(50)), not shuffle)

    def test_drop_last_leaves_out_what_is_no_whole_batch(self) -> None:
        sampler = Sampler(50, 8, drop_last=True)
        self.assertEqual([len(b) for b in sampler], [8] * 6)
        self.assertEqual(len(sampler), 6)
        self.assertEqual(len(Sampler(50, 8)), 7)

    def test_a_resumed_sampler_goes_on_as_if_nothing_had_happened(self) -> None:
        whole = steps(Sampler(50, 8, seed=5), 20)
        for cut in range(20):
            first = Sampler(50, 8, seed=5)
            head = steps(first, cut)
            tail = steps(resumed(first.state_dict(), 50, 8, seed=5), 20 - cut)
            self.assertEqual(head + tail, whole, f"cut at {cut}")

    def test_ranks_share_a_global_batch_and_its_sequence_does_not_depend_on_them(self) -> None:
        whole = steps(Sampler(52, 8, seed=2), 14)
        for world in (1, 2, 3, 4):
            ranks = [steps(Sampler(52, 8, seed=2, rank=r, world=world), 14) for r in range(world)]
            self.assertEqual([joined(parts) for parts in zip(*ranks)], whole, f"{world} ranks")
            for parts in zip(*ranks):
                lengths = [len(p) for p in parts]
                self.assertLessEqual(max(lengths) - min(lengths), 1)

    def test_another_number_of_ranks_takes_up_the_epoch(self) -> None:
        whole = steps(Sampler(52, 8, seed=2), 7)
        four = [Sampler(52, 8, seed=2, rank=r, world=4) for r in range(4)]
        head = [joined(parts) for parts in zip(*[steps(s, 3) for s in four])]
        three = [resumed(four[0].state_dict(), 52, 8, seed=2, rank=r, world=3) for r in range(3)]
        tail = [joined(parts) for parts in zip(*[steps(s, 4) for s in three])]
        self.assertEqual(head + tail, whole)

    def test_another_global_batch_takes_the_samples_that_are_left(self) -> None:
        first = Sampler(50, 8)
        head = steps(first, 3)
        tail = list(resumed(first.state_dict(), 50, 5))
        self.assertEqual(sorted(sum(head + tail, [])), list(range(50)))

    def test_a_position_behind_the_last_whole_batch_is_the_next_epoch(self) -> None:
        first = Sampler(50, 8)
        steps(first, 6)  # 2 samples are left
        later = resumed(first.state_dict(), 50, 8, drop_last=True)
        self.assertEqual((later.epoch, later.consumed), (1, 0))

    def test_numbered_tells_the_samples_of_the_global_batch(self) -> None:
        got = [(count, len(indices)) for count, indices in Sampler(52, 8, rank=1, world=3).numbered()]
        self.assertEqual(got, [(8, 3)] * 6 + [(4, 1)])

    def test_another_order_is_refused_whole_and_all_of_it_told(self) -> None:
        state = Sampler(50, 8, seed=1).state_dict()
        other = Sampler(51, 8, seed=2, shuffle=False)
        with self.assertRaisesRegex(ValueError,
                                    "size: saved 50, here 51; seed: saved 1, here 2; shuffle: saved True"):
            other.load_state_dict(state)
        self.assertEqual((other.epoch, other.consumed), (0, 0))

    def test_a_damaged_position_is_refused(self) -> None:
        for key, value in (("consumed", 50), ("consumed", -1), ("consumed", "4"), ("epoch", None),
                           ("version", 2)):
            sampler = Sampler(50, 8)
            with self.assertRaises((ValueError, TypeError), msg=f"{key}={value!r}"):
                sampler.load_state_dict({**sampler.state_dict(), key: value})

    def test_a_position_whose_last_batch_leaves_a_rank_without_a_sample_is_refused(self) -> None:
        first = Sampler(60, 3, rank=0, world=3)
        steps(first, 1)
        other = Sampler(60, 8, rank=0, world=3)
        with self.assertRaisesRegex(ValueError, "from sample 3 of 60 has 1 samples for 3 ranks"):
            other.load_state_dict(first.state_dict())
        self.assertEqual(other.consumed, 0)

    def test_an_iterator_begins_where_it_was_asked_for_and_a_load_forgets_what_it_gave(self) -> None:
        sampler = Sampler(50, 8, shuffle=False)
        late, state = iter(sampler), sampler.state_dict()
        steps(sampler, 2)
        self.assertEqual(next(late)[0], 0)
        next(iter(sampler))
        sampler.load_state_dict(state)
        with self.assertRaisesRegex(RuntimeError, "at sample 0 of epoch 0 without a batch"):
            sampler.pawl_step()

    def test_an_iterator_from_before_the_load_ends_with_an_error(self) -> None:
        sampler = Sampler(50, 8)
        old = iter(sampler)
        next(old)
        sampler.load_state_dict(sampler.state_dict())
        with self.assertRaisesRegex(RuntimeError, "call resume\\(\\) first"):
            next(old)

    def test_a_step_without_a_batch_is_an_error(self) -> None:
        sampler = Sampler(50, 8)
        with self.assertRaisesRegex(RuntimeError, "batch_sampler of the DataLoader"):
            sampler.pawl_step()
        next(iter(sampler))
        sampler.pawl_step()
        with self.assertRaisesRegex(RuntimeError, "at sample 8 of epoch 0"):
            sampler.pawl_step()

    def test_numbers_out_of_range_are_told(self) -> None:
        for error, text, arguments in (
                (ValueError, "size is 0", dict(size=0)), (TypeError, "size is 5.0", dict(size=5.0)),
                (TypeError, "size is True", dict(size=True)),
                (ValueError, "rank is 4, and 0 to 3", dict(rank=4, world=4)),
                (ValueError, "global_batch is 3, and 4", dict(global_batch=3, rank=0, world=4)),
                (ValueError, "give both", dict(rank=1)),
                (ValueError, "drop_last", dict(global_batch=51, drop_last=True)),
                (ValueError, "2 samples for 4 ranks", dict(rank=0, world=4))):
            with self.assertRaisesRegex(error, text):
                whole: dict[str, Any] = {"size": 50, "global_batch": 8, **arguments}
                Sampler(**whole)

    def test_ranks_without_a_group_are_an_error(self) -> None:
        run = subprocess.run([sys.executable, "-c", "from pawl.data import Sampler; Sampler(50, 8)"],
                             text=True,
                             env={**os.environ, "WORLD_SIZE": "4", "PYTHONPATH": sys.path[0]},
                             capture_output=True)
        self.assertIn("init_process_group", run.stderr)

    def test_it_needs_no_torch(self) -> None:
        code = ("import sys; from pawl.data import Sampler; next(iter(Sampler(50, 8))); "
                "sys.exit('torch' in sys.modules)")
        run = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": sys.path[0]})
        self.assertEqual(run.returncode, 0)


class LoaderTest(unittest.TestCase):
    def test_it_goes_on_over_epochs_without_end(self) -> None:
        sampler = Sampler(50, 8, seed=3)
        got = [indices for indices, _ in zip(Loader(sampler), range(20))]
        self.assertEqual(got, steps(Sampler(50, 8, seed=3), 20))

    def test_several_batches_a_step_are_counted_even_over_the_end_of_an_epoch(self) -> None:
        whole = steps(Sampler(50, 8), 20)
        for cut in range(1, 5):
            loader = Loader(Sampler(50, 8))
            batches = iter(loader)
            head = []
            for _ in range(cut):
                head += [next(batches) for _ in range(3)]
                loader.pawl_step()
            next(batches)  # handed out and lost with the process
            later = Loader(resumed(loader.state_dict(), 50, 8))
            tail = [b for b, _ in zip(later, range(20 - 3 * cut))]
            self.assertEqual(head + tail, whole, f"cut at step {cut}")

    def test_a_position_loaded_between_iter_and_the_first_batch_counts(self) -> None:
        whole, first = steps(Sampler(50, 8), 10), Sampler(50, 8)
        steps(first, 4)
        loader = Loader(Sampler(50, 8))

        def numbers() -> Iterator[int]:
            loader.load_state_dict(first.state_dict())
            yield from range(6)

        self.assertEqual([batch for _, batch in zip(numbers(), loader)], whole[4:])

    def test_another_iterator_begins_at_the_position_and_counts_anew(self) -> None:
        sampler = Sampler(50, 8, shuffle=False)
        loader = Loader(sampler)
        left = iter(loader)
        self.assertEqual([next(left)[0], next(left)[0]], [0, 8])
        self.assertEqual(next(iter(loader))[0], 0)
        loader.pawl_step()
        self.assertEqual(sampler.consumed, 8)
        self.assertEqual(next(iter(sampler))[0], 8)

    def test_what_follows_no_sampler_is_refused(self) -> None:
        with self.assertRaisesRegex(TypeError, "got list"):
            Loader([1, 2])

    def test_a_load_while_it_is_read_is_an_error(self) -> None:
        loader = Loader(Sampler(50, 8))
        batches = iter(loader)
        next(batches)
        loader.load_state_dict(loader.state_dict())
        with self.assertRaisesRegex(RuntimeError, "call resume"):
            next(batches)


@unittest.skipUnless(TORCH, "no torch in this Python")
class WorkersTest(unittest.TestCase):
    def batches(self, sampler: Sampler, workers: int) -> Any:
        from torch.utils.data import DataLoader
        rows: Any = Rows()  # a Dataset in all but name
        return DataLoader(rows, batch_sampler=sampler, num_workers=workers)

    def test_what_workers_fetched_ahead_is_not_counted(self) -> None:
        whole = steps(Sampler(50, 4, seed=4), 16)
        for workers in (0, 2):
            loader = Loader(self.batches(Sampler(50, 4, seed=4), workers))
            head = []
            for batch, _ in zip(loader, range(5)):
                head.append(batch.tolist())
                loader.pawl_step()
            later = Loader(self.batches(resumed(loader.state_dict(), 50, 4, seed=4), workers))
            tail = [b.tolist() for b, _ in zip(later, range(11))]
            self.assertEqual(head + tail, whole, f"{workers} workers")

    def test_what_workers_fetched_before_a_load_is_not_handed_out_after_it(self) -> None:
        loader = Loader(self.batches(Sampler(50, 25), 2))  # whose workers are given the whole epoch at once
        batches = iter(loader)
        next(batches)
        loader.load_state_dict(loader.state_dict())
        with self.assertRaisesRegex(RuntimeError, "call resume"):
            next(batches)

    def test_random_numbers_drawn_in_training_are_those_of_an_undisturbed_run(self) -> None:
        import torch
        for workers in (0, 2):
            loader = Loader(self.batches(Sampler(50, 4, seed=4), workers))
            torch.manual_seed(7)
            whole: list[float] = []
            for i, _ in zip(range(20), loader):  # over the end of an epoch
                whole.append(torch.rand(()).item())
                loader.pawl_step()
                if i == 4:
                    kept = torch.get_rng_state(), loader.state_dict()
            later = Loader(self.batches(resumed(kept[1], 50, 4, seed=4), workers))
            torch.set_rng_state(kept[0])
            tail = [torch.rand(()).item() for _, _ in zip(range(15), later)]
            self.assertEqual(tail, whole[5:], f"{workers} workers")

    def test_a_data_loader_alone_ends_with_the_epoch_and_the_next_follows(self) -> None:
        sampler = Sampler(50, 8, seed=4)
        loader = self.batches(sampler, 2)
        got = []
        for _ in range(2):
            for batch in loader:
                got.append(batch.tolist())
                sampler.pawl_step()
        self.assertEqual(got, steps(Sampler(50, 8, seed=4), 14))


if __name__ == "__main__":
    unittest.main()
