#!/usr/bin/env python3
"""The period that workers keep in real time against the one that the simulator promised for their plan.

32 emulated workers (8x4, 4x8, 16x2), each a process that sends real messages and sleeps where a device would
compute: forward, input- and weight-gradient of --unit-ms each. In every run workers are killed one after the other,
four in all, drawn by a seed such that each stage keeps one; each time the survivors go on by a new plan. Executed:
mean time between decided steps under a plan, without the first two. Promised: the period of that plan, by the costs known
when it was made: for the first plan the profile's, later what workers had measured. CPU: share of
the machine's cores that all processes together used. A table in Markdown on the standard output.

    bench/emulated_period.py BUILD_DIR [--quick] [--unit-ms MS] [--seed K] [--schedule POLICY]
"""
import argparse
import random

from kit.emulated import Job, Stretch, go_first

SHAPES = [(8, 4, 8), (4, 8, 16), (16, 2, 4)]
FAILURES = 4
STEPS_A_PLAN = 10  # two until the pipeline is full, eight measured


def victims(shape, seed):
    """Ranks to kill, in order: no stage loses all it has."""
    pipelines, stages, _ = shape
    left, dead = [pipelines] * stages, []
    draw = random.Random(f"{seed} {shape}")
    while len(dead) < FAILURES:
        rank = draw.randrange(pipelines * stages)
        if rank not in dead and left[rank % stages] > 1:
            left[rank % stages] -= 1
            dead.append(rank)
    return dead


def measure(build, shape, options):
    failures = 1 if options.quick else FAILURES
    dead = victims(shape, options.seed)[:failures]
    job = Job(build, shape, [(1, 1, 1)] * shape[1], options.unit_ms / 1000, parallel__replan="false",
              parallel__schedule=options.schedule)
    kills = [(rank, STEPS_A_PLAN * (i + 1) + 1) for i, rank in enumerate(dead)]
    log = job.run(STEPS_A_PLAN * (failures + 1), kills)
    ratios = []
    for stretch in filter(Stretch.is_measured, log.stretches):
        promised, executed = stretch.plan["period_s"], stretch.period_s()
        ratios.append(executed / promised)
        print(f"| {shape[0]}x{shape[1]} | {shape[2]} | {shape[0] * shape[1] - stretch.plan['live']} | "
              f"{promised * 1000:.0f} | {executed * 1000:.0f} | {ratios[-1]:.3f} | "
              f"{stretch.plan['planning_ms']:.1f} | {log.cpu_share:.2f} |", flush=True)
    return ratios


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--unit-ms", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--schedule", default="pawl")
    options = parser.parse_args()
    print(f"{go_first()}, {options.unit_ms:g} ms an instruction, schedule {options.schedule}\n")
    print("| D x P | M | failures | promised, ms | executed, ms | executed / promised | planning, ms | CPU |\n"
          "|---|---|---|---|---|---|---|---|")
    ratios = [r for shape in SHAPES for r in measure(options.build, shape, options)]
    print(f"\nExecuted / promised: {min(ratios):.3f} to {max(ratios):.3f}, {len(ratios)} plans.")


main()
