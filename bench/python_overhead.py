"""What saving costs a program that is busy in Python: the length of steps of 1 ms of pure Python, which holds
the interpreter's lock all the time, while a save is under way and without.

    python bench/python_overhead.py BUILD_DIR [--millions 16] [--step-ms 1] [--steps 300] [--saves 4]
                                    [--rounds 5] [--ways a,b] [--folder DIR] [--quick]

The state is that of bench/python_save.py; nothing trains it, so no fence is waited for. In a round each way
that saves in the background, in another order each time, has a stretch of --saves saves, each begun when the
one before is durable and the steps beside it counted, between two plain stretches of --steps steps. The
figure is the p50 of steps with a save under way over the p50 of the plain stretches around it; p99 likewise.
`another process` saves nothing: it copies and writes as many bytes, and shows what the machine alone costs.
call: what beginning a save takes, which is in no step. The step is the same work each time, calibrated once.
"""
import argparse
import os
import random
import statistics
import time

from kit import pytorch, report

WANTED = 1.03
WAYS = ["pawl", "another process", "checkfreq-like", "dcp.async_save"]
STEPS_MAX = 4000  # of a stretch: more of a save that the loop starves says nothing new


def work(count):
    """Integers, a dict, a list and strings: what loops of data pipelines do."""
    seen, words = {}, []
    for i in range(count):
        seen[i % 97] = seen.get(i % 97, 0) + i * i % 13
        if i % 31 == 0:
            words.append(f"{i}:{seen[i % 97]}")
    return len("".join(words))


def timed(count):
    began = time.perf_counter()
    work(count)
    return time.perf_counter() - began


def calibrate(seconds):
    """How much of work() takes so long: by the fastest of some, since others may be on the machine."""
    count = 1000
    for _ in range(3):
        count = max(1, round(count * seconds / min(timed(count) for _ in range(30))))
    return count


def stretch(way, first, saves, count):
    """(steps with a save under way, what begins took), seconds each."""
    steps, calls = [], []
    for i in range(saves):
        began = time.perf_counter()
        way.after((first + i) * way.interval)
        calls.append(time.perf_counter() - began)
        while way.busy() and len(steps) < STEPS_MAX:
            steps.append(timed(count))
        way.drain()
        if len(steps) == STEPS_MAX:
            break
    return steps, calls


def round_of(ways, order, turn, options, count):
    found, before = {}, [timed(count) for _ in range(options.steps)]
    for name in order:
        os.sync()
        inside, calls = stretch(ways[name], 3 + turn * options.saves, options.saves, count)
        after = [timed(count) for _ in range(options.steps)]
        plain = before + after
        if inside:
            found[name] = {"p50": statistics.median(inside) / statistics.median(plain),
                           "p99": report.quantile(inside, 0.99) / report.quantile(plain, 0.99),
                           "steps": len(inside), "call_s": statistics.median(calls),
                           "plain_s": statistics.median(plain)}
        before = after
    return found


def measure(options, folder):
    from kit import beside, savers, train
    training = train.Training(options.millions, 1)
    count, ways = calibrate(options.step_ms * 1e-3), {}
    kinds = {**savers.WAYS, "another process": beside.AnotherProcess}
    for name in options.ways:
        own = os.path.join(folder, name)
        os.makedirs(own)
        ways[name] = kinds[name](own, 1, training.model, training.optimizer)
        stretch(ways[name], 1, 2, count)
    draw = random.Random(5)
    rounds = [round_of(ways, draw.sample(options.ways, len(options.ways)), turn, options, count)
              for turn in range(options.rounds)]
    for way in ways.values():
        way.close()
    return training.state_bytes(), {name: [r[name] for r in rounds if name in r] for name in options.ways}


def tell(options, total, results):
    rows = []
    for name, turns in results.items():
        if not turns:
            print(f"{name}: no step was beside a save: the state is too small (--millions)")
            continue
        figures = {key: report.spread([t[key] for t in turns]) for key in turns[0]}
        met = figures["p50"]["median"] <= WANTED if name == "pawl" else None
        report.emit(bench="python_overhead", way=name, bytes=total, step_ms=options.step_ms, met=met,
                    **figures)
        rows.append([name, report.show(figures["p50"], 3), report.show(figures["p99"], 2),
                     sum(t["steps"] for t in turns), report.show(figures["call_s"], 2, 1e3),
                     {True: "met", False: "MISSED", None: ""}[met]])
    plain = statistics.median(t["plain_s"] for turns in results.values() for t in turns)
    print(f"\n{total / 1e6:.0f} MB of state, plain steps of {plain * 1e3:.2f} ms")
    report.table(["way", "p50 beside a save / without", "p99 / p99 without", "steps", "call, ms", "wanted"],
                 rows)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--millions", type=int, default=16, help="parameters; the state is 12 bytes for each")
    parser.add_argument("--step-ms", type=float, default=1.0)
    parser.add_argument("--steps", type=int, default=300, help="of a plain stretch")
    parser.add_argument("--saves", type=int, default=4, help="of a stretch with saves")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ways", type=lambda text: text.split(","), default=WAYS)
    parser.add_argument("--folder", help="on the disk to measure; default: the build folder")
    parser.add_argument("--quick", action="store_true", help="4 M parameters, 2 rounds: shows that it works")
    options = parser.parse_args()
    if options.quick:
        options.millions, options.rounds, options.saves = 4, 2, 2
    return options


def main():
    options = arguments()
    torch, _ = pytorch.load(options.build)
    watch = report.Watch()
    with report.scratch(options.folder or options.build, "python_overhead") as folder:
        report.emit(bench="python_overhead", machine=report.machine(folder), torch=torch.__version__)
        tell(options, *measure(options, folder))
    watch.end(bench="python_overhead", rounds=options.rounds)


if __name__ == "__main__":
    main()
