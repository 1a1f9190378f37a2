"""The engine over PyTorch against plain autograd: gradients, bits, randomness, samples, refusals, errors."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import io
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

if importlib.util.find_spec("torch") is None:
    print("skipped: this Python has no torch")
    sys.exit(77)

import torch  # noqa: E402
from pipeline_kit import Driver, Failed, Memory, floats  # noqa: E402

import pawl  # noqa: E402
from pawl import _samples, _user, errors  # noqa: E402
from pawl.data import Permutation  # noqa: E402

HEAD = """
import pawl, torch
from torch import nn
F = nn.functional
class Data:
    def __len__(self): return 10
    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        return torch.randn(6, generator=g), i % 3
def adamw(params): return torch.optim.AdamW(params, lr=3e-4, weight_decay=0.1)
"""
MLP = HEAD + """
pipeline = pawl.pipeline(stages=[nn.Sequential(nn.Linear(6, 8), nn.ReLU(inplace=True)),
                                 nn.Sequential(nn.ReLU(inplace=True), nn.LayerNorm(8), nn.Linear(8, 8, bias=False)),
                                 nn.Linear(8, 3)],
                         loss=F.cross_entropy, data=Data(), optimizer=adamw)
"""
# One stage after another: text in, a tied embedding, attention, a mask on its way, bfloat16 on the wire, dropout.
GPT = """
import pawl, torch
from torch import nn
F = nn.functional
class Data:
    def __len__(self): return 7
    def __getitem__(self, i):
        text = torch.randint(0, 11, (6,))  # other text each time it is asked for
        return text[:-1], text[1:]
