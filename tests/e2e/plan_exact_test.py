"""The exact planner against another solver: the same optimum for the same instance.

The model below is written from the description of the problem alone (docs/planning.md), for OR-tools CP-SAT: intervals
that do not overlap on a worker, a cumulative for what is stored, no bounds; micro-batches that are executed by the
same workers are named in the order of their first forward. Skips (exit 77) where ortools is not installed. PAWL_BUILD_DIR names the folder that holds e2e_plan_exact_run (default: build).
"""

import math
import os
import pathlib
import random
import subprocess
import sys
import unittest

try:
    from ortools.sat.python import cp_model
except ImportError:
    print("skipped: no ortools")
    sys.exit(77)

BUILD = pathlib.Path(os.environ.get("PAWL_BUILD_DIR", "build")).resolve()
RUN = BUILD / "tests" / "e2e_plan_exact_run"
FIELDS = ("F", "I", "W", "send_f", "send_b", "reduce", "step", "full", "after")


class Instance:
    def __init__(self, d, p, m, **cost):
        self.d, self.p, self.m = d, p, m
        self.cost = [dict(F=1, I=1, W=1, send_f=0, send_b=0, reduce=0, step=0, full=1, after=1) for _ in range(p)]
        for c in self.cost:
            c.update(cost)
        self.dead, self.slow, self.limit, self.host = set(), {}, {}, {}
        self.backward, self.staggered, self.free = "split", False, False

    def change(self, **fields):
        self.__dict__.update(fields)
        return self

    def kill(self, *workers):
        """Orphans go round over the live peers of their stage."""
        self.dead |= set(workers)
        return self

    def cap(self, amount):
        self.limit = {w: amount for w in range(self.d * self.p)}
        return self

    def executor(self, home, chunk, number):
        if (home, chunk, number) in self.host:
            return self.host[home, chunk, number]
        own = home * self.p + chunk
        peers = [q * self.p + chunk for q in range(self.d) if q * self.p + chunk not in self.dead]
        return own if own not in self.dead else peers[number % len(peers)]

    def duration(self, worker, chunk, op):
        if op == "B":
            return self.duration(worker, chunk, "I") + self.duration(worker, chunk, "W")
        ticks, factor = self.cost[chunk][op], self.slow.get(worker, 1.0)
        return ticks if factor == 1.0 or ticks == 0 else max(1, int(ticks * factor + 0.5))

    def text(self, engine, seconds, alone=False):
        lines = [f"shape {self.d} {self.p} {self.m}", f"engine {engine}", f"seconds {seconds}", f"alone {int(alone)}",
                 f"backward {self.backward}", f"staggered {int(self.staggered)}", f"free {int(self.free)}"]
        lines += [f"cost {c} " + " ".join(str(cost[f]) for f in FIELDS) for c, cost in enumerate(self.cost)]
        lines += [f"dead {w}" for w in sorted(self.dead)]
        lines += [f"slow {w} {x}" for w, x in self.slow.items()]
        lines += [f"limit {w} {x}" for w, x in self.limit.items()]
        lines += [f"host {h} {c} {i} {self.executor(h, c, i)}"
                  for h in range(self.d) for c in range(self.p) for i in range(self.m)]
        return "\n".join(lines) + "\n"


def lcm_to(n):
    return math.lcm(*range(1, n + 1))


