"""Restoring in Python: pawl.Checkpointer's resume() against torch.load with load_state_dict, of the same
model and AdamW state, on the same disk. JSON objects, one a result, then a table.

    python bench/python_restore.py BUILD_DIR [--sizes MIB,...] [--rounds N] [--folder DIR] [--quick]

Sides take turns, in another order each round, once with all files in the page cache and once without them.
Each restores in a process of its own, into a model and an optimizer just made, as a program that starts does:
memory that was used before would spare torch.load what fresh memory costs. Timed is resume() alone, with all
checksums, against torch.load with load_state_dict; `whole_s` and `cpu_s` have opening and closing the run
too. torch.load is told weights_only=True. With mmap=True it reads only the parameters: the optimizer's state
stays in the file until the first step, so `touched` adds a pass over the state, two elements a page, on all
sides. As the writers leave it: torch's file in the page cache, pawl's not, since it writes past it.
"""
import argparse
import json
import os
import random
import sys
import time
from pathlib import Path

from kit import pytorch, report

WIDTH = 512
WAYS = ("pawl", "torch.load", "torch.load, mmap")
TARGET = 2.0


class State:
    """A transformer's matrices and vectors, and the AdamW that steps them: MIB of all together."""

    def __init__(self, torch, mib, stepped):
        layer = 4 * 3 * (12 * WIDTH**2 + 13 * WIDTH)
        self.torch, layers = torch, max(1, round((mib << 20) / layer))
        self.bytes = layers * layer
        self.model = torch.nn.ModuleList([self.block() for _ in range(layers)])
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        if stepped:
            for p in self.model.parameters():
                p.grad = torch.randn_like(p)
            self.optimizer.step()
            self.optimizer.zero_grad()

    def block(self):
        nn = self.torch.nn
        return nn.ModuleList([nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH),
                              nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)])

    def tensors(self):
        yield from self.model.parameters()
        for p in self.model.parameters():
            yield from (v for v in self.optimizer.state[p].values())

    def touch(self):
        return sum(float(t.detach().view(-1)[::512].double().sum()) for t in self.tensors())


class Bench:
    def __init__(self, torch, pawl, folder, mib):
        self.torch, self.pawl, self.mib = torch, pawl, mib
        self.run, self.file = Path(folder, f"run-{mib}"), Path(folder, f"state-{mib}.pt")
        state = State(torch, mib, True)
        self.bytes, self.wanted, self.tensors = state.bytes, state.touch(), len(list(state.tensors()))
        with pawl.Checkpointer(self.run, model=state.model, optimizer=state.optimizer, every=1000) as ckpt:
            ckpt.step()
            ckpt.save(wait=True)
        with open(self.file, "wb") as out:
            torch.save({"model": state.model.state_dict(), "optimizer": state.optimizer.state_dict()}, out)
            out.flush()
            os.fsync(out.fileno())

    def files(self):
        return [self.file] + [p for p in self.run.rglob("*") if p.is_file()]

    def prepare(self, cold):
        """Every file in the page cache, or none."""
        for path in self.files():
            with open(path, "rb", buffering=0) as file:
                if cold:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                else:
                    while file.read(1 << 22):
                        pass

    def restore(self, way, state):
        """pawl: seconds of resume() alone."""
        if way == "pawl":
            with self.pawl.Checkpointer(self.run, model=state.model, optimizer=state.optimizer) as ckpt:
                began = time.perf_counter()
                assert ckpt.resume() == 1
                return time.perf_counter() - began
        loaded = self.torch.load(self.file, mmap="mmap" in way, weights_only=True)
        state.model.load_state_dict(loaded["model"])
        state.optimizer.load_state_dict(loaded["optimizer"])
        return None

    def once(self, way, cold):
        """Figures of one restore in a process of its own, whose memory nobody has used before."""
        self.prepare(cold)
        reads, writes = os.pipe()
        child = os.fork()
        if child == 0:
            state = State(self.torch, self.mib, False)
            figures = self.measure(way, state)
            os.write(writes, json.dumps(figures).encode())
            os._exit(0 if state.touch() == self.wanted else 3)
        os.close(writes)
        with os.fdopen(reads) as text:
            figures = json.load(text)
        if os.waitpid(child, 0)[1] != 0:
            sys.exit(f"python_restore: {way}: wrong bytes")
        return figures

    def measure(self, way, state):
        cpu, began = time.process_time(), time.perf_counter()
        resumed = self.restore(way, state)
        whole = time.perf_counter() - began
        figures = {"s": resumed or whole, "whole_s": whole, "cpu_s": time.process_time() - cpu}
        state.touch()
        return {**figures, "touched_s": figures["s"] + time.perf_counter() - began - whole}

    def rounds(self, count):
        taken = {(way, cold): [] for way in WAYS for cold in (False, True)}
        for turn in range(count):
            for cold in (False, True):
                for way in random.Random(turn).sample(WAYS, len(WAYS)):
                    taken[way, cold].append(self.once(way, cold))
        return taken


def rows_of(bench, taken):
    """A record and a row for each way and state of the page cache; times: so much faster is pawl, within a round."""
    for cold in (False, True):
        ours = [f["s"] for f in taken["pawl", cold]]
        for way in WAYS:
            figures = taken[way, cold]
            found = {key: report.spread([f[key] for f in figures]) for key in figures[0]}
            times = report.ratio([f["s"] for f in figures], ours)
            touched = report.ratio([f["touched_s"] for f in figures],
                                   [f["touched_s"] for f in taken["pawl", cold]])
            report.emit(bench="python_restore", way=way, page_cache="cold" if cold else "warm",
                        bytes=bench.bytes, tensors=bench.tensors, **found, pawl_times=times, pawl_times_touched=touched)
            yield [f"{bench.bytes / 2**20:.0f}", "cold" if cold else "warm", way, report.show(found["s"], 3),
                   report.show(found["touched_s"], 3), report.show(found["cpu_s"], 3), report.show(times),
                   report.show(touched), verdict(way, times)]
    found = report.ratio([f["s"] for f in taken["torch.load", False]], [f["s"] for f in taken["pawl", True]])
    report.emit(bench="python_restore", bytes=bench.bytes, torch_warm_to_pawl_cold=found)
    size = f"{bench.bytes / 2**20:.0f}"
    yield [size, "as the writers leave it", "torch.load", "", "", "", report.show(found), "", ""]


def verdict(way, times):
    if way != "torch.load":
        return ""
    return "met" if times["median"] >= TARGET else "MISSED"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--sizes", default="128,512,1024", help="MiB of parameters and moments, comma between")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--folder", help="on the disk to measure; default: the build folder")
    parser.add_argument("--quick", action="store_true", help="only shows that it works")
    options = parser.parse_args()
    sizes = [64] if options.quick else [int(n) for n in options.sizes.split(",")]
    rounds = 1 if options.quick else options.rounds
    torch, pawl = pytorch.load(options.build)
    watch, rows = report.Watch(), []
    report.emit(bench="python_restore", rounds=rounds, torch=str(torch.__version__),
                **report.machine(options.folder or options.build))
    for mib in sizes:
        with report.scratch(options.folder or options.build, "python_restore") as folder:
            bench = Bench(torch, pawl, folder, mib)
            rows += rows_of(bench, bench.rounds(rounds))
    report.table(["MiB", "page cache", "way", "s", "s, touched", "CPU s", "times as fast is pawl", "touched",
                  "target (2)"], rows)
    watch.end(bench="python_restore")


if __name__ == "__main__":
    main()
