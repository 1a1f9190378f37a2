"""Saving to a slow disk: slowdown of the same training loop at several intervals for a synchronous save, a
CheckFreq-like mode (one in flight, full copy) and pawl with N = 1 to 4 in flight, each beside the model max(1, Tw /
(N f t)).

    python bench/ckpt_throttled.py BUILD_DIR [--rates 200,800] [--mib 128] [--step-ms 75] [--rounds 3] [--quick]

The disk is slowed by a control group (bench/kit/throttle.py), which wants root; where it cannot be set this says so
and ends well. Everything it makes is removed, also when it is interrupted. Rates are in 10^6 bytes per second.

Tw is measured with N saves in flight back to back, without a loop. The model for the synchronous save is 1 + Tw / (f
t), and for the CheckFreq-like mode pawl's with N = 1: both ideal, since the first writes and the second copies for
nothing else to wait for. Both write with O_DIRECT as fast as the device goes and check nothing (bench/kit/way.h), so
that what is compared is the way to save, not the writer.

Between any two stretches with saves there is one without, in the same process. Where Tw > N f t saves pile up, and a
stretch is measured once N are under way; the last ones are not waited for.
"""
import argparse
import subprocess
import sys

from kit import report
from kit.throttle import Throttle, Unavailable

INTERVALS = [1, 5, 10, 25, 50, 100]
WAYS = [("sync", 1), ("checkfreq", 1), ("pawl", 1), ("pawl", 2), ("pawl", 3), ("pawl", 4)]
MODEL_WITHIN = 0.10


def calibrate(options):
    """Matrix products per iteration: chosen once, so that every way has the same t."""
    return report.run_json([report.program(options.build, "ckpt_loop"), "--folder", options.own, "--way", "none", "--bytes",
                            options.mib << 20, "--step-us", int(options.step_ms * 1000), "--intervals", 0])["products"]


def run(options, throttle, folder, way, in_flight, intervals):
    words = [report.program(options.build, "ckpt_loop"), "--folder", folder, "--way", way, "--bytes", options.mib << 20,
             "--products", options.products, "--intervals", ",".join(["0", *(f"{f},0" for f in intervals)]),
             "--iterations", options.iterations, "--in-flight", in_flight, "--calibrate", max(4, 2 * in_flight)]
    return report.run_json(words, preexec_fn=throttle.enter)


def model(way, in_flight, interval, save_s, step_s):
    if way == "sync":
        return 1 + save_s / (interval * step_s)
    return max(1.0, save_s / (in_flight * interval * step_s))


def per_iteration(*stretches):
    return sum(s["seconds"] for s in stretches) / sum(s["iterations"] for s in stretches)


def judge(result, way, in_flight):
    """{interval: (slowdown, model)}, t, Tw. Each stretch is held against the two without saves beside it."""
    stretches, save_s = result["stretches"], result["save_s"]
    found = {}
    for before, stretch, after in zip(stretches[::2], stretches[1::2], stretches[2::2], strict=False):
        step_s, interval = per_iteration(before, after), stretch["interval"]
        found[interval] = per_iteration(stretch) / step_s, model(way, in_flight, interval, save_s, step_s)
    return found, per_iteration(*stretches[::2]), save_s


def measure(options, throttle, rate, ways, intervals):
    """{(way, N): [judgement of each round]}"""
    found = {key: [] for key in ways}
    for _ in range(options.rounds):
        for way, in_flight in ways:
            with report.scratch(options.own, "run") as folder:
                throttle.set(rate * 1_000_000)
                result = run(options, throttle, folder, way, in_flight, intervals)
                throttle.set(0)
            found[way, in_flight].append(judge(result, way, in_flight))
    return found


def gather(found, intervals):
    """{(way, N): {interval: {"slowdown", "model", "off"}}}; off: how far the measured one is from the model, per round."""
    cells = {}
    for key, rounds in found.items():
        cells[key] = {}
        for f in intervals:
            pairs = [r[0][f] for r in rounds]
            cells[key][f] = {"slowdown": report.spread([s for s, _ in pairs]), "model": report.spread([m for _, m in pairs]),
                             "off": report.spread([s / m - 1 for s, m in pairs])}
    return cells


