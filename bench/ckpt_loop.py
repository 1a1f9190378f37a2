"""What saving costs a training loop: slowdown when saving every 10 iterations and every iteration, the longest steps,
and the time the loop stands still per save; stretches with saves beside stretches without, in one process,
interleaved.

    python bench/ckpt_loop.py BUILD_DIR [--mib 512] [--step-ms 250] [--in-flight 2] [--rounds 5] [--iterations 40] [--quick]

The loop (bench/kit/loop.h) multiplies matrices and passes over the whole state once per iteration, on one thread; the
other core, where there is one, is left to saving, as where an accelerator computes. `pawl` updates out of place and
saves from version buffers; `staged` updates in place behind a fence, as PyTorch does. Tw is the time of a save with N
in flight back to back, measured before the loop; where Tw > N t the disk cannot keep up with saving at every
iteration, and no way could.

Slowdown: time per iteration of a stretch over that of the stretch without saves just before it. A step is inside when
a save was under way at its begin or begun in it. Steps outside are those of the stretches without saves; their own
p99 over their median is printed too, since it is what the machine does by itself.
"""
import argparse
import statistics

from kit import report

WANTED = {"slowdown": {10: 1.01, 1: 1.03}, "p99": 1.05, "blocked_s": 0.001}


def run(options, folder, way):
    words = [report.program(options.build, "ckpt_loop"), "--folder", folder, "--way", way, "--bytes", options.mib << 20,
             "--step-us", int(options.step_ms * 1000), "--intervals", "0,10,0,1", "--rounds", options.rounds,
             "--iterations", options.iterations, "--in-flight", options.in_flight, "--calibrate", 8]
    return report.run_json(words)


def per_iteration(stretch):
    return stretch["seconds"] / stretch["iterations"]


def pairs(stretches, interval):
    """(with saves, the one without just before it), of each round."""
    return [(s, stretches[i - 1]) for i, s in enumerate(stretches) if s["interval"] == interval]


def steps_inside(stretch):
    return [t for t, inside in zip(stretch["step_s"], stretch["inside"], strict=True) if inside]


def judge(result, interval):
    found = pairs(result["stretches"], interval)
    outside = [t for _, plain in found for t in plain["step_s"]]
    inside = [t for s, _ in found for t in steps_inside(s)]
    middle = statistics.median(outside)
    return {"interval": interval, "slowdown": report.ratio([per_iteration(s) for s, _ in found], [per_iteration(p) for _, p in found]),
            "iteration_s": middle, "steps_inside": len(inside),
            "p50_inside": statistics.median(inside) / middle, "p99_inside": report.quantile(inside, 0.99) / middle,
            "p99_outside": report.quantile(outside, 0.99) / middle,
            "blocked_s": report.spread([statistics.median(s["blocked_s"]) for s, _ in found]),
            "blocked_max_s": max(t for s, _ in found for t in s["blocked_s"])}


def verdict(way, keeps_up, figure):
    """None where the target says nothing about this case."""
    if figure["interval"] == 1 and not keeps_up:
        return None
    met = figure["slowdown"]["median"] <= WANTED["slowdown"][figure["interval"]] and figure["p99_inside"] <= WANTED["p99"]
    return met and (way != "pawl" or figure["blocked_s"]["median"] < WANTED["blocked_s"])


def tell(options, way, result, interval):
    keeps_up = result["save_s"] <= options.in_flight * result["step_s"]
    figure = judge(result, interval)
    met = verdict(way, keeps_up, figure)
    report.emit(bench="ckpt_loop", way=way, in_flight=options.in_flight, bytes=result["bytes"], save_s=result["save_s"],
                keeps_up=keeps_up, met=met, **figure)
    return [way, interval, f"{figure['iteration_s']:.3f}", f"{result['save_s']:.3f}", report.show(figure["slowdown"], 3),
            f"{figure['p50_inside']:.3f}", f"{figure['p99_inside']:.3f}", f"{figure['p99_outside']:.3f}",
            report.show(figure["blocked_s"], 3, 1e3), {True: "met", False: "MISSED", None: "Tw > N t"}[met]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--step-ms", type=float, default=250)
    parser.add_argument("--in-flight", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=40)
    parser.add_argument("--folder", help="on the disk to measure; default: the build folder")
    parser.add_argument("--quick", action="store_true", help="64 MiB, 30 ms, 2 rounds: shows that it works")
    options = parser.parse_args()
    if options.quick:
        options.mib, options.step_ms, options.rounds = 64, 30, 2
    watch, rows = report.Watch(), []
    for way in ("pawl", "staged"):
        with report.scratch(options.folder or options.build, "ckpt_loop") as folder:
            report.emit(bench="ckpt_loop", machine=report.machine(folder))
            result = run(options, folder, way)
        rows += [tell(options, way, result, interval) for interval in (10, 1)]
    print(f"\n{options.mib} MiB, N = {options.in_flight}, {options.rounds} rounds of {options.iterations} iterations")
    report.table(["way", "interval", "t, s", "Tw, s", "slowdown", "p50 inside / median outside", "p99 inside / median outside",
                  "p99 outside / median outside", "blocked per save, ms", "target"], rows)
    watch.end(bench="ckpt_loop", rounds=options.rounds)


main()
