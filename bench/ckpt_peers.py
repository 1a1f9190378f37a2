"""Saving the same state to the same disk: pawl beside torch.save, safetensors, torch.distributed.checkpoint (save and
async_save) and a CheckFreq-like mode, in interleaved rounds of one run.

    python bench/ckpt_peers.py BUILD_DIR [--sizes 512,1024] [--small 16384] [--rounds 5] [--folder DIR] [--quick]

The state is the tensor list of a GPT with AdamW (every parameter with its two moments, float32), of each size in MiB,
and then as many small tensors as --small says. Each way is a process of its own that holds the state; all have saved
twice before the first round, so that files, buffers and plans exist. Between two saves the page cache is flushed, so
that nobody waits for what another left. A save is durable when fsync (or pawl's commit) has returned.

Columns. durable: from the call to durable. blocked: until the caller may change the state in place. CPU: of the
process; the kernel's own write-back of the page cache is in nobody's figure, which flatters those who use it. memory:
peak of the resident memory above state and program. pawl with version buffers copies nothing, but the caller keeps a
second version of the state, which its out-of-place update needs anyway: that is the caller's memory, and named in a
column of its own. Ratios are peer / pawl within a round; above 1 pawl is ahead.
"""
import argparse
import importlib.util
import json
import os
import random
import subprocess
import sys

from kit import report

PEERS = ["torch.save", "safetensors", "dcp.save", "dcp.async_save", "checkfreq-like"]
# pawl's ways: arguments, and what of its budget is given in units of the state (0: the engine's own default)
PAWL = {"pawl, versions": ("pawl", 0), "pawl, staged 64 MiB": ("staged", 0), "pawl, staged whole": ("staged", 1)}
FIGURES = ["durable_s", "blocked_s", "cpu_s", "extra_bytes"]


def gpt(mib):
    """Tensors of a GPT-2 shaped model with AdamW whose state is as near to `mib` as its vocabulary allows."""
    budget, layers = (mib << 20) // 12, 12
    width = max(64, int((budget * 0.8 / (12 * layers)) ** 0.5) // 64 * 64)
    block = {"ln_1.weight": [width], "ln_1.bias": [width], "attn.c_attn.weight": [width, 3 * width],
             "attn.c_attn.bias": [3 * width], "attn.c_proj.weight": [width, width], "attn.c_proj.bias": [width],
             "ln_2.weight": [width], "ln_2.bias": [width], "mlp.c_fc.weight": [width, 4 * width], "mlp.c_fc.bias": [4 * width],
             "mlp.c_proj.weight": [4 * width, width], "mlp.c_proj.bias": [width]}
    shapes = {f"h.{i}.{name}": shape for i in range(layers) for name, shape in block.items()}
    shapes |= {"wpe.weight": [1024, width], "ln_f.weight": [width], "ln_f.bias": [width]}
    vocabulary = max(1, (budget - sum(count(s) for s in shapes.values())) // width)
    return with_moments({"wte.weight": [vocabulary, width]} | shapes)


def count(shape):
    total = 1
    for extent in shape:
        total *= extent
    return total


def with_moments(shapes):
    kinds = ["model", "exp_avg", "exp_avg_sq"]
    return [{"name": f"{kind}.{name}", "shape": shape} for kind in kinds for name, shape in shapes.items()]


def small(tensors):
    """Tensors of 1 to 4000 numbers, odd sizes, as of many adapters, norms and biases."""
    draw = random.Random(1)
    return [{"name": f"adapter.{i}.weight", "shape": [draw.randint(1, 4000)]} for i in range(tensors)]


class Process:
    def __init__(self, words, environment=None):
        self.child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        self.about = self.answer()

    def answer(self):
        line = self.child.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.child.args}: ended with {self.child.wait()}")
        return json.loads(line)

    def save(self):
        self.child.stdin.write("save\n")
        self.child.stdin.flush()
        return self.answer()

    def end(self):
        self.child.stdin.close()
        self.child.wait(60)


def start(options, folder, states, name, state_bytes):
    own = os.path.join(folder, name.replace(" ", "_").replace(",", ""))
    os.makedirs(own)
    if name in PEERS:
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "kit", "peer.py")
        return Process([sys.executable, script, name, own, states], os.environ | {"OMP_NUM_THREADS": "2"})
    kind, budget = PAWL[name]
    return Process([report.program(options.build, "ckpt_peers"), "--folder", own, "--state", states, "--way", kind,
                    "--staging", str(budget * state_bytes)])


