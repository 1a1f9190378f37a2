"""Stages in PyTorch under the `pawl` command: the same bits under failures, and what a plain loop computes.

Needs PAWL_BUILD_DIR, the folder of pawl and libpawl_train.so."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import subprocess
import sys
import unittest
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/e2e"))

from runs import PAWL, TIMEOUT, RunCase  # noqa: E402

if importlib.util.find_spec("torch") is None or not PAWL.exists():
    print("skipped: this Python has no torch, or there is no pawl in PAWL_BUILD_DIR")
    sys.exit(77)

import torch  # noqa: E402

from pawl._samples import Samples  # noqa: E402
from pawl._user import load, seed  # noqa: E402

STEPS, SEED, BATCH, CONTRIBUTIONS = 20, 5, 2, 4
CLIP, WARMUP, DECAY, LR_MIN = 0.69, 4, 16, 1e-4
SPEC = """
run: {{dir: {dir}, steps: {steps}, seed: {seed}, engine: torch}}
torch: {{module: {module}, options: '{options}'}}
parallel: {{pipelines: 2, stages: 2, microbatches: 2, batch: 2}}
optimizer: {{clip_norm: 0.69, warmup_steps: 4, decay_steps: 16, lr_min: 1e-4}}
save: {{every: 1, keep: 2}}
"""
# The example's pipeline. `go`: a file; while it is not there each sample takes a while, so that one can join.
# `good`: after so many calls in one process, stage 1 fails in every process: what fails is the user's code,
# not the machine, so that another try fails too.
MODULE = """
import importlib.util, os, pathlib, time
spec = importlib.util.spec_from_file_location("example", {example!r})
example = importlib.util.module_from_spec(spec)
spec.loader.exec_module(example)
example.WIDTH = {width}
class Slow:
    def __init__(self, data, go): self.data, self.go = data, go
    def __len__(self): return len(self.data)
    def __getitem__(self, index):
        if not os.path.exists(self.go): time.sleep(0.6)
        return self.data[index]
class Failing(example.nn.Module):
    calls, fails = 0, pathlib.Path(__file__ + ".fails")
    def forward(self, x):
        Failing.calls += 1
        if Failing.calls > {good}: self.fails.touch()
        if self.fails.exists():
            raise ValueError("the shoe does not fit")
        return x
def pipeline(options):
    p = example.pipeline(options)
    if {good}: p.stages[1].append(Failing())
    print("made a pipeline")
    return example.pawl.pipeline(stages=p.stages, loss=p.loss, optimizer=p.optimizer,
                                 data=Slow(p.data, {go!r}) if {go!r} else p.data)
