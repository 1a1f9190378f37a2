"""The engine over PyTorch against plain autograd: gradients, bits, randomness, names, samples."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import io
import os
import random
import subprocess
import sys
import unittest
from pathlib import Path
from typing import Any

if importlib.util.find_spec("torch") is None:
    print("skipped: this Python has no torch")
    sys.exit(77)

import torch  # noqa: E402
from pipeline_kit import GPT, GPT_JOB, HEAD, MLP, Case, Driver, Failed, Memory, floats  # noqa: E402

import pawl  # noqa: E402
from pawl import _samples, _split, _user  # noqa: E402
from pawl.data import Permutation  # noqa: E402

def plain(driver: Driver, step: int, number: int) -> tuple[float, list[dict[str, Any]]]:
    """Loss and gradients by autograd alone, over the same modules, samples and random numbers."""
    model = driver.engine.model()
    modules = [stage.module for _, stage in sorted(driver.engine._stages.items())]
    value, target = driver.engine._samples.both(step, number)
    values = [p for m in modules for p in m.parameters()]
    for index, module in enumerate(modules):
        _user.seed(7, "forward", index, step, number)
        value = tuple(v.clone() for v in value) if isinstance(value, tuple) else value.clone()
        value = module(*value) if isinstance(value, tuple) else module(value)
    loss = model.pipeline.loss(value, target)
    found = iter(torch.autograd.grad(loss, [p for p in values if p.requires_grad], allow_unused=True))
    return loss.item(), [
        {
            name: (next(found) if p.requires_grad else None)
            for name, p in zip(driver.names(k), module.parameters())
        }
        for k, module in enumerate(modules)
    ]


class Gradients(Case):
    def check(self, driver: Driver, step: int, number: int) -> None:
        params = [driver.params(stage) for stage in range(len(driver.layouts))]
        loss, had = driver.run(params, step, number)
        loss_wanted, wanted = plain(driver, step, number)
        self.assertAlmostEqual(loss, loss_wanted, places=6)
        for of_stage, wanted_of_stage in zip(had, wanted, strict=True):
            self.assertEqual(list(of_stage), list(wanted_of_stage))
            for name, data in of_stage.items():
                gradient = wanted_of_stage[name]
                zeros = torch.zeros(len(data) // 4)
                torch.testing.assert_close(
                    floats(data),
                    zeros if gradient is None else gradient.to_dense().flatten(),
                    rtol=1e-4,
                    atol=1e-6,
                    msg=f"{name} differs from autograd's",
                )

    def test_those_of_linear_layers_and_norms_are_autograds(self) -> None:
        self.check(self.driver(MLP, stages=3), 0, 1)

    def test_those_of_tied_weights_attention_checkpoints_autocast_and_frozen_layers_are_too(self) -> None:
        driver = self.driver(GPT, **GPT_JOB)
        for step in range(2):
            self.check(driver, step, 2)

    def test_a_user_s_own_backward_inside_the_forward_is_differentiated(self) -> None:
        text = (
            HEAD
            + """
        class Penalty(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 3)
            def forward(self, x):
                x = x.requires_grad_()
                y = self.b(torch.tanh(self.a(x)))
                asked = (x, self.a.weight, self.a.bias)
                slope, of_a, bias = torch.autograd.grad(y.square().sum(), asked, create_graph=True)
                aside = torch.autograd.grad(self.b(torch.tanh(self.a(x))).sum(), x, create_graph=True)[0]
                return y + slope.square().sum() + of_a.square().sum() + bias.sum() + aside.square().sum()
        pipeline = pawl.pipeline(stages=[Penalty()], loss=F.cross_entropy, data=Data(), optimizer=adamw)
        """.replace("\n        ", "\n")
        )
        self.check(self.driver(text.replace("y + slope", "y * slope"), stages=1), 0, 0)

    def test_a_stage_behind_another_may_ask_for_the_slope_at_its_input(self) -> None:
        text = HEAD + """
class Slope(nn.Linear):
    def __init__(self): super().__init__(6, 3)
    def forward(self, x):
        y = super().forward(torch.tanh(x))
        return y + torch.autograd.grad(y.square().sum(), x, create_graph=True)[0].sum()
