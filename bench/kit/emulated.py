"""Jobs on emulated workers: real processes, real messages, real time, no arithmetic (docs/spec.md, engine emulated).

A job is described by its shape and the cost of its stages; what it did is read from run.dir/log.jsonl. Used by
bench/emulated_period.py and bench/emulated_policies.py.
"""
import datetime
import json
import os
import pathlib
import resource
import subprocess
import tempfile
import time

STEADY_AFTER = 2  # steps after a change of plan that are not measured: the pipeline fills


def go_first():
    """Puts this process, and so all that it starts, before whatever else the machine does: a device does not wait for a
    compiler. Takes a tenth of the machine. Returns what came of it, for people."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
        return "real-time priority"
    except OSError as why:
        return f"normal priority ({why.strerror}): what else runs on the machine is measured too"


def write_profile(path, stages, unit_s):
    """stages: (forward, input_grad, weight_grad) in units, first to last."""
    lines = ["pawl_profile: 1", f"unit_s: {unit_s!r}", "stages:"]
    for forward, input_grad, weight_grad in stages:
        lines.append(f"  - {{forward: {forward!r}, input_grad: {input_grad!r}, weight_grad: {weight_grad!r}}}")
    path.write_text("\n".join(lines) + "\n")


class Stretch:
    """What happened under one plan: its event, and when each step was decided."""

    def __init__(self, plan):
        self.plan = plan
        self.times = []

    def is_measured(self):
        return len(self.times) >= STEADY_AFTER + 4

    def period_s(self):
        steady = self.times[STEADY_AFTER:]
        return (steady[-1] - steady[0]) / (len(steady) - 1)


class Log:
    def __init__(self, text, cpu_s, wall_s):
        self.events = [json.loads(line) for line in text.splitlines() if line.strip()]
        self.cpu_share = cpu_s / wall_s / os.cpu_count()
        self.stretches = []
        for event in self.events:
            if event["event"] == "plan":
                self.stretches.append(Stretch(event))
            elif event["event"] == "step" and self.stretches:
                at = datetime.datetime.strptime(event["time"], "%Y-%m-%dT%H:%M:%S.%fZ")
                self.stretches[-1].times.append((at - datetime.datetime(2000, 1, 1)).total_seconds())


def children_cpu_s():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Job:
    def __init__(self, build, shape, stages, unit_s, **sets):
        """shape: (pipelines, stages, microbatches); sets: section__key=value of the spec."""
        self.pawl = pathlib.Path(build) / "pawl"
        self.shape, self.stages, self.unit_s, self.sets = shape, stages, unit_s, sets

    def run(self, steps, kills=()):
        """Trains `steps` steps; kills: (rank, step). Returns the Log."""
        pipelines, stages, microbatches = self.shape
        with tempfile.TemporaryDirectory(prefix="pawl-emulated-") as folder:
            root = pathlib.Path(folder)
            write_profile(root / "profile.yaml", self.stages, self.unit_s)
            (root / "spec.yaml").write_text(
                f"run: {{dir: {root}/run, steps: {steps}, engine: emulated}}\n"
                f"emulated: {{profile: {root}/profile.yaml}}\n"
                f"parallel: {{pipelines: {pipelines}, stages: {stages}, microbatches: {microbatches}}}\n"
                "save: {every: 0}\nfailure: {timeout_s: 5}\n")
            command = [self.pawl, "train", root / "spec.yaml", "--quiet"]
            for name, value in self.sets.items():
                command += ["--set", f"{name.replace('__', '.')}={value}"]
            for rank, step in kills:
                command += ["--inject", f"kill:{rank}@{step}"]
            cpu_s, began = children_cpu_s(), time.monotonic()
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if done.returncode != 0:
                raise RuntimeError(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout}")
            return Log((root / "run/log.jsonl").read_text(), children_cpu_s() - cpu_s, time.monotonic() - began)