def measure(options, folder, tensors):
    """{way: [result of each round]}, and the versions the processes told."""
    states = os.path.join(folder, "state.json")
    with open(states, "w", encoding="utf-8") as file:
        json.dump({"tensors": tensors}, file)
    state_bytes = 4 * sum(count(t["shape"]) for t in tensors)
    names = [*PAWL, *PEERS]
    processes, about = {}, {}
    try:
        for name in names:
            processes[name] = start(options, folder, states, name, state_bytes)
            about |= processes[name].about
        results = rounds(processes, names, options.rounds)
        for process in processes.values():
            process.end()
    finally:
        for process in processes.values():
            process.child.kill()
            process.child.wait()
    return results, about


def rounds(processes, names, how_many):
    results = {name: [] for name in names}
    draw = random.Random(2)
    for turn in range(-2, how_many):
        for name in draw.sample(names, len(names)):
            os.sync()
            result = processes[name].save()
            if turn >= 0:
                results[name].append(result)
    return results


def figures(results):
    return {name: {key: report.spread([r[key] for r in turns]) for key in FIGURES} for name, turns in results.items()}


def ratios(results, base):
    return {name: {key: report.ratio([r[key] for r in turns], [max(r[key], 1e-9) for r in results[base]])
                   for key in FIGURES[:3]} for name, turns in results.items()}


def tell(what, tensors, results, about):
    total = about["bytes"]
    found = figures(results)
    over = {base: ratios(results, base) for base in PAWL}
    report.emit(bench="ckpt_peers", state=what, bytes=total, tensors=len(tensors), figures=found, ratios=over)
    rows = []
    for name, f in found.items():
        caller = "1 version" if name == "pawl, versions" else ""
        against = over["pawl, versions"][name]
        staged = over["pawl, staged whole"][name]
        rows.append([name, report.show(f["durable_s"], 3), report.show(f["blocked_s"], 2, 1e3), report.show(f["cpu_s"], 3),
                     report.show(f["extra_bytes"], 0, 2**-20), caller, report.show(against["durable_s"]),
                     report.show(staged["blocked_s"])])
    print(f"\n{what}: {total / 2**20:.0f} MiB in {len(tensors)} tensors")
    report.table(["way", "durable, s", "blocked, ms", "CPU, s", "memory, MiB", "caller's", "durable / pawl versions",
                  "blocked / pawl staged whole"], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--sizes", default="512,1024")
    parser.add_argument("--small", type=int, default=16384)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", help="on the disk to measure; default: the build folder")
    parser.add_argument("--quick", action="store_true", help="64 MiB, 2048 small tensors, 3 rounds: shows that it works")
    options = parser.parse_args()
    if any(importlib.util.find_spec(name) is None for name in ("torch", "safetensors")):
        print("skipped: no PyTorch and safetensors in this Python; scripts/setup check installs them")
        return
    if options.quick:
        options.sizes, options.small, options.rounds = "64", 2048, 3
    watch, about = report.Watch(), {}
    states = [(f"GPT with AdamW, {mib} MiB", gpt(int(mib))) for mib in options.sizes.split(",") if mib]
    states += [("many small tensors", small(options.small))] if options.small else []
    for what, tensors in states:
        with report.scratch(options.folder or options.build, "ckpt_peers") as folder:
            report.emit(bench="ckpt_peers", machine=report.machine(folder))
            results, about = measure(options, folder, tensors)
        tell(what, tensors, results, about)
    watch.end(bench="ckpt_peers", torch=about.get("torch"), safetensors=about.get("safetensors"), rounds=options.rounds)


main()
