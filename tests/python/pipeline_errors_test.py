"""What the engine over PyTorch refuses, and what becomes of the user's own errors."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import subprocess
import sys
import unittest
from pathlib import Path
from typing import Any

if importlib.util.find_spec("torch") is None:
    print("skipped: this Python has no torch")
    sys.exit(77)

import torch  # noqa: E402
from pipeline_kit import GPT, HEAD, MLP, Case, Failed  # noqa: E402

import pawl  # noqa: E402
from pawl import errors  # noqa: E402

def one_stage(stage: str, before: str = "", **changes: str) -> str:
    parts = dict(loss="F.cross_entropy", data="Data()", optimizer="adamw") | changes
    return (
        HEAD
        + before
        + f"\npipeline = pawl.pipeline(stages=[{stage}], "
        + ", ".join(f"{k}={v}" for k, v in parts.items())
        + ")\n"
    )


def with_optimizer(text: str) -> str:
    return one_stage("nn.Linear(6, 3)", optimizer=f"lambda params: torch.optim.{text}")


REFUSED = {
    "buffer": (one_stage("nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3))"), r"stage 0.*1\.(running|num)"),
    "parameter": (
        one_stage(
            "M()",
            """
class M(nn.Linear):
    def __init__(self): super().__init__(6, 3)
    def forward(self, x):
        with torch.no_grad(): self.weight.clamp_(-.01, .01)
        return super().forward(x)""",
        ),
        "stage 0: a forward changes weight",
    ),
    "shared": (
        one_stage("a, nn.Sequential(nn.ReLU(), a)", "a = nn.Linear(6, 6)"),
        r"stage 0: weight and stage 1: 1\.weight",
    ),
    "shared by functions": (
        one_stage("lambda: a, lambda: nn.Sequential(a)", "a = nn.Linear(6, 6)"),
        "share memory",
    ),
    "view": (
        one_stage(
            "a, b",
            """
a, b = nn.Linear(6, 6), nn.Linear(6, 6)
b.weight = nn.Parameter(a.weight.data)""",
        ),
        "stage 0: weight and stage 1: weight share memory",
    ),
    "double": (one_stage("nn.Linear(6, 3).double()"), "parameter weight is of type torch.float64"),
    "meta": (one_stage("nn.Linear(6, 3, device='meta')"), "device meta"),
    "lazy": (one_stage("nn.LazyLinear(3)"), "no shape yet"),
    "dp": (one_stage("nn.DataParallel(nn.Linear(6, 3))"), "DataParallel"),
    "dp inside": (one_stage("nn.Sequential(nn.DataParallel(nn.Linear(6, 3)))"), r"stage 0\.0 is a DataP"),
    "compiled": (one_stage("torch.compile(nn.Linear(6, 3))"), "OptimizedModule"),
    "rank": (
        one_stage(
            "M()",
            """
