#!/usr/bin/env python3
"""Training with a tenth of the workers dead, by what different systems do about it, executed on emulated workers.

32 workers (8x4, 4x8, 16x2) of which 3 die, drawn by a seed; the global batch is the same for everybody. A device is
emulated: forward, input- and weight-gradient of a stage take --unit-ms each; sums, optimizer and links take no time of their
own. Where backward is one operation (all but recycle and pawl), its gradient is sent on when all of it is done, as autograd
does. Everything is executed by the same workers, executor and messages; nothing is computed by formula but which of
several choices a rival makes, where it gets the best one.

- `fault-scaled`: 1F1B without failures, executed, times 29/32. No system: what the loss of machines alone would cost.
- `adaptive`, `recycle`, `pawl`: `pawl train` with that parallel.schedule (ReCycle's adaptive pipelining alone, with a
  barrier; all of ReCycle; pawl's own). The 3 are killed while it runs; what is measured is the plan it has come to
  after 26 steps, searched for in the background.
- `Oobleck`: pipelines that lost workers go on with fewer and longer stages (the model's layers dealt as evenly as whole layers
  allow, at least half the stages; a shorter pipeline takes a worker from the longest), the batch is dealt so that
  the slowest pipeline ends soonest, 1F1B, barrier.
- `Bamboo`: the best of four: as deep as at first, or half as deep again, each with the dead replaced by regrouping into
  whole pipelines or with the predecessor doing two stages; the batch dealt evenly, 1F1B, barrier. Each worker also
  does its successor's forward for every micro-batch, while it waits for the next gradient (its eager mode): a bubble hides
  it where there is one. `Bamboo, all hidden`: as if that never cost anything.

Of a rival each pipeline that differs is trained as a job of its own, and the slowest decides. Left out, all in
the rivals' favour: their sums over replicas, Bamboo's doubled weights in memory, the noise of many processes on one machine,
and what a failure costs until the new configuration runs (restarts, copies of layers, lost iterations).

    bench/emulated_policies.py BUILD_DIR [--quick] [--unit-ms MS] [--seed K] [--rows DxP:M ...]
"""
import argparse
import math
import random
import re

from kit.emulated import Job, go_first