class Oracle:
    """One instance as a CP-SAT model; `solve` returns (period, proven)."""

    def __init__(self, x, in_order=False):
        self.in_order = in_order  # every operation, not only the first: assumed, not known, by this model
        self.x, self.model = x, cp_model.CpModel()
        self.fine = lcm_to(x.p) if x.staggered else 1  # a staggered period is a ratio: count in fractions
        total = sum(x.d * x.m * (max(x.slow.values(), default=1) + 1) * (c["F"] + c["I"] + c["W"]) + c["reduce"]
                    + 2 * c["step"] + x.d * x.m * (c["send_f"] + c["send_b"]) for c in x.cost)
        self.horizon = int(total * self.fine) + self.fine
        self.busy = {w: [] for w in range(x.d * x.p) if w not in x.dead}
        self.held = {w: [] for w in self.busy}
        self.members = {s: [] for s in range(x.p)}  # (start, end) of the stage's workers
        self.cell = {}
        for h in range(x.d):
            for c in range(x.p):
                for i in range(x.m):
                    self.add_cell(h, c, i)
        self.link()
        self.finish()

    def time(self, name):
        return self.model.new_int_var(0, self.horizon, name)

    def add_cell(self, h, c, i):
        x, m = self.x, self.model
        orphan = h * x.p + c in x.dead
        peers = [q * x.p + c for q in range(x.d) if q * x.p + c not in x.dead]
        choices = peers if x.free and orphan else [x.executor(h, c, i)]
        used = {w: m.new_bool_var(f"use{h}.{c}.{i}.{w}") for w in choices}
        m.add_exactly_one(used.values())
        ops = ("F", "B") if x.backward == "fused" else ("F", "I", "W")
        start = {op: self.time(f"{op}{h}.{c}.{i}") for op in ops}
        end = {op: self.time(f"{op}{h}.{c}.{i}e") for op in ops}
        for op in ops:
            for w, use in used.items():
                d = x.duration(w, c, op) * self.fine
                self.busy[w].append(m.new_optional_interval_var(start[op], d, end[op], use, f"{op}{h}.{c}.{i}.{w}"))
            self.members[c].append((start[op], end[op]))
        m.add(start[ops[1]] >= end["F"])
        if len(ops) == 3:
            m.add(start["W"] >= end["I"])
        for w, use in used.items():
            full, after = x.cost[c]["full"], x.cost[c]["full"] if len(ops) == 2 else x.cost[c]["after"]
            for until, amount in ((ops[-1], after), (ops[1], full - after)):
                if amount:
                    length = self.time("")
                    self.held[w].append((m.new_optional_interval_var(start["F"], length, end[until], use, ""), amount))
        self.cell[h, c, i] = (start, end, used, ops)

    def link(self):
        """Chunks of one pipeline are always on different workers here, so that transfers always count."""
        x, m = self.x, self.model
        for (h, c, i), (start, end, _, ops) in self.cell.items():
            if c + 1 < x.p:
                after = self.cell[h, c + 1, i]
                m.add(after[0]["F"] >= end["F"] + x.cost[c]["send_f"] * self.fine)
                m.add(start[ops[1]] >= after[1][ops[1]] + x.cost[c + 1]["send_b"] * self.fine)

    def name_in_order(self):
        """Names are free: of micro-batches with the same executors everywhere, the next is the next to begin."""
        last = {}
        for h in range(self.x.d):
            for i in range(self.x.m):
                workers = tuple(tuple(self.cell[h, c, i][2]) for c in range(self.x.p))
                starts = [s for c in range(self.x.p) for s in self.cell[h, c, i][0].values()]
                for before, start in zip(last.get(workers, ()), starts if self.in_order else starts[:1]):
                    self.model.add(start >= before)
                last[workers] = starts

    def finish(self):
        x, m = self.x, self.model
        self.name_in_order()
        for c in range(x.p):
            reduce = self.time(f"R{c}")
            for _, end, _, ops in (v for k, v in self.cell.items() if k[1] == c):
                m.add(reduce >= end[ops[-1]])
            for w in (q * x.p + c for q in range(x.d)):
                if w not in x.dead:
                    done = reduce + x.cost[c]["reduce"] * self.fine + x.duration(w, c, "step") * self.fine
                    self.members[c].append((reduce, done))
        for w, intervals in self.busy.items():
            m.add_no_overlap(intervals)
            if w in x.limit and self.held[w]:
                m.add_cumulative([h[0] for h in self.held[w]], [h[1] for h in self.held[w]], x.limit[w])
        self.period = self.time("period")
        groups = list(self.members.values()) if x.staggered else [sum(self.members.values(), [])]
        for group in groups:
            first = self.time("")
            for start, end in group:
                m.add(first <= start)
                m.add(end - first <= self.period)
            if not x.staggered:
                m.add(first == 0)
        m.minimize(self.period)

    def solve(self, seconds):
        solver = cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = seconds
        solver.parameters.num_workers = 8
        status = solver.solve(self.model)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None, False
        return math.ceil(solver.objective_value / self.fine - 1e-9), status == cp_model.OPTIMAL