class M(nn.Linear):
    def __init__(self):
        super().__init__(6, 3)
        self.p = nn.Parameter(torch.zeros([1] * 9))""",
        ),
        "9 dimensions, at most 8",
    ),
    "untrained": (one_stage("nn.Linear(6, 3).requires_grad_(False)"), "nothing to train"),
    "not in the optimizer": (with_optimizer("AdamW(params[:1])"), "does not have bias"),
    "sgd": (with_optimizer("SGD(params, lr=1)"), "SGD: torch.optim.AdamW is wanted"),
    "adam with decay": (with_optimizer("Adam(params, weight_decay=0.1)"), "Adam"),
    "amsgrad": (with_optimizer("AdamW(params, amsgrad=True)"), "amsgrad"),
    "maximize": (with_optimizer("AdamW(params, maximize=True)"), "maximize"),
    "two rates": (
        with_optimizer("AdamW([dict(params=params[:1], lr=1), dict(params=params[1:])])"),
        "lr, beta1",
    ),
    "two decays": (
        with_optimizer("AdamW([dict(params=params[:1], weight_decay=1.), dict(params=params[1:])])"),
        r"0\.01, 1\.0",
    ),
    "rates by stage": (
        one_stage(
            "nn.Linear(6, 6), nn.Sequential(nn.Linear(6, 3))",
            optimizer=("lambda params: torch.optim.AdamW(params, lr=len(params[0]))"),
        ),
        "optimizer of stage 1",
    ),
    "decays by stage": (
        one_stage(
            "nn.Linear(6, 6), nn.Sequential(nn.Linear(6, 3))",
            optimizer=("lambda params: torch.optim.AdamW(params, weight_decay=len(params[0]))"),
        ),
        "optimizer of stage 1 .*weight_decay=3.0",
    ),
    "loss of no number": (one_stage("nn.Linear(6, 3)", loss="lambda y, t: y"), r"float32\[4, 3\]"),
    "loss detached": (
        one_stage("nn.Linear(6, 3)", loss="lambda y, t: F.cross_entropy(y, t).detach()"),
        "a number without a gradient.*output of stage 0",
    ),
    "loss of a constant": (
        one_stage("nn.Linear(6, 3)", loss="lambda y, t: torch.zeros((), requires_grad=True)"),
        "a number without a gradient",
    ),
    "last stage cuts": (
        one_stage(
            "nn.Linear(6, 6), M()",
            """
class M(nn.Linear):
    def __init__(self): super().__init__(6, 3)
    def forward(self, x): return super().forward(x).detach()""",
        ),
        "a number without a gradient.*output of stage 1",
    ),
    "stage cuts its input": (
        one_stage(
            "nn.Linear(6, 6), M(), nn.Sequential(nn.ReLU())",
            """
class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.own = nn.Linear(6, 3)
    def forward(self, x): return self.own(x.detach())""",
        ),
        "stage 0: no gradient of the loss comes to its parameters weight, bias: stage 1 computes the loss "
        "from nothing",
    ),
    "stage without a use of its parameters": (
        one_stage(
            "nn.Linear(6, 6), M(), Sum(6, 3)",
            """
class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.own = nn.ModuleList([nn.Linear(6, 6), nn.Linear(6, 6)])
    def forward(self, x): return x, self.own[0](x)
class Sum(nn.Linear):
    def forward(self, x, y): return super().forward(x + 0 * y.detach())""",
        ),
        r"stage 1: .* own.0.weight, own.0.bias, own.1.weight and 1 more: the loss depends on none",
    ),
    "loss of integers": (one_stage("nn.Linear(6, 3)", loss="lambda y, t: t.sum()"), "int64"),
    "output": (
        one_stage(
            "M(), nn.Linear(6, 3)",
            """