"""


class Torch(RunCase):  # type: ignore[misc]
    wanted: dict[str, Any] = {}  # the report of a run that nothing happens to
    first: Path  # its folder

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        environment = dict(PAWL_PYTHON=sys.executable, PYTHONPATH=str(ROOT / "python"))
        cls.saved = {key: os.environ.get(key) for key in environment}
        os.environ.update(environment)

    @classmethod
    def tearDownClass(cls) -> None:
        for key, value in cls.saved.items():
            os.environ.pop(key) if value is None else os.environ.update({key: value})
        super().tearDownClass()

    def spec(self, width: int = 16, go: str = "", good: int = 0, **changes: Any) -> tuple[Path, Path]:
        type(self).serial += 1
        folder = self.root / f"run{self.serial}"
        values = (
            dict(
                dir=folder,
                steps=STEPS,
                seed=SEED,
                module=self.root / f"module{self.serial}.py",
                options=json.dumps({"text": str(self.text), "dropout": 0.1}),
            )
            | changes
        )
        self.module(values["module"], width, go, good)
        path = self.root / f"spec{self.serial}.yaml"
        path.write_text(SPEC.format(**values))
        return path, folder

    def module(self, path: Path, width: int = 16, go: str = "", good: int = 0) -> None:
        path.write_text(
            MODULE.format(example=str(ROOT / "examples/python/pipeline.py"), width=width, go=go, good=good)
        )

    def undisturbed(self) -> dict[str, Any]:
        """The report of a run that nothing happens to."""
        if not self.wanted:
            spec, folder = self.spec()
            self.run_pawl(spec)
            type(self).first = folder
            type(self).wanted = self.report(folder)
        return self.wanted

    def check(self, folder: Path) -> None:
        report = self.report(folder)
        self.assertEqual(report["final_step"], STEPS)
        self.assertEqual(report["weights_sha256"], self.undisturbed()["weights_sha256"])

    def test_killed_workers_a_killed_coordinator_and_a_notice_change_no_bit(self) -> None:
        spec, folder = self.spec()
        self.run_pawl(spec, "--inject", "kill:1@3", "--inject", "coord@7", "--inject", "term:0@12")
        report = self.report(folder)
        self.assertEqual((report["failures"], report["leaves"], report["coordinator_restarts"]), (1, 1, 1))
        self.check(folder)

    def test_all_killed_and_started_again_changes_no_bit_and_other_models_or_data_are_foreign(self) -> None:
        spec, folder = self.spec()
        done = subprocess.run(
            [PAWL, "train", spec, "--quiet", "--inject", "kill:launcher@8"],
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
        self.assertEqual(done.returncode, -9, done.stderr)
        module = self.root / f"module{self.serial}.py"
        self.module(module, width=128)  # of another length: byte code knows a file by its second and length
        refused = self.run_pawl(spec, expect=76)
        self.assertRegex(refused.stderr, r"parameter '.*' is \[.*128.*\] but this run began with \[.*16.*\]")
        self.module(module)
        half = "    p.data.text = p.data.text[: len(p.data.text) // 2]\n    print("
        module.write_text(module.read_text().replace("    print(", half))
        refused = self.run_pawl(spec, expect=76)
        self.assertRegex(refused.stderr, r"the data has (\d+) samples but this run began with (?!\1)\d+")
        self.module(module)
        self.run_pawl(spec)
        self.assertTrue(self.report(folder)["resumed"])
        self.check(folder)

    def test_one_that_joins_and_a_stop_in_between_change_no_bit(self) -> None:
        go = self.root / "go"
        spec, folder = self.spec(go=str(go))
        run = self.start(spec, "--inject", "kill:2@2")
        self.await_event(run, folder, "worker_exit")
        joined = self.join(folder)
        self.await_event(run, folder, "joined")
        self.command("stop", folder)
        self.finish(run)
        joined.communicate(timeout=TIMEOUT)
        self.assertLess(self.report(folder)["final_step"], STEPS)
        go.touch()
        self.run_pawl(spec)
        self.check(folder)

    def test_losses_are_those_of_a_plain_loop(self) -> None:
        self.undisturbed()
        had = [(event["loss"], event["grad_norm"]) for event in self.events(self.first, "step")]
        wanted = plain_losses(self.made())
        self.assertEqual(len(had), STEPS)
        torch.testing.assert_close(torch.tensor(had), torch.tensor(wanted), rtol=2e-5, atol=0)
        self.assertLess(had[-1][0], had[0][0])
        self.assertEqual({norm > CLIP for _, norm in had}, {True, False})  # clipped in some steps

    def made(self) -> Any:
        """The pipeline of the undisturbed run, in this process."""
        module = self.first.with_name(self.first.name.replace("run", "module")).with_suffix(".py")
        return load(str(module), json.dumps({"text": str(self.text), "dropout": 0.1}), SEED)

    def test_weights_are_exported_by_their_names(self) -> None:
        self.undisturbed()
        out = self.root / "weights.safetensors"
        self.command(
            "ckpt", "export", self.first, "-o", out, "--exclude", "exp_avg*", "--exclude", "exponent/"
        )
        from safetensors.torch import load_file

        tensors = load_file(out)
        made = self.made()
        for stage in made.stages:  # no two stages have a name in common
            stage.load_state_dict({name: tensors[name] for name in stage.state_dict()})
        self.assertEqual(len(tensors), sum(len(stage.state_dict()) for stage in made.stages))

    def test_an_exception_of_the_user_s_ends_the_run_with_its_line(self) -> None:
        spec, folder = self.spec(good=1 + 3 * CONTRIBUTIONS)
        done = self.run_pawl(spec, expect=1)
        self.assertRegex(
            done.stderr.splitlines()[-1],
            r"stage 1, step \d+, micro-batch \d: forward: ValueError: the shoe "
            r"does not fit \(.*module\d+\.py:\d+\)",
        )
        self.assertIn("Traceback", done.stderr)
        self.assertLessEqual(len(self.events(folder, "worker_failed")), 4)

    def test_the_example_runs_as_it_is_printed(self) -> None:
        words = ["--json", "--steps", "3", "--set", f"run.dir={self.root}/example"]
        words += ["--set", "torch.options=" + json.dumps({"text": str(self.text)})]
        command = [PAWL, "train", "examples/python/pipeline.yaml", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, cwd=ROOT)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["final_step"], 3)


def rate(step: int) -> float:
    """What the optimizer's learning rate is multiplied by."""
    if step < WARMUP:
        return (step + 1) / WARMUP
    least, share = LR_MIN / 1e-3, min(1.0, (step - WARMUP) / (DECAY - WARMUP))
    return least + 0.5 * (1 + math.cos(math.pi * share)) * (1 - least)


def plain_losses(made: Any) -> list[tuple[float, float]]:
    """The mean loss and the gradient's norm of each step, by PyTorch alone; only what is random is set as
    pawl does."""
    torch.set_num_threads(1)
    samples = Samples(made, SEED, BATCH, CONTRIBUTIONS)
    model = torch.nn.Sequential(*made.stages)
    optimizer = made.optimizer(list(model.named_parameters()))
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        total = 0.0
        for number in range(CONTRIBUTIONS):
            value, target = samples.both(step, number)
            for index, stage in enumerate(made.stages):
                seed(SEED, "forward", index, step, number)
                value = stage(value)
            loss = made.loss(value, target) / CONTRIBUTIONS
            loss.backward()
            total += loss.item()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        scheduler.step()
        losses.append((total, norm.item()))
    return losses


if __name__ == "__main__":
    unittest.main()