pipeline = pawl.pipeline(stages=[nn.ModuleDict({"a": nn.Linear(6, 6)})["a"], nn.Sequential(Slope())],
                         loss=F.cross_entropy, data=Data(), optimizer=adamw)
"""
        self.check(self.driver(text, stages=2), 0, 0)

    def test_a_linear_layer_inside_vmap_is_too(self) -> None:
        text = (
            HEAD
            + """
class Mapped(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(6, 3)
    def forward(self, x):
        return torch.func.vmap(lambda row: self.a(row))(x) + self.a(x)
pipeline = pawl.pipeline(stages=[Mapped()], loss=F.cross_entropy, data=Data(), optimizer=adamw)
"""
        )
        self.check(self.driver(text, stages=1), 0, 0)

    def test_what_is_left_out_frozen_in_part_sparse_or_without_a_gradient_is_as_autograd_has_it(self) -> None:
        text = HEAD + """
class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.seen, self.a, self.b = nn.Embedding(9, 8, sparse=True), nn.Linear(6, 8), nn.Linear(8, 8)
        self.a.bias.requires_grad_(False)
        self.norm = nn.BatchNorm1d(8, track_running_stats=False)
    def forward(self, x):
        aside = self.b(self.a(x))  # nothing comes of it
        with torch.no_grad(): aside = aside + self.b(x.new_ones(8))
        at = x.abs().long() % 9
        return x, self.norm(self.a(x)) + self.seen(at).sum(1), at, aside
class Head(nn.Linear):
    def forward(self, x, y, at, aside):
        return F.linear(y * at.sum(1, keepdim=True), self.weight, 2 * self.bias) + x.sum()
pipeline = pawl.pipeline(stages=[Bag(), Head(8, 3)], loss=F.cross_entropy, data=Data(), optimizer=adamw)
"""
        self.check(self.driver(text, stages=2), 0, 0)

    def test_a_linear_layer_s_are_left_for_weight_grad_and_all_others_are_not(self) -> None:
        driver = self.driver(MLP, stages=3)
        front = driver.microbatch(0, driver.params(0), 0, 0)
        flight = driver.microbatch(1, driver.params(1), 0, 0, front.forward())
        flight.forward()
        out = Memory(driver.layouts[1].output_bytes)
        ctypes.memset(out.address, 0x3C, out.size)
        flight.input_grad(out)
        slot = driver.engine._stages[1].slots[flight.c.slot]
        self.assertEqual([part is None for part in slot.parts], [False, False, True])  # norm, norm, linear
        self.assertTrue(any(flight.finish()["2.weight"]))
        self.assertIs(torch.nn.functional.linear, _split.LINEAR)
        self.assertEqual(driver.engine._stages[1].slots, {})


def _digest_run(folder: str) -> str:
    """All bits of two micro-batches, as hexadecimal digits of their hash."""
    driver = Driver(Path(folder), GPT, **GPT_JOB)
    params = [driver.params(stage) for stage in range(3)]
    return repr([driver.run(params, 1, number) for number in (2, 0)])


class Putting(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.clone().put_(torch.tensor([0, 0]), torch.ones(2))


class Bits(Case):
    def test_flags_and_the_order_of_calls_change_no_bit(self) -> None:
        driver = self.driver(GPT, **GPT_JOB)
        params = [driver.params(stage) for stage in range(3)]
        wanted = [driver.run(params, 0, number) for number in range(3)]
        front = [driver.microbatch(0, params[0], 0, number) for number in (2, 0, 1)]
        sent = {f.c.microbatch: f.forward() for f in front}
        backs, middles = {}, {}
        for number in (
            1,
            2,
            0,
        ):  # all forwards, then all input-gradients, then all weight-gradients, each redone
            for _ in range(2):
                middles[number] = driver.microbatch(1, params[1], 0, number, sent[number])
                backs[number] = driver.microbatch(2, params[2], 0, number, middles[number].forward())
                backs[number].forward()
        for number in (0, 2, 1):
            half = driver.microbatch(1, params[1], 0, number, sent[number], no_input_grad=True)
            half.forward()
            other = driver.microbatch(1, params[1], 0, number, sent[number], no_weight_grad=True)
            other.forward()
            last = backs[number].input_grad()
            self.assertEqual(half.input_grad(last).size, 0)
            to_front = other.input_grad(last)
            self.assertEqual(middles[number].input_grad(last).bytes(), to_front.bytes())
            of_front = next(f for f in front if f.c.microbatch == number)
            of_front.input_grad(to_front)
            self.assertEqual(half.finish(), wanted[number][1][1])
        for number in (1, 0, 2):
            of_front = next(f for f in front if f.c.microbatch == number)
            self.assertEqual(
                (backs[number].c.loss, of_front.finish(), middles[number].finish(), backs[number].finish()),
                (wanted[number][0], *wanted[number][1]),
            )

    def test_another_process_computes_the_same(self) -> None:
        text = (
            f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import pipeline_test as t; "
            f"sys.stdout.write(t._digest_run({str(self.folder)!r}))"
        )
        told = [
            subprocess.run(
                [sys.executable, "-c", text],
                capture_output=True,
                text=True,
                check=True,
                env={**os.environ, "PYTHONHASHSEED": str(n)},
            ).stdout
            for n in (1, 2)
        ]
        self.assertEqual(told[0], told[1])
        self.assertGreater(len(told[0]), 1000)

    def test_other_micro_batches_steps_and_versions_give_other_bits(self) -> None:
        driver = self.driver(GPT, **GPT_JOB)
        params = [driver.params(stage) for stage in range(3)]
        again = [driver.params(stage) for stage in range(3)]
        wanted = driver.run(params, 0, 0)
        self.assertEqual(driver.run(again, 0, 0), wanted)
        ctypes.memset(again[1].address, 1, 64)
        for other in (driver.run(params, 1, 0), driver.run(params, 0, 1), driver.run(again, 0, 0)):
            self.assertNotEqual(other[0], wanted[0])

    def test_the_same_memory_with_newer_values_is_another_version(self) -> None:
        driver = self.driver(MLP, stages=3)
        params = [driver.params(stage) for stage in range(3)]
        wanted = driver.run(params, 0, 0)
        ctypes.memset(params[2].address, 0, params[2].size)
        self.assertNotEqual(driver.run(params, 0, 0)[0], wanted[0])
        offsets, _ = driver.offsets(2)
        driver.call("init", 2, params[2].address, offsets)
        self.assertEqual(driver.run(params, 0, 0), wanted)

    def test_nothing_is_written_to_the_parameters_and_to_the_input(self) -> None:
        driver = self.driver(MLP, stages=3)
        params = [driver.params(stage) for stage in range(3)]
        before = [p.bytes() for p in params]
        first = driver.microbatch(0, params[0], 0, 0)
        sent = first.forward()
        kept = sent.bytes()
        driver.microbatch(1, params[1], 0, 0, sent).forward()  # its first layer is a ReLU in place
        driver.run(params, 0, 0)
        self.assertEqual(([p.bytes() for p in params], sent.bytes()), (before, kept))

    def test_initial_values_are_those_of_the_seed_alone(self) -> None:
        first, other = self.driver(GPT, **GPT_JOB), self.driver(GPT, **GPT_JOB, seed=8)
        again = self.driver(GPT, **GPT_JOB)
        torch.manual_seed(99)
        for stage in (2, 0, 1):
            self.assertEqual(again.params(stage).bytes(), first.params(stage).bytes())
            self.assertNotEqual(other.params(stage).bytes(), first.params(stage).bytes())
        objects = [self.driver(MLP, stages=3, seed=seed).params(0).bytes() for seed in (7, 7, 8)]
        self.assertEqual((objects[0] == objects[1], objects[0] == objects[2]), (True, False))
        again.table.stage_close(None, 1)
        torch.manual_seed(100)
        again.layouts[1] = again._open(1)
        self.assertEqual(again.params(1).bytes(), first.params(1).bytes())

    def test_a_loss_that_is_not_finite_is_handed_on(self) -> None:
        driver = self.driver(MLP, stages=3)
        params = [driver.params(stage) for stage in range(3)]
        ctypes.memset(params[2].address, 0xFF, params[2].size)
        self.assertNotEqual(driver.run(params, 0, 0)[0], driver.run(params, 0, 0)[0])  # not a number

    def test_torch_has_the_threads_of_the_job_and_refuses_what_is_not_deterministic(self) -> None:
        self.addCleanup(torch.set_num_threads, torch.get_num_threads())
        driver = self.driver(MLP, stages=3, threads=2)
        self.assertEqual(torch.get_num_threads(), 2)
        driver.engine.model().pipeline.stages[0].append(Putting())
        with contextlib.redirect_stderr(io.StringIO()), self.assertRaisesRegex(Failed, "deterministic"):
            driver.microbatch(0, driver.params(0), 0, 0).forward()

    def test_memory_of_a_micro_batch_is_told_and_freed(self) -> None:
        driver = self.driver(GPT, **GPT_JOB)
        flight = driver.microbatch(0, driver.params(0), 0, 0)
        flight.forward()
        self.assertGreater(flight.c.kept_bytes, 4 * 5 * 8 * 4)
        self.assertLess(flight.c.kept_bytes, 1 << 20)
        driver.table.drop(None, 0, flight.c.slot)
        driver.table.drop(None, 0, flight.c.slot)
        driver.table.drop(None, 9, 9)
        self.assertEqual(driver.engine._stages[0].slots, {})


class Layouts(Case):
    def test_names_shapes_decay_and_the_optimizer_are_the_user_s(self) -> None:
        text = MLP.replace("optimizer=adamw", "optimizer=groups").replace(
            "pipeline =",
            """
def groups(named):
    flat = [p for n, p in named if p.dim() < 2]
    rest = [p for n, p in named if p.dim() > 1]
    return torch.optim.AdamW([dict(params=rest), dict(params=flat, weight_decay=0)],
                             lr=0.25, betas=(0.5, 0.75), eps=1e-3, weight_decay=0.125)
pipeline =""",
        )
        driver = self.driver(text, stages=3)
        self.assertEqual(
            [driver.names(k) for k in range(3)],
            [["0.weight", "0.bias"], ["1.weight", "1.bias", "2.weight"], ["weight", "bias"]],
        )
        self.assertEqual(
            [(list(t.shape[: t.rank]), t.decay) for k in range(3) for t in driver.tensors(k)],
            [
                ([8, 6], True),
                ([8], False),
                ([8], False),
                ([8], False),
                ([8, 8], True),
                ([3, 8], True),
                ([3], False),
            ],
        )
        out = driver.optimizer()
        self.assertEqual(
            (out.lr, out.beta1, out.beta2, out.eps, out.weight_decay), (0.25, 0.5, 0.75, 1e-3, 0.125)
        )

    def test_stages_that_share_a_name_have_their_number_in_front_of_all_of_theirs(self) -> None:
        driver = self.driver(
            HEAD
            + """
pipeline = pawl.pipeline(stages=[nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6, False)),
                                 nn.ModuleDict(dict(a=nn.Linear(6, 6)))["a"], nn.Sequential(nn.Linear(6, 3))],
                         loss=F.cross_entropy, data=Data(), optimizer=adamw)""",
            stages=3,
        )
        self.assertEqual(
            [driver.names(k) for k in range(3)],
            [
                ["stages.0.0.weight", "stages.0.0.bias", "stages.0.2.weight"],
                ["weight", "bias"],
                ["stages.2.0.weight", "stages.2.0.bias"],
            ],
        )

    def test_tied_weights_within_a_stage_are_one_parameter(self) -> None:
        driver = self.driver(
            HEAD
            + """