class M(nn.Linear):
    def __init__(self): super().__init__(6, 6)
    def forward(self, x): return {"x": x}""",
        ),
        "stage 0 returns dict",
    ),
    "module": (one_stage("lambda: 3"), r"stages\[0\] made int"),
    "changing": (
        one_stage(
            "lambda: nn.Sequential(*[nn.Linear(6, 6) for _ in range(len(made))], nn.Linear(6, 3), "
            "*map(made.append, []), *[made.append(1)][:0])",
            "made = []",
        ),
        "another module each time",
    ),
    "count": (one_stage("nn.Linear(6, 6), nn.Sequential(nn.Linear(6, 3))"), "parallel.stages to 2"),
    "loss that learns": (
        one_stage("nn.Linear(6, 3)", loss="nn.AdaptiveLogSoftmaxWithLoss(3, 3, [1])"),
        "last stage",
    ),
    "nothing": ("import pawl\nfrom pawl import pipeline\n", "no `pipeline`"),
    "something": ("pipeline = 3", "returns int"),
}


class Refusals(Case):
    def test_what_cannot_be_exact_is_refused_by_name(self) -> None:
        for name, (text, wanted) in REFUSED.items():
            stages = {
                "shared": 2,
                "shared by functions": 2,
                "view": 2,
                "rates by stage": 2,
                "decays by stage": 2,
                "output": 2,
                "last stage cuts": 2,
                "stage cuts its input": 3,
                "stage without a use of its parameters": 3,
            }.get(name, 1)
            with self.subTest(name), self.assertRaisesRegex(Failed, wanted) as raised:
                self.driver(text, stages=stages)
            self.assertIn(raised.exception.code, ("ARGUMENT", "UNSUPPORTED"), name)

    def test_what_pipeline_gets_is_checked_without_torch(self) -> None:
        good: dict[str, Any] = dict(stages=[max], loss=max, data=[], optimizer=max)
        for change, wanted in (
            (dict(stages=[]), "at least one"),
            (dict(stages=[max, 3]), r"stages\[1\].*int"),
            (dict(loss=1), "loss"),
            (dict(data=iter([])), "__len__"),
            (dict(optimizer=2), "optimizer"),
            (dict(collate=2), "collate"),
        ):
            with self.assertRaisesRegex(errors.Argument, wanted):
                pawl.pipeline(**{**good, **change})
        code = (
            "import sys, pawl; pawl.pipeline(stages=[max], loss=max, data=[], optimizer=max); "
            "sys.exit('torch' in sys.modules)"
        )
        subprocess.run([sys.executable, "-c", code], check=True)

    def test_a_shape_that_changes_is_told_with_both(self) -> None:
        driver = self.driver(
            one_stage(
                "M(), nn.Linear(6, 3)",
                """
class M(nn.Linear):
    def __init__(self): super().__init__(6, 6)
    def forward(self, x): return super().forward(x)[: 4 - (x[0, 0] < 0).long()]""",
            ),
            stages=2,
        )
        params = driver.params(0)
        with self.assertRaisesRegex(Failed, r"float32\[[34], 6\].*step \d.*float32\[[34], 6\]"):
            for step in range(9):
                driver.microbatch(0, params, step, 0).forward()

    def test_a_buffer_or_a_parameter_that_changes_later_is_refused_too(self) -> None:
        for change, name in (
            ("self.late += 1", "late"),
            ("self.late = self.late + 1", "late"),
            ("self.bias.detach().add_(1)", "bias"),
            ("self.norm.train()", r"norm\.(running|num)"),
        ):
            text = LATE.replace("change()", change)
            driver = self.driver(one_stage("M()", text), stages=1)
            params = driver.params(0)
            with self.subTest(change), self.assertRaisesRegex(Failed, f"changes {name}"):
                for step in range(4):
                    driver.microbatch(0, params, step, 0).forward()

    def test_options_and_a_pipeline_that_takes_none_do_not_go_together(self) -> None:
        for text, options, wanted in (
            (MLP, "{}", "takes none"),
            (GPT, "[1]", "list"),
            (GPT, "{", "no JSON"),
            ("def pipeline(): return 1", '{"a": 1}', "no argument"),
        ):
            with self.subTest(options), self.assertRaisesRegex(Failed, wanted):
                self.driver(text, stages=3, options=options)


LATE = """
class M(nn.Linear):
    def __init__(self):
        super().__init__(6, 3)
        self.calls, self.norm = 0, nn.BatchNorm1d(3, affine=False).eval()
        self.register_buffer("late", torch.zeros(1))
    def forward(self, x):
        self.calls += 1
        if self.calls > 3: change()
        return self.norm(super().forward(x))"""
CALLS = """
class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.own = nn.Linear(7, 3)
    def forward(self, x): return self.own(x)"""


class UserErrors(Case):
    def failed(self, text: str, **job: Any) -> tuple[Failed, str]:
        told = io.StringIO()
        with contextlib.redirect_stderr(told), self.assertRaises(Failed) as raised:
            self.driver(text, **job)
        return raised.exception, told.getvalue()

    def test_an_exception_is_told_with_its_line_and_the_traceback_is_printed(self) -> None:
        for text, wanted in (
            ("import pawl\n\nraise ValueError('bad\\0day')", r"ValueError: bad day \(.*train_me.py:3\)"),
            ("import pawl\nx = (", r"SyntaxError: .* \(.*train_me.py:2\)"),
            ("import no_such_thing", r"ModuleNotFoundError: .*train_me.py:1\)"),
            ("raise SystemExit(3)", r"SystemExit: 3 \("),
            (HEAD + "pipeline = lambda options: options['no']", r"KeyError: 'no'"),
            (one_stage("nn.Linear(7, 3)"), r"^stage 0: RuntimeError: mat1 and mat2 .*[.]py:\d+\)"),
            (one_stage("M()", CALLS), r"^stage 0: RuntimeError: mat1 and mat2 .*train_me.py:16\)$"),
            (one_stage("lambda: nn.Linear(-1)"), r"^stage 0: TypeError: .*train_me.py:12\)$"),
            (with_optimizer("AdamW(params, lr=-1)"), "^the optimizer of stage 0: ValueError: .*train_me.py"),
            (one_stage("nn.Linear(6, 3)", loss="lambda y, t: t.no"), "^the loss: AttributeError: .*_me.py"),
        ):
            with self.subTest(text[-30:]):
                error, told = self.failed(text, stages=1)
                self.assertEqual(error.code, "USER")
                self.assertRegex(str(error), wanted)
                self.assertRegex(told, "^(Traceback|  File .*train_me.py)")
                self.assertNotIn(str(Path(pawl.__file__).parent), told)

    def test_one_in_a_call_is_of_that_call_alone(self) -> None:
        driver = self.driver(
            one_stage(
                "M()",
                """
