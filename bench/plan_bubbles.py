#!/usr/bin/env python3
"""What a failure costs where bubbles are few (M >= 8 P): ReCycle's re-routing and pawl's helpers, by `pawl plan`.

Uniform costs, no transfers. Excess: what the period is longer than the fault-free one, in micro-batches of a stage
(forward, input- and weight-gradient: 3). Share: of ReCycle's excess, how much pawl leaves. Memory: the most that a
worker stores, in micro-batches; copies: stages held beside one's own. A table in Markdown on the standard output.

    bench/plan_bubbles.py [BUILD_DIR] [OPTION of pawl plan]...
"""
import json
import pathlib
import subprocess
import sys

PAWL = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build") / "pawl"
MORE = sys.argv[2:]
SHAPES = [(d, p, k * p) for d in (4, 8, 16) for p in (4, 8) for k in (8, 16)]


def plan(shape, policy, dead):
    d, p, m = shape
    arguments = ["--pipelines", d, "--stages", p, "--microbatches", m, "--policy", policy, "--fail", dead, *MORE]
    done = subprocess.run([PAWL, "plan", *map(str, arguments), "--json"], stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def row(shape, name, dead):
    recycle, pawl = plan(shape, "recycle", dead), plan(shape, "pawl", dead)
    free = 3 * shape[2]
    excess = [(x["period"] - free) / 3 for x in (recycle, pawl)]
    memory = [max(x["peak_memory"]) for x in (recycle, pawl)]
    share = excess[1] / excess[0] if excess[0] > 0 else 0
    print(f"| {'x'.join(map(str, shape))} | {name} | {excess[0]:.1f} | {excess[1]:.1f} | {share:.2f} | "
          f"{(pawl['lower_bound'] - free) / 3:.1f} | {memory[0]:g} | {memory[1]:g} | {len(pawl['shared'])} | "
          f"{len(recycle['moves'])}, {len(pawl['moves'])} |", flush=True)
    return share


def main():
    print("| D x P x M | failures | excess, recycle | pawl | share | bound | memory, recycle | pawl | copies | moves |\n"
          "|---|---|---|---|---|---|---|---|---|---|")
    shares = []
    for shape in SHAPES:
        last = shape[1] - 1
        cases = [("one, inside", f"1:{last // 2}"), ("one, last stage", f"1:{last}"), ("two of one stage", "1:1,2:1"),
                 ("two of two stages", f"1:1,2:{last - 1}")]
        shares += [row(shape, *case) for case in cases]
    print(f"\nShares: at most {max(shares):.2f}, median {sorted(shares)[len(shares) // 2]:.2f}.")


main()