class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.b.weight = self.a.weight
    def forward(self, x): return self.c(self.b(torch.tanh(self.a(x))))
pipeline = pawl.pipeline(stages=[Tied()], loss=F.cross_entropy, data=Data(), optimizer=adamw)""",
            stages=1,
        )
        self.assertEqual(driver.names(0), ["a.weight", "a.bias", "b.bias", "c.weight", "c.bias"])
        params = [driver.params(0)]
        _, had = driver.run(params, 0, 0)
        _, wanted = plain(driver, 0, 0)
        torch.testing.assert_close(floats(had[0]["a.weight"]), wanted[0]["a.weight"].flatten())

    def test_wires_are_the_bytes_of_all_tensors_each_on_a_line_of_its_own(self) -> None:
        driver = self.driver(GPT, **GPT_JOB)
        x, mask, low = 4 * 4 * 5 * 8, 4 * 5, 2 * 4 * 5 * 8
        sizes = [-(-n // 64) * 64 for n in (x, mask, low)]
        self.assertEqual(
            [(o.input_bytes, o.output_bytes) for o in driver.layouts],
            [(0, sum(sizes)), (sum(sizes), sum(sizes[:2])), (sum(sizes[:2]), 0)],
        )
        params = driver.params(1)
        flight = driver.microbatch(1, params, 0, 0, driver.microbatch(0, driver.params(0), 0, 0).forward())
        flight.forward()
        ctypes.memset(flight.grad_out.address, 0xAA, flight.grad_out.size)
        back = flight.input_grad(Memory(sum(sizes[:2]))).bytes()
        self.assertEqual(back[sizes[0] : sizes[0] + sizes[1]], bytes(sizes[1]))  # no gradient of a mask


class Data(Case):
    def test_one_key_sets_the_generators_of_torch_python_and_numpy(self) -> None:
        def drawn(*key: Any) -> list[float]:
            _user.seed(*key)
            found = [torch.rand(1).item(), random.random()]
            return found if _user.numpy is None else [*found, _user.numpy.random.rand()]

        first, other, again = drawn("a", 1), drawn("a", 2), drawn("a", 1)
        self.assertEqual(again, first)
        self.assertTrue(all(one != two for one, two in zip(first, other, strict=True)))

    def samples(self, size: int, batch: int, contributions: int) -> _samples.Samples:
        made = pawl.pipeline(
            stages=[torch.nn.Identity()],
            loss=max,
            optimizer=max,
            data=[(torch.full((2,), float(i)), i) for i in range(size)],
        )
        return _samples.Samples(made, 5, batch, contributions)

    def test_every_epoch_has_each_sample_once_however_it_is_cut(self) -> None:
        order = [Permutation(10, 5, epoch)[i] for epoch in range(6) for i in range(10)]
        for batch, contributions in ((4, 3), (2, 6), (1, 12), (12, 1), (3, 4)):
            s = self.samples(10, batch, contributions)
            had = [i for step in range(5) for n in range(contributions) for i in s.indices(step, n)]
            self.assertEqual(had, order)
        value, target = self.samples(10, 4, 3).both(1, 2)
        self.assertEqual((target.tolist(), value[:, 0].tolist()), (order[20:24], order[20:24]))

    def test_both_halves_are_fetched_once_and_again_when_changed(self) -> None:
        asked: list[int] = []

        class Counted(list):  # type: ignore[type-arg]
            def __getitem__(self, i: Any) -> Any:
                asked.append(i)
                return torch.rand(2), i

        made = pawl.pipeline(
            stages=[torch.nn.Identity()],
            loss=max,
            optimizer=max,
            data=Counted(range(10)),
            collate=lambda rows: [torch.stack([r[0] for r in rows])] * 2,
        )
        s = _samples.Samples(made, 5, 2, 3)
        value, _ = s.half(_samples.INPUT, 0, 0), s.half(_samples.TARGET, 0, 0)
        self.assertEqual(len(asked), 2)
        self.assertTrue(torch.equal(s.half(_samples.INPUT, 0, 0), value))
        self.assertEqual(len(asked), 4)
        changed = s.half(_samples.INPUT, 0, 1)
        wanted = _samples.Samples(made, 5, 2, 3).half(_samples.TARGET, 0, 1)
        changed.zero_()  # in place, as the first layer may; the target is the same memory's other half
        self.assertTrue(torch.equal(s.half(_samples.TARGET, 0, 1), wanted))
        for n in range(100):
            s.half(_samples.INPUT, n, 0)
        self.assertLessEqual(len(s._halves), _samples.KEPT)

    def test_a_sample_that_is_no_pair_and_no_sample_are_told(self) -> None:
        for data, text in (
            ("[torch.zeros(6)] * 5", "micro-batch is Tensor"),
            ("[(torch.zeros(6), 1, 2)] * 5", "list of 3"),
            ("[]", "len\\(data\\) is 0, and 1 to 9007199254740992 is wanted"),
        ):
            with self.subTest(data), self.assertRaisesRegex(Failed, text):
                self.driver(MLP.replace("data=Data()", f"data={data}"), stages=3)


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main()