LAYERS = 24  # of the model; a stage of the starting shape has 24 / P of them
DEAD = 3
# Half as many micro-batches as stages, as many, and twice as many: the fewer, the longer the bubbles.
ROWS = [((d, p), m) for d, p in ((8, 4), (4, 8), (16, 2)) for m in (p // 2, p, 2 * p)]
STEPS = 12
KILL_AT = 4
STEPS_TO_SETTLE = 26  # a better plan is taken once in 20 steps at most
NO_TIME = 1e-6  # the least that a profile may say


def draw_dead(shape, seed):
    """Three (pipeline, stage), no two neighbours in one pipeline (fatal to Bamboo), each stage keeps a worker."""
    pipelines, stages = shape
    draw = random.Random(f"{seed} {shape}")
    while True:
        dead = sorted(divmod(r, stages) for r in draw.sample(range(pipelines * stages), DEAD))
        near = any(a[0] == b[0] and abs(a[1] - b[1]) == 1 for a in dead for b in dead)
        if not near and all(sum(d[1] == s for d in dead) < pipelines for s in range(stages)):
            return dead


def deal_layers(stages, start_stages):
    """Forward, backward until its gradient is sent on, and after that, of each stage: in units, which are the forward of
    a stage of the starting shape."""
    each, more = divmod(LAYERS, stages)
    return [fused((each + (s < more)) * start_stages / LAYERS) for s in range(stages)]


def fused(size):
    return size, 2 * size, NO_TIME


def estimate(costs, microbatches):
    """1F1B with a barrier: only to choose by."""
    return (microbatches - 1) * max(map(sum, costs)) + sum(map(sum, costs))


class Rival:
    """Pipelines with the cost of their stages and their micro-batches."""

    def __init__(self, name, pipelines):
        self.name, self.pipelines = name, pipelines

    def estimate(self):
        return max(estimate(costs, m) for costs, m in self.pipelines)

    def period_s(self, options):
        """Each kind of pipeline a job of its own; those that cannot be the slowest are not run."""
        kinds = {(tuple(costs), m) for costs, m in self.pipelines}
        worst = max(estimate(c, m) for c, m in kinds)
        periods = []
        for costs, m in sorted(kinds):
            if estimate(costs, m) < 0.9 * worst:
                continue
            job = Job(options.build, (1, len(costs), m), costs, options.unit_ms / 1000, parallel__schedule="1f1b",
                      parallel__barrier="true", parallel__replan="false")
            periods.append(job.run(STEPS).stretches[-1].period_s())
        return max(periods)


def deal_batch(pipelines, total):
    """One micro-batch after the other to the pipeline that would end first."""
    counts = [0] * len(pipelines)
    for _ in range(total):
        i = min(range(len(pipelines)), key=lambda p: estimate(pipelines[p], counts[p] + 1))
        counts[i] += 1
    return [(costs, m) for costs, m in zip(pipelines, counts) if m > 0]


def oobleck(shape, dead, total):
    pipelines, stages = shape
    sizes = [stages - sum(d[0] == p for d in dead) for p in range(pipelines)]
    least = max(1, stages // 2)
    while min(sizes) < least:
        sizes[sizes.index(max(sizes))] -= 1
        sizes[sizes.index(min(sizes))] += 1
    return Rival("Oobleck", deal_batch([deal_layers(k, stages) for k in sizes], total))


def doubled_up(costs, lost):
    """The predecessor does a lost stage too; the last one does the first's."""
    left = list(costs)
    for s in sorted(lost, reverse=True):
        left[s - 1] = tuple(a + b for a, b in zip(left[s - 1], left[s]))
        del left[s]
    return left


def bamboo(shape, dead, total, hidden):
    pipelines, stages = shape
    workers = pipelines * stages
    alive = workers - len(dead)
    lost = [p * stages + s for p, s in dead]
    choices, name = [], "Bamboo, all hidden" if hidden else "Bamboo"
    for depth in {stages, math.ceil(1.5 * stages)}:
        costs = deal_layers(depth, stages)
        if not hidden:  # after the gradient has been sent on: it delays nobody else but by making this stage longer
            costs = [(f, i, w + costs[(s + 1) % depth][0]) for s, (f, i, w) in enumerate(costs)]
        whole, first = alive // depth, workers // depth
        if whole > 0:
            choices.append(Rival(f"{name}, {whole} x {depth}", [(costs, math.ceil(total / whole))] * whole))
        m = math.ceil(total / first)
        hit = [[w % depth for w in lost if w // depth == p] for p in range(first)]
        near = any(abs(a - b) == 1 for h in hit for a in h for b in h)
        if not near and max(map(len, hit)) < depth:
            choices.append(Rival(f"{name}, {first} x {depth}, doubled up", [(doubled_up(costs, h), m) for h in hit]))
    return min(choices, key=Rival.estimate)


def train(options, shape, microbatches, policy, dead, barrier):
    """The period that it has come to."""
    costs = fused(1) if barrier else (1, 1, 1)
    job = Job(options.build, (*shape, microbatches), [costs] * shape[1], options.unit_ms / 1000,
              parallel__schedule=policy, parallel__barrier=str(barrier).lower())
    log = job.run(KILL_AT + STEPS_TO_SETTLE + STEPS if dead else STEPS,
                  [(p * shape[1] + s, KILL_AT) for p, s in dead])
    last = [s for s in log.stretches if s.is_measured()][-1]
    if last.plan["live"] != shape[0] * shape[1] - len(dead):
        raise RuntimeError(f"{last.plan['live']} workers are left, not {shape[0] * shape[1] - len(dead)}")
    return last.period_s()


def measure(options, shape, microbatches):
    dead = draw_dead(shape, options.seed)
    workers, total = shape[0] * shape[1], shape[0] * microbatches
    free = train(options, shape, microbatches, "1f1b", [], True)
    rows = [("1F1B, nobody dead", free)]
    rows.append(("fault-scaled", free * workers / (workers - len(dead))))
    for policy, barrier in (("adaptive", True), ("recycle", False), ("pawl", False)):
        rows.append((policy, train(options, shape, microbatches, policy, dead, barrier)))
    for rival in (oobleck(shape, dead, total), bamboo(shape, dead, total, False), bamboo(shape, dead, total, True)):
        rows.append((rival.name, rival.period_s(options)))
    if not options.quick:
        rows.append(("pawl, nobody dead", train(options, shape, microbatches, "pawl", [], False)))
    pawl = dict(rows)["pawl"]
    for name, period in rows:
        print(f"| {shape[0]}x{shape[1]} | {microbatches} | {' '.join(f'{p}:{s}' for p, s in dead)} | {name} | "
              f"{period * 1000:.0f} | {total / period:.1f} | {period / pawl:.2f} |", flush=True)


def row_of(text):
    numbers = re.fullmatch(r"(\d+)x(\d+):(\d+)", text)
    if numbers is None or 0 in map(int, numbers.groups()):
        raise argparse.ArgumentTypeError(f"{text!r}: pipelines x stages : micro-batches of a pipeline, like 4x8:16")
    pipelines, stages, microbatches = map(int, numbers.groups())
    return (pipelines, stages), microbatches


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--unit-ms", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rows", type=row_of, nargs="+", default=ROWS, help="like 4x8:16")
    options = parser.parse_args()
    print(f"{go_first()}, {options.unit_ms:g} ms a forward\n")
    print("| D x P | M | dead | who | step, ms | micro-batches/s | pawl is faster by |\n|---|---|---|---|---|---|---|")
    for shape, microbatches in options.rows[:3] if options.quick else options.rows:
        measure(options, shape, microbatches)


main()
