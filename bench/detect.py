"""How soon a lost worker is noticed, how long the others stand still, and whether anybody is taken for lost who is not.
Live jobs, real signals from outside; times are those of log.jsonl (milliseconds) against the moment of the signal.

    python bench/detect.py BUILD_DIR [kill|real|stop|join|alarms]... [--runs N]

kill    SIGKILL 50 times, emulated workers (8 pipelines x 2 stages): to worker_lost, to the first survivor that executes
        an instruction of the new plan and to the last one (pipelines have to fill), sampled from /proc.
real    the same with GPTs that compute (2 x 2 and real arithmetic, 10 kills).
stop    SIGSTOP with the default settings: to worker_lost, against failure.timeout_s.
join    a killed worker comes back: how much longer than an iteration the others' longest one around it is.
alarms  N runs with the default settings; workers stand still (SIGSTOP, no beat) for 1, 10 or 100 times a step while they
        load, save, take up a plan and compute, or their disk does, or they compute 100 times as slowly: nobody is lost.
"""
import argparse
import concurrent.futures
import datetime
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import tempfile
import time

UNIT_S = 0.005
MICROBATCHES = 4
STEP_S = 3 * UNIT_S * MICROBATCHES  # of a pipeline in which nobody waits
DEFAULT_TIMEOUT_S = 10
POLLING = ("7", "271")  # poll, ppoll: x86-64's numbers; whatever else a worker's main thread does is work
PART_NAMES = ("kill", "real", "stop", "join", "alarms")


def write_job(folder, shape, steps, engine="emulated", more=""):
    pipelines, stages = shape
    stage = "  - {forward: 1, input_grad: 1, weight_grad: 1}\n"
    (folder / "profile.yaml").write_text(f"pawl_profile: 1\nunit_s: {UNIT_S}\nstages:\n" + stage * stages)
    if engine == "gpt":
        (folder / "text").write_bytes(random.Random(1).randbytes(1 << 20))
    (folder / "spec.yaml").write_text(
        f"run: {{dir: {folder}/run, steps: {steps}, engine: {engine}}}\n"
        f"emulated: {{profile: {folder}/profile.yaml}}\n"
        "model: {layers: 4, heads: 4, width: 128, context: 64, vocabulary: 256}\n"
        f"data: {{path: {folder}/text}}\n"
        f"parallel: {{pipelines: {pipelines}, stages: {stages}, microbatches: {MICROBATCHES}}}\n" + more)
    return folder / "spec.yaml"


def seconds(event):
    at = datetime.datetime.strptime(event["time"], "%Y-%m-%dT%H:%M:%S.%fZ")
    return at.replace(tzinfo=datetime.timezone.utc).timestamp()


class Live:
    """A run that is going on."""

    def __init__(self, pawl, spec, *arguments):
        self.pawl, self.run_dir = pawl, spec.parent / "run"
        self.process = subprocess.Popen([pawl, "train", spec, "--quiet", *arguments], stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)

    def events(self):
        try:
            lines = (self.run_dir / "log.jsonl").read_text().split("\n")
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in lines[:-1]]  # the last one may not be whole

    def wait(self, what, count=1, limit_s=60, **fields):
        """The `count`th event of this kind."""
        until = time.monotonic() + limit_s
        while time.monotonic() < until:
            found = [e for e in self.events() if e["event"] == what and all(e[k] == v for k, v in fields.items())]
            if len(found) >= count:
                return found[count - 1]
            if self.process.poll() is not None:
                raise RuntimeError(f"the run ended with {self.process.returncode} before {what}")
            time.sleep(0.002)
        raise RuntimeError(f"no {what} within {limit_s} s")

    def count(self, what):
        return sum(e["event"] == what for e in self.events())

    def workers(self):
        out = subprocess.run([self.pawl, "status", "--json", self.run_dir], capture_output=True, text=True, check=True)
        return {w["rank"]: w["pid"] for w in json.loads(out.stdout)["workers"] if w["state"] == "training"}

    def end(self):
        self.process.kill()
        self.process.wait()


