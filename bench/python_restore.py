"""Restoring in Python: pawl.Checkpointer's resume() against torch.load with load_state_dict, of the same model and AdamW
state, on the same disk. JSON objects, one a result, then a table.

    python bench/python_restore.py BUILD_DIR [--sizes MIB,...] [--rounds N] [--folder DIR] [--quick]

Sides take turns, in another order each round, once with the files in the page cache and once without them. Each side
restores into a model and an optimizer that were just made, as a program that starts does; making them is not timed, opening
the run and reading with all checksums is. torch.load is told weights_only=True; with mmap=True it reads nothing by itself:
parameters are copied out of the mapping, the optimizer's state stays in it and is read in the first step, so `touched` is
the time with one pass over the state, of all sides.
"""
import argparse
import importlib
import json
import os
import random
import statistics
import sys
import time
from pathlib import Path

from kit import report

WIDTH = 512
WAYS = ("pawl", "torch.load", "torch.load, mmap")
TARGET = 2.0


def load_modules(build):
    os.environ["PAWL_LIBRARY"] = str(Path(build, "libpawl_ckpt.so").resolve())
    sys.path.insert(0, str(Path(__file__).parent.parent / "python"))
    return importlib.import_module("torch"), importlib.import_module("pawl")


class State:
    """A transformer's matrices and vectors, and the AdamW that steps them: MIB of parameters and moments in all."""

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
        return sum(float(t.detach().view(-1)[::512].sum()) for t in self.tensors())


class Bench:
    def __init__(self, torch, pawl, folder, mib):
        self.torch, self.pawl, self.mib = torch, pawl, mib
        self.run, self.file = Path(folder, f"run-{mib}"), Path(folder, f"state-{mib}.pt")
        state = State(torch, mib, True)
        self.bytes, self.wanted = state.bytes, state.touch()
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