def tell(options, rate, found, intervals):
    cells = gather(found, intervals)
    rows = []
    for (way, in_flight), rounds in found.items():
        t, save_s = report.spread([r[1] for r in rounds]), report.spread([r[2] for r in rounds])
        written = in_flight * (options.mib << 20) / save_s["median"] / 1e6
        report.emit(bench="ckpt_throttled", rate_mbps=rate, way=way, in_flight=in_flight, iteration_s=t, save_s=save_s,
                    written_mbps=written, intervals={f: cells[way, in_flight][f] for f in intervals})
        name = way if way != "pawl" else f"pawl, N = {in_flight}"
        rows.append([name, report.show(t, 3), report.show(save_s, 2), f"{written:.0f}"] +
                    [f"{report.show(c['slowdown'])} ({c['model']['median']:.2f})" for c in cells[way, in_flight].values()])
    print(f"\n{rate} MB/s, {options.mib} MiB: slowdown at each interval (and the model's)")
    report.table(["way", "t, s", "Tw, s", "MB/s"] + [f"f = {f}" for f in intervals], rows)
    verdicts(rate, cells, intervals)


def verdicts(rate, cells, intervals):
    off = {(n, f): c["off"]["median"] for (way, n), row in cells.items() if way == "pawl" for f, c in row.items()}
    worst = max(off, key=lambda key: abs(off[key]))
    met = abs(off[worst]) <= MODEL_WITHIN
    print(f"{rate} MB/s: pawl within {MODEL_WITHIN:.0%} of the model: {'met' if met else 'MISSED'}, "
          f"worst {off[worst]:+.1%} (N = {worst[0]}, f = {worst[1]})")
    report.emit(bench="ckpt_throttled", rate_mbps=rate, target="model", met=met, worst=off[worst], in_flight=worst[0], interval=worst[1])
    if 10 not in intervals or 50 not in intervals:
        return
    pawl, n = min((row[10]["slowdown"]["median"], n) for (way, n), row in cells.items() if way == "pawl")
    other, name = min((row[50]["slowdown"]["median"], way) for (way, _), row in cells.items() if way != "pawl")
    print(f"{rate} MB/s: pawl at 10 ({pawl:.3f}, N = {n}) against the best other at 50 ({other:.3f}, {name}): "
          f"{'met' if pawl <= other else 'MISSED'}")
    report.emit(bench="ckpt_throttled", rate_mbps=rate, target="10 against 50", met=pawl <= other, pawl=pawl, in_flight=n,
                other=other, way=name)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--rates", default="200,800")
    parser.add_argument("--mib", type=int, default=128)
    parser.add_argument("--step-ms", type=float, default=75)
    parser.add_argument("--iterations", type=int, default=30, help="of a stretch, at least")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", help="on the disk to slow; default: the build folder")
    parser.add_argument("--quick", action="store_true", help="32 MiB, 20 ms, 200 MB/s, f = 1, 10, 50, N = 1 and 2, one round")
    options = parser.parse_args()
    if options.quick:
        options.rates, options.mib, options.step_ms, options.rounds = "200", 32, 20, 1
    return options


def main():
    options = parse()
    intervals = [1, 10, 50] if options.quick else INTERVALS
    ways = [s for s in WAYS if not options.quick or s[1] <= 2]
    watch = report.Watch()
    with report.scratch(options.folder or options.build, "ckpt_throttled") as options.own:
        try:
            throttle = Throttle(options.own)
        except Unavailable as why:
            print(f"skipped: the disk cannot be slowed here: {why}")
            return
        try:
            report.emit(bench="ckpt_throttled", machine=report.machine(options.own), throttle=throttle.version)
            options.products = calibrate(options)
            for rate in (int(r) for r in options.rates.split(",")):
                tell(options, rate, measure(options, throttle, rate, ways, intervals), intervals)
        finally:
            throttle.close()
    watch.end(bench="ckpt_throttled", rounds=options.rounds)


try:
    main()
except KeyboardInterrupt:
    sys.exit(130)
except subprocess.CalledProcessError as failed:
    sys.exit(f"{failed.cmd[0]}: ended with {failed.returncode}")