class M(nn.Linear):
    def __init__(self):
        super().__init__(6, 3)
        self.calls = 0
    def forward(self, x):
        self.calls += 1
        if self.calls > 3: raise ArithmeticError("x" * 2000 + "\\u00e9" * 100)
        return super().forward(x)""",
            ),
            stages=1,
        )
        params, codes = driver.params(0), []
        for step in range(8):
            with contextlib.redirect_stderr(io.StringIO()):
                try:
                    driver.run([params], step, 0)
                    codes.append("OK")
                except Failed as error:
                    codes.append(error.code)
                    self.assertRegex(str(error), r"^ArithmeticError: x+\.\.\. \(.*train_me.py:18\)$")
        self.assertEqual(codes, ["OK"] * 2 + ["USER"] * 6)

    def test_an_interrupt_ends_the_process_and_until_then_it_has_loaded_no_compiler(self) -> None:
        text = ENDING.format(tests=str(Path(__file__).parent), folder=str(self.folder))
        done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (130, "[]\n"), done.stderr)

    def test_no_file_and_a_neighbour_s_import(self) -> None:
        (self.folder / "beside.py").write_text("import torch\nstage = torch.nn.Linear(6, 3)\n")
        self.driver(one_stage("stage", "from beside import stage"), stages=1)
        self.assertEqual(self.failed("raise MemoryError", stages=1)[0].code, "MEMORY")
        error, _ = self.failed("", stages=1, name="no.txt")
        self.assertIn("no.txt", str(error))


ENDING = """
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from pipeline_kit import MLP, Driver
driver = Driver(Path({folder!r}), MLP + """ + '"""' + """
class Ended(nn.Module):
    def forward(self, x):
        if torch.is_grad_enabled() and pawl.ending: raise KeyboardInterrupt
        return x
pawl.ending = False
pipeline.stages[0].append(Ended())
""" + '"""' + """, stages=3)
params = [driver.params(stage) for stage in range(3)]
driver.run(params, 0, 0)
print(sorted({{"torch._dynamo", "sympy"}} & set(sys.modules)), flush=True)
import pawl
pawl.ending = True
driver.run(params, 0, 1)
"""


class Worker(unittest.TestCase):
    def run_worker(self, *words: str, **env: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "pawl.worker", *words],
            capture_output=True,
            text=True,
            env={**os.environ, **env},
        )
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