def is_working(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/syscall").read_text().split()[0] not in POLLING
    except OSError:
        return False


def sample(pids, until):
    """Moments at which each worker was seen at work."""
    seen = {pid: [] for pid in pids}
    while not until():
        for pid in pids:
            if is_working(pid):
                seen[pid].append(time.time())
        time.sleep(0.0005)
    return seen


def resumed(moments, begin):
    """When it worked from `begin` on, and not just to take a message: twice within two milliseconds."""
    for a, b in zip(moments, moments[1:]):
        if a >= begin and b - a < 0.002:
            return a
    return None


def one_kill(live, rank, pids):
    lost, went = live.count("worker_lost"), live.count("go")
    victim = pids.pop(rank)
    killed = time.time()
    os.kill(victim, signal.SIGKILL)
    last_step = live.count("step")
    survivors = list(pids.values())
    seen = sample(survivors, lambda: live.count("step") >= last_step + 3 or live.process.poll() is not None)
    noticed, go = live.wait("worker_lost", lost + 1), live.wait("go", went + 1)
    times = [t for t in (resumed(seen[pid], seconds(go)) for pid in survivors) if t is not None]
    salvage = [e for e in live.events() if e["event"] == "salvage" and seconds(e) >= killed]
    return {"detect": seconds(noticed) - killed, "go": seconds(go) - killed,
            "first": min(times) - killed if times else None, "last": max(times) - killed if times else None,
            "redone": salvage[0]["redone"] if salvage else None}


def milliseconds(values):
    values = sorted(v for v in values if v is not None)
    return {"p50": round(statistics.median(values) * 1e3, 1), "max": round(values[-1] * 1e3, 1), "n": len(values)}


def kills(pawl, shape, total, engine):
    """Each run loses all but one pipeline, worker by worker."""
    draw, found = random.Random(5), []
    while len(found) < total:
        with tempfile.TemporaryDirectory(prefix="pawl-detect-") as name:
            spec = write_job(pathlib.Path(name), shape, 100000, engine, "save: {every: 0}\n")
            live = Live(pawl, spec)
            live.wait("step", 5)
            pids = live.workers()
            mortal = [r for r in pids if r >= shape[1]]
            draw.shuffle(mortal)
            for rank in mortal[:total - len(found)]:
                time.sleep(draw.uniform(0, 2 * STEP_S))
                found.append(one_kill(live, rank, pids))
            live.end()
    report = {name: milliseconds([f[name] for f in found]) for name in ("detect", "go", "first", "last")}
    report["micro-batches redone"] = max(f["redone"] or 0 for f in found)
    return report


def stops(pawl, total):
    found = []
    with tempfile.TemporaryDirectory(prefix="pawl-detect-") as name:
        live = Live(pawl, write_job(pathlib.Path(name), (total + 1, 2), 100000, "emulated", "save: {every: 0}\n"))
        live.wait("step", 5)
        pids = live.workers()
        for i in range(total):
            stopped = time.time()
            os.kill(pids[2 + 2 * i], signal.SIGSTOP)
            noticed = live.wait("worker_lost", i + 1)
            found.append(seconds(noticed) - stopped)
        live.end()
    return {"bound_s": DEFAULT_TIMEOUT_S, "least_s": round(min(found), 3), "most_s": round(max(found), 3), "n": total}


def longest(steps, begin, end):
    return max(b - a for a, b in zip(steps, steps[1:]) if b > begin and a < end)


def joins(pawl, total):
    """In iterations: the longest one around the join beyond the slower of the periods before and after."""
    found = []
    with tempfile.TemporaryDirectory(prefix="pawl-detect-") as name:
        live = Live(pawl, write_job(pathlib.Path(name), (4, 2), 100000, "emulated",
                                    "save: {every: 0}\nfailure: {respawn: 1000}\n"))
        for i in range(total):
            live.wait("step", live.count("step") + 20)
            pids, joined, started = live.workers(), live.count("joined"), live.count("worker_started")
            os.kill(pids[2 + i % 6], signal.SIGKILL)
            begin = live.wait("worker_started", started + 1, limit_s=120)
            end = live.wait("joined", joined + 1, limit_s=120)
            live.wait("step", live.count("step") + 12)
            steps = [seconds(e) for e in live.events() if e["event"] == "step"]
            after = [t for t in steps if t > seconds(end) + 2 * STEP_S][:10]
            before = [t for t in steps if t < seconds(begin) - 2 * STEP_S][-10:]
            period = max((s[-1] - s[0]) / (len(s) - 1) for s in (before, after))
            fence = max(seconds(e) for e in live.events() if e["event"] == "fence" and seconds(e) <= seconds(end))
            found.append(longest(steps, fence, seconds(end) + STEP_S) / period - 1)
        live.end()
    return {"iterations_p50": round(statistics.median(found), 2), "iterations_max": round(max(found), 2), "n": total}


def quiet_run(pawl, seed):
    """One run in two parts, the second of which loads; returns why workers were taken for lost, and how many waits there were."""
    draw = random.Random(seed)
    wait = STEP_S * (1, 10, 100)[seed % 3]
    with tempfile.TemporaryDirectory(prefix="pawl-detect-") as name:
        spec = write_job(pathlib.Path(name), (2, 2), 12, "emulated", "save: {every: 2}\n")

        def rank():
            return draw.randrange(4)

        saving = rank()  # not the slow one: what is slow takes 100 times what it took, and that counts the stop
        first = [f"stop:{rank()}@2:{wait}:forward", f"stop:{saving}@4:{wait}:save-begin",
                 f"disk:{rank()}@5:stuck:{wait}", f"slow:{(saving + 1) % 4}@6:{(1, 10, 100)[seed % 3]}"]
        loading = rank()
        second = [f"stop:{loading}@7:{wait}:load", f"stop:{(loading + 1) % 4}@7:{wait}:go",  # one after the other
                  f"stop:{rank()}@9:{wait}:decided"]                                          # would be one long one
        for steps, faults in ((6, first), (12, first + second)):
            injected = [f"--inject={fault}" for fault in faults]
            live = Live(pawl, spec, f"--steps={steps}", *injected)
            code = live.process.wait(timeout=300)
            if code != 0:
                raise RuntimeError(f"run {seed} ended with {code}")
        struck = len((live.run_dir / "injected").read_text().splitlines())
        lost = [e["why"] for e in live.events() if e["event"] == "worker_lost"]
        return lost, struck


def alarms(pawl, runs):
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        results = list(pool.map(lambda seed: quiet_run(pawl, seed), range(runs)))
    return {"runs": runs, "waits": sum(struck for _, struck in results), "lost": sum((lost for lost, _ in results), [])}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("parts", nargs="*", choices=PART_NAMES)
    parser.add_argument("--runs", type=int, default=100)
    arguments = parser.parse_args()
    pawl = pathlib.Path(arguments.build).resolve() / "pawl"
    parts = {"kill": lambda: kills(pawl, (8, 2), 50, "emulated"), "real": lambda: kills(pawl, (2, 2), 10, "gpt"),
             "stop": lambda: stops(pawl, 3), "join": lambda: joins(pawl, 6),
             "alarms": lambda: alarms(pawl, arguments.runs)}
    for name in arguments.parts or PART_NAMES:
        print(json.dumps({name: parts[name]()}), flush=True)


if __name__ == "__main__":
    main()