class Front(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.scale = nn.Embedding(11, 8), nn.Parameter(torch.ones(8))
        self.register_buffer("places", torch.randn(5, 8))
    def forward(self, text):
        x = self.wte(text) + self.places * self.scale
        x = x + F.linear(F.linear(x, self.wte.weight), self.wte.weight.t().contiguous())
        return F.dropout(x, 0.2), text > 3, x.bfloat16()
class Middle(nn.Module):
    def __init__(self):
        super().__init__()
        self.attend, self.up = nn.MultiheadAttention(8, 2, batch_first=True, dropout=0.1), nn.Linear(8, 8)
        self.shared, self.unused = nn.Linear(8, 8), nn.Linear(3, 3)
    def block(self, x):
        return self.shared(torch.tanh(self.shared(x)))
    def forward(self, x, mask, low):
        x = x + self.attend(x, x, x, key_padding_mask=mask & False)[0] + self.up(low.float())
        x = x + torch.utils.checkpoint.checkpoint(self.block, x, use_reentrant=False)
        with torch.autocast("cpu", torch.bfloat16):
            y = self.up(x)
        return x + y.float(), mask
class Back(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 11)
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
    def forward(self, x, mask):
        return self.head(self.frozen(x) * (1 + mask.unsqueeze(-1)))
def loss(logits, target):
    return F.cross_entropy(logits.flatten(0, 1), target.flatten())
def pipeline(options):
    return pawl.pipeline(stages=[Front, Middle, Back], loss=loss, data=Data(),
                         optimizer=lambda params: torch.optim.AdamW(params, lr=options["lr"]))
"""
GPT_JOB: dict[str, Any] = dict(stages=3, options='{"lr": 0.01}')


class Case(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.addCleanup(sys.path.__setitem__, slice(None), list(sys.path))
        self.addCleanup(sys.modules.pop, "train_me", None)

    def driver(self, text: str, **job: Any) -> Driver:
        sys.modules.pop("train_me", None)
        return Driver(self.folder, text, **job)


def plain(driver: Driver, step: int, number: int) -> tuple[float, list[dict[str, torch.Tensor]]]:
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
        {name: (next(found) if p.requires_grad else None) for name, p in zip(driver.names(k), module.parameters())}
        for k, module in enumerate(modules)]


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
                torch.testing.assert_close(floats(data), zeros if gradient is None else gradient.flatten(),
                                           rtol=1e-4, atol=1e-6, msg=lambda text: f"{name}: {text}")

    def test_those_of_linear_layers_and_norms_are_autograds(self) -> None:
        self.check(self.driver(MLP, stages=3), 0, 1)

    def test_those_of_tied_weights_attention_checkpoints_autocast_and_frozen_layers_are_too(self) -> None:
        driver = self.driver(GPT, **GPT_JOB)
        for step in range(2):
            self.check(driver, step, 2)

    def test_a_user_s_own_backward_inside_the_forward_is_differentiated(self) -> None:
        text = HEAD + """
        class Penalty(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(6, 8), nn.Linear(8, 3)
            def forward(self, x):
                x = x.requires_grad_()
                y = self.b(torch.tanh(self.a(x)))
                slope, of_a = torch.autograd.grad(y.square().sum(), (x, self.a.weight), create_graph=True)
                aside = torch.autograd.grad(self.b(torch.tanh(self.a(x))).sum(), x, create_graph=True)[0]
                return y + slope.square().sum() + of_a.square().sum() + aside.square().sum()
        pipeline = pawl.pipeline(stages=[Penalty()], loss=F.cross_entropy, data=Data(), optimizer=adamw)
        """.replace("\n        ", "\n")
        self.check(self.driver(text.replace("y + slope", "y * slope"), stages=1), 0, 0)

    def test_a_linear_layer_inside_vmap_is_too(self) -> None:
        text = HEAD + """
class Mapped(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(6, 3)
    def forward(self, x):
        return torch.func.vmap(lambda row: self.a(row))(x) + self.a(x)
pipeline = pawl.pipeline(stages=[Mapped()], loss=F.cross_entropy, data=Data(), optimizer=adamw)
"""
        self.check(self.driver(text, stages=1), 0, 0)

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
        self.assertEqual(driver.engine._stages[1].slots, {})


def _digest_run(folder: str) -> str:
    """All bits of two micro-batches, as hexadecimal digits of their hash."""
    driver = Driver(Path(folder), GPT, **GPT_JOB)
    params = [driver.params(stage) for stage in range(3)]
    return repr([driver.run(params, 1, number) for number in (2, 0)])


class Bits(Case):
    def test_flags_and_the_order_of_calls_change_no_bit(self) -> None:
        driver = self.driver(GPT, **GPT_JOB)
        params = [driver.params(stage) for stage in range(3)]
        wanted = [driver.run(params, 0, number) for number in range(3)]
        front = [driver.microbatch(0, params[0], 0, number) for number in (2, 0, 1)]
        sent = {f.c.microbatch: f.forward() for f in front}
        backs, middles = {}, {}
        for number in (1, 2, 0):  # all forwards, then all input-gradients, then all weight-gradients, each redone
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
            self.assertEqual(half.input_grad(last), None)
            to_front = other.input_grad(last)
            self.assertEqual(middles[number].input_grad(last).bytes(), to_front.bytes())
            of_front = next(f for f in front if f.c.microbatch == number)
            of_front.input_grad(to_front)
            self.assertEqual(half.finish(), wanted[number][1][1])
        for number in (1, 0, 2):
            of_front = next(f for f in front if f.c.microbatch == number)
            self.assertEqual((backs[number].c.loss, of_front.finish(), middles[number].finish(), backs[number].finish()),
                             (wanted[number][0], *wanted[number][1]))

    def test_another_process_computes_the_same(self) -> None:
        text = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import pipeline_test as t; " \
               f"sys.stdout.write(t._digest_run({str(self.folder)!r}))"
        told = [subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True,
                               env={**os.environ, "PYTHONHASHSEED": str(n)}).stdout for n in (1, 2)]
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
        again.table.stage_close(None, 1)
        torch.manual_seed(100)
        again._open(1)
        self.assertEqual(again.params(1).bytes(), first.params(1).bytes())

    def test_a_loss_that_is_not_finite_is_handed_on(self) -> None:
        driver = self.driver(MLP, stages=3)
        params = [driver.params(stage) for stage in range(3)]
        ctypes.memset(params[2].address, 0xFF, params[2].size)
        self.assertNotEqual(driver.run(params, 0, 0)[0], driver.run(params, 0, 0)[0])  # not a number

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
        text = MLP.replace("optimizer=adamw", "optimizer=groups") \
            .replace("pipeline =", """
def groups(named):
    flat = [p for n, p in named if p.dim() < 2]
    return torch.optim.AdamW([dict(params=[p for n, p in named if p.dim() > 1]), dict(params=flat, weight_decay=0)],
                             lr=0.25, betas=(0.5, 0.75), eps=1e-3, weight_decay=0.125)
pipeline =""")
        driver = self.driver(text, stages=3)
        self.assertEqual([driver.names(k) for k in range(3)],
                         [["0.weight", "0.bias"], ["1.weight", "1.bias", "2.weight"], ["weight", "bias"]])
        self.assertEqual([(list(t.shape[: t.rank]), t.decay) for k in range(3) for t in driver.tensors(k)],
                         [([8, 6], True), ([8], False), ([8], False), ([8], False), ([8, 8], True), ([3, 8], True),
                          ([3], False)])
        out = driver.optimizer()
        self.assertEqual((out.lr, out.beta1, out.beta2, out.eps, out.weight_decay), (0.25, 0.5, 0.75, 1e-3, 0.125))

    def test_stages_that_share_a_name_have_their_number_in_front_of_all_of_theirs(self) -> None:
        driver = self.driver(HEAD + """
pipeline = pawl.pipeline(stages=[nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6, False)),
                                 nn.ModuleDict(dict(a=nn.Linear(6, 6)))["a"], nn.Sequential(nn.Linear(6, 3))],
                         loss=F.cross_entropy, data=Data(), optimizer=adamw)""", stages=3)
        self.assertEqual([driver.names(k) for k in range(3)],
                         [["stages.0.0.weight", "stages.0.0.bias", "stages.0.2.weight"], ["weight", "bias"],
                          ["stages.2.0.weight", "stages.2.0.bias"]])

    def test_tied_weights_within_a_stage_are_one_parameter(self) -> None:
        driver = self.driver(HEAD + """
class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.b.weight = self.a.weight
    def forward(self, x): return self.c(self.b(torch.tanh(self.a(x))))
pipeline = pawl.pipeline(stages=[Tied()], loss=F.cross_entropy, data=Data(), optimizer=adamw)""", stages=1)
        self.assertEqual(driver.names(0), ["a.weight", "a.bias", "b.bias", "c.weight", "c.bias"])
        params = [driver.params(0)]
        _, had = driver.run(params, 0, 0)
        _, wanted = plain(driver, 0, 0)
        torch.testing.assert_close(floats(had[0]["a.weight"]), wanted[0]["a.weight"].flatten())

    def test_wires_are_the_bytes_of_all_tensors_each_on_a_line_of_its_own(self) -> None:
        driver = self.driver(GPT, **GPT_JOB)
        x, mask, low = 4 * 4 * 5 * 8, 4 * 5, 2 * 4 * 5 * 8
        sizes = [-(-n // 64) * 64 for n in (x, mask, low)]
        self.assertEqual([(o.input_bytes, o.output_bytes) for o in driver.layouts],
                         [(0, sum(sizes)), (sum(sizes), sum(sizes[:2])), (sum(sizes[:2]), 0)])
        params = driver.params(1)
        flight = driver.microbatch(1, params, 0, 0, driver.microbatch(0, driver.params(0), 0, 0).forward())
        flight.forward()
        ctypes.memset(flight.grad_out.address, 0xAA, flight.grad_out.size)
        back = flight.input_grad(Memory(sum(sizes[:2]))).bytes()
        self.assertEqual(back[sizes[0] : sizes[0] + sizes[1]], bytes(sizes[1]))  # no gradient of a mask


class Data(Case):
    def samples(self, size: int, batch: int, contributions: int) -> _samples.Samples:
        made = pawl.pipeline(stages=[torch.nn.Identity()], loss=max, optimizer=max,
                             data=[(torch.full((2,), float(i)), i) for i in range(size)])
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

        made = pawl.pipeline(stages=[torch.nn.Identity()], loss=max, optimizer=max, data=Counted(range(10)),
                             collate=lambda rows: (lambda t: (t[:, :1], t[:, 1:]))(torch.stack([r[0] for r in rows])))
        s = _samples.Samples(made, 5, 2, 3)
        value, target = s.half(_samples.INPUT, 0, 0), s.half(_samples.TARGET, 0, 0)
        self.assertEqual(len(asked), 2)
        self.assertTrue(torch.equal(s.half(_samples.INPUT, 0, 0), value))
        self.assertEqual(len(asked), 4)
        changed = s.half(_samples.INPUT, 0, 1)
        wanted = target if False else _samples.Samples(made, 5, 2, 3).half(_samples.TARGET, 0, 1)
        changed.zero_()  # in place, as the first layer may; the target is the same memory's other half
        self.assertTrue(torch.equal(s.half(_samples.TARGET, 0, 1), wanted))
        for n in range(100):
            s.half(_samples.INPUT, n, 0)
        self.assertLessEqual(len(s._halves), _samples.KEPT)

    def test_a_sample_that_is_no_pair_and_no_sample_are_told(self) -> None:
        for data, text in (("[torch.zeros(6)] * 5", "micro-batch is Tensor"),
                           ("[(torch.zeros(6), 1, 2)] * 5", "list of 3"), ("[]", "no sample")):
            with self.subTest(data), self.assertRaisesRegex(Failed, text):
                self.driver(MLP.replace("data=Data()", f"data={data}"), stages=3)


def one_stage(stage: str, before: str = "", **changes: str) -> str:
    parts = dict(loss="F.cross_entropy", data="Data()", optimizer="adamw") | changes
    return HEAD + before + f"\npipeline = pawl.pipeline(stages=[{stage}], " + \
        ", ".join(f"{k}={v}" for k, v in parts.items()) + ")\n"


def with_optimizer(text: str) -> str:
    return one_stage("nn.Linear(6, 3)", optimizer=f"lambda params: torch.optim.{text}")


REFUSED = {
    "buffer": (one_stage("nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3))"), r"stage 0.*1\.(running|num)"),
    "parameter": (one_stage("M()", """
class M(nn.Linear):
    def __init__(self): super().__init__(6, 3)
    def forward(self, x):
        with torch.no_grad(): self.weight.clamp_(-.01, .01)
        return super().forward(x)"""), "stage 0: a forward changes weight"),
    "shared": (one_stage("a, nn.Sequential(nn.ReLU(), a)", "a = nn.Linear(6, 6)"), r"stage 0: weight and stage 1: 1\.weight"),
    "shared by functions": (one_stage("lambda: a, lambda: nn.Sequential(a)", "a = nn.Linear(6, 6)"), "share memory"),
    "view": (one_stage("a, b", """
a, b = nn.Linear(6, 6), nn.Linear(6, 6)
b.weight = nn.Parameter(a.weight.data)"""), "stage 0: weight and stage 1: weight share memory"),
    "double": (one_stage("nn.Linear(6, 3).double()"), "parameter weight is of type torch.float64"),
    "meta": (one_stage("nn.Linear(6, 3, device='meta')"), "device meta"),
    "lazy": (one_stage("nn.LazyLinear(3)"), "no shape yet"),
    "dp": (one_stage("nn.DataParallel(nn.Linear(6, 3))"), "DataParallel"),
    "compiled": (one_stage("torch.compile(nn.Linear(6, 3))"), "OptimizedModule"),
    "rank": (one_stage("M()", """
class M(nn.Linear):
    def __init__(self):
        super().__init__(6, 3)
        self.p = nn.Parameter(torch.zeros([1] * 9))"""), "9 dimensions, at most 8"),
    "untrained": (one_stage("nn.Linear(6, 3).requires_grad_(False)"), "nothing to train"),
    "not in the optimizer": (with_optimizer("AdamW(params[:1])"), "does not have bias"),
    "sgd": (with_optimizer("SGD(params, lr=1)"), "SGD: torch.optim.AdamW is wanted"),
    "adam with decay": (with_optimizer("Adam(params, weight_decay=0.1)"), "Adam"),
    "amsgrad": (with_optimizer("AdamW(params, amsgrad=True)"), "amsgrad"),
    "maximize": (with_optimizer("AdamW(params, maximize=True)"), "maximize"),
    "two rates": (with_optimizer("AdamW([dict(params=params[:1], lr=1), dict(params=params[1:])])"), "lr, beta1"),
    "two decays": (with_optimizer("AdamW([dict(params=params[:1], weight_decay=1.), dict(params=params[1:])])"),
                   r"0\.01, 1\.0"),
    "rates by stage": (one_stage("nn.Linear(6, 6), nn.Sequential(nn.Linear(6, 3))", optimizer=(
        "lambda params: torch.optim.AdamW(params, lr=len(params[0]))")), "optimizer of stage 1"),
    "loss of no number": (one_stage("nn.Linear(6, 3)", loss="lambda y, t: y"), r"float32\[4, 3\]"),
    "loss of integers": (one_stage("nn.Linear(6, 3)", loss="lambda y, t: t.sum()"), "int64"),
    "output": (one_stage("M(), nn.Linear(6, 3)", """
class M(nn.Linear):
    def __init__(self): super().__init__(6, 6)
    def forward(self, x): return {"x": x}"""), "stage 0 returns dict"),
    "module": (one_stage("lambda: 3"), r"stages\[0\] made int"),
    "changing": (one_stage("lambda: nn.Sequential(*[nn.Linear(6, 6) for _ in range(len(made))], nn.Linear(6, 3), "
                           "*map(made.append, []), *[made.append(1)][:0])", "made = []"), "another module each time"),
    "count": (one_stage("nn.Linear(6, 6), nn.Sequential(nn.Linear(6, 3))"), "parallel.stages to 2"),
    "loss that learns": (one_stage("nn.Linear(6, 3)", loss="nn.AdaptiveLogSoftmaxWithLoss(3, 3, [1])"), "last stage"),
    "nothing": ("import pawl\nfrom pawl import pipeline\n", "no `pipeline`"),
    "something": ("pipeline = 3", "returns int"),
}


class Refusals(Case):
    def test_what_cannot_be_exact_is_refused_by_name(self) -> None:
        for name, (text, wanted) in REFUSED.items():
            stages = {"shared": 2, "shared by functions": 2, "view": 2, "rates by stage": 2, "output": 2}.get(name, 1)
            with self.subTest(name), self.assertRaisesRegex(Failed, wanted) as raised:
                self.driver(text, stages=stages)
            self.assertIn(raised.exception.code, ("ARGUMENT", "UNSUPPORTED"), name)

    def test_what_pipeline_gets_is_checked_without_torch(self) -> None:
        good: dict[str, Any] = dict(stages=[max], loss=max, data=[], optimizer=max)
        for change, wanted in ((dict(stages=[]), "at least one"), (dict(stages=[max, 3]), r"stages\[1\].*int"),
                               (dict(loss=1), "loss"), (dict(data=iter([])), "__len__"), (dict(optimizer=2), "optimizer"),
                               (dict(collate=2), "collate")):
            with self.assertRaisesRegex(errors.Argument, wanted):
                pawl.pipeline(**{**good, **change})
        code = "import sys, pawl; pawl.pipeline(stages=[max], loss=max, data=[], optimizer=max); " \
               "sys.exit('torch' in sys.modules)"
        subprocess.run([sys.executable, "-c", code], check=True)

    def test_a_shape_that_changes_is_told_with_both(self) -> None:
        driver = self.driver(one_stage("M(), nn.Linear(6, 3)", """
class M(nn.Linear):
    def __init__(self): super().__init__(6, 6)
    def forward(self, x): return super().forward(x)[: 4 - (x[0, 0] < 0).long()]"""), stages=2)
        params = driver.params(0)
        with self.assertRaisesRegex(Failed, r"float32\[[34], 6\].*step \d.*float32\[[34], 6\]"):
            for step in range(9):
                driver.microbatch(0, params, step, 0).forward()

    def test_a_buffer_that_changes_later_is_refused_too(self) -> None:
        driver = self.driver(one_stage("M()", """
class M(nn.Linear):
    def __init__(self):
        super().__init__(6, 3)
        self.calls = 0
        self.register_buffer("late", torch.zeros(1))
    def forward(self, x):
        self.calls += 1
        if self.calls > 3: self.late += 1
        return super().forward(x)"""), stages=1)
        params = driver.params(0)
        with self.assertRaisesRegex(Failed, "changes late"):
            for step in range(4):
                driver.microbatch(0, params, step, 0).forward()

    def test_options_and_a_pipeline_that_takes_none_do_not_go_together(self) -> None:
        for text, options, wanted in ((MLP, "{}", "takes none"), (GPT, "[1]", "list"), (GPT, "{", "no JSON"),
                                      ("def pipeline(): return 1", '{"a": 1}', "no argument")):
            with self.subTest(options), self.assertRaisesRegex(Failed, wanted):
                self.driver(text, stages=3, options=options)


class UserErrors(Case):
    def failed(self, text: str, **job: Any) -> tuple[Failed, str]:
        told = io.StringIO()
        with contextlib.redirect_stderr(told), self.assertRaises(Failed) as raised:
            self.driver(text, **job)
        return raised.exception, told.getvalue()

    def test_an_exception_is_told_with_its_line_and_the_traceback_is_printed(self) -> None:
        for text, wanted in (("import pawl\n\nraise ValueError('bad\\0day')", r"ValueError: bad day \(.*train_me.py:3\)"),
                             ("import pawl\nx = (", r"SyntaxError: .* \(.*train_me.py:2\)"),
                             ("import no_such_thing", r"ModuleNotFoundError: .*train_me.py:1\)"),
                             ("raise SystemExit(3)", r"SystemExit: 3 \("),
                             (HEAD + "pipeline = lambda options: options['no']", r"KeyError: 'no'"),
                             (one_stage("nn.Linear(7, 3)"), r"RuntimeError: mat1 and mat2 .*[.]py:\d+\)")):
            with self.subTest(text[-30:]):
                error, told = self.failed(text, stages=1)
                self.assertEqual(error.code, "USER")
                self.assertRegex(str(error), wanted)
                self.assertIn("Traceback", told)

    def test_one_in_a_call_is_of_that_call_alone(self) -> None:
        driver = self.driver(one_stage("M()", """
class M(nn.Linear):
    def __init__(self):
        super().__init__(6, 3)
        self.calls = 0
    def forward(self, x):
        self.calls += 1
        if self.calls > 3: raise ArithmeticError("x" * 2000 + "\\u00e9" * 100)
        return super().forward(x)"""), stages=1)
        params, codes = driver.params(0), []
        for step in range(8):
            with contextlib.redirect_stderr(io.StringIO()):
                try:
                    driver.run([params], step, 0)
                    codes.append("OK")
                except Failed as error:
                    codes.append(error.code)
                    self.assertRegex(str(error), "^ArithmeticError: x+$")
        self.assertEqual(codes, ["OK"] * 2 + ["USER"] * 6)

    def test_no_file_and_a_neighbour_s_import(self) -> None:
        (self.folder / "beside.py").write_text("import torch\nstage = torch.nn.Linear(6, 3)\n")
        self.driver(one_stage("stage", "from beside import stage"), stages=1)
        error, _ = self.failed("", stages=1, name="no.txt")
        self.assertIn("no.txt", str(error))


class Worker(unittest.TestCase):
    def run_worker(self, *words: str, **env: str) -> tuple[int, str]:
        done = subprocess.run([sys.executable, "-m", "pawl.worker", *words], capture_output=True, text=True,
                              env={**os.environ, **env})
        return done.returncode, done.stderr

    def test_it_says_who_starts_it_and_which_library_is_missing(self) -> None:
        for words in ((), ("worker",), ("worker", "x"), ("worker", "77")):
            code, text = self.run_worker(*words)
            self.assertEqual(code, errors.Argument.exit_code)
            self.assertIn("started by `pawl train`", text)
        code, text = self.run_worker("worker", "0", PAWL_LIBRARY_TRAIN="/no/such.so")
        self.assertEqual(code, errors.NotFound.exit_code)
        self.assertRegex(text, "^pawl: .*/no/such.so.*PAWL_LIBRARY_TRAIN")


if __name__ == "__main__":
    torch.set_num_threads(1)
    unittest.main()