def ours(instance, engine, seconds=20, alone=False):
    """(period, bound, proven); None: that engine is not built in. `alone`: without branching before it."""
    done = subprocess.run([RUN], input=instance.text(engine, seconds, alone), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, timeout=seconds + 60)
    if done.returncode == 77:
        return None
    if done.returncode != 0:
        raise AssertionError(f"exit {done.returncode}: {done.stderr}\n{instance.text(engine, seconds)}")
    words = done.stdout.split()
    return int(words[1]), int(words[3]), words[5] == "1"


WAYS = (("z3", False), ("z3", True), ("cbc", True))


class PlanExact(unittest.TestCase):
    def same_optimum(self, instance, known, ways=WAYS[:2], in_order=False):
        wanted, proven = Oracle(instance, in_order).solve(60)
        self.assertEqual((wanted, proven), (known, True))
        for engine, alone in ways:
            result = ours(instance, engine, 20, alone)
            if result is None:
                continue
            with self.subTest(engine=engine, alone=alone):
                self.assertEqual(result, (wanted, wanted, True), instance.text(engine, 20, alone))

    def test_four_stages_of_eight_micro_batches(self):
        self.same_optimum(Instance(1, 4, 8), 27, WAYS)

    def test_uneven_durations_and_at_most_five_stored(self):
        self.same_optimum(Instance(1, 4, 8, F=2, I=3, W=2).cap(5), 63)

    def test_large_numbers(self):
        """Without the assumption the other solver finds nothing better, but needs a minute to know."""
        self.same_optimum(Instance(1, 4, 8, F=137, I=211, W=119).cap(5), 4304, in_order=True)

    def test_little_memory(self):
        self.same_optimum(Instance(1, 4, 8, F=137, I=211, W=119).cap(3), 5119)

    def test_a_failed_worker_of_two_pipelines(self):
        self.same_optimum(Instance(2, 4, 8).kill(2), 50, WAYS)

    def test_a_failed_worker_of_three_pipelines(self):
        self.same_optimum(Instance(3, 4, 8).kill(6), 38, WAYS)


def random_instance(rng):
    d, p = rng.choice(((1, 2), (1, 3), (1, 4), (2, 2), (2, 3), (3, 2)))
    x = Instance(d, p, rng.randint(1, 5 if d == 1 else 3 if d == 2 else 2))
    for cost in x.cost:
        cost.update(F=rng.randint(1, 6), I=rng.randint(1, 6), W=rng.randint(1, 6))
        if rng.random() < 0.5:
            cost.update(send_f=rng.randint(0, 3), send_b=rng.randint(0, 3))
        if rng.random() < 0.3:
            cost.update(reduce=rng.randint(0, 4), step=rng.randint(0, 4))
        if rng.random() < 0.4:
            cost.update(full=rng.randint(2, 4))
            cost.update(after=rng.randint(1, cost["full"]))
    x.backward = rng.choice(("split", "split", "selective", "fused"))
    x.staggered = rng.random() < 0.5
    if d > 1 and rng.random() < 0.7:
        x.kill(rng.randrange(d * p))
        x.free = rng.random() < 0.5
    if rng.random() < 0.3:
        x.slow = {rng.randrange(d * p): rng.choice((0.5, 1.5, 2.0))}
    if rng.random() < 0.6:
        x.limit = {w: max(c["full"] for c in x.cost) * rng.randint(1, 3) + rng.randint(0, 1) for w in range(d * p)}
    return x


class Random(unittest.TestCase):
    def test_random_instances(self):
        for seed in range(int(os.environ.get("PAWL_EXACT_SEEDS", "12"))):
            instance = random_instance(random.Random(seed))
            wanted, proven = Oracle(instance).solve(10)
            if not proven:
                continue
            for engine, alone in WAYS:
                result = ours(instance, engine, 10, alone)
                if result is None:
                    continue
                note = f"seed {seed}: {result}, wanted {wanted}\n{instance.text(engine, 10, alone)}"
                with self.subTest(seed=seed, engine=engine, alone=alone):
                    period, bound, claimed = result
                    self.assertLessEqual(bound, wanted, note)
                    self.assertGreaterEqual(period, wanted, note)
                    self.assertTrue(claimed == (bound == period), note)
                    self.assertTrue(claimed or alone, note)


if __name__ == "__main__":
    if not RUN.exists():
        print(f"skipped: no {RUN}")
        sys.exit(77)
    unittest.main()
