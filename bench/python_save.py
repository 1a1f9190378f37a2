"""What saving costs a PyTorch training: the slowdown of the loop of examples/python/gpt.py when it saves
every 10 steps and every step, by pawl.Checkpointer and by others, interleaved in one process.

    python bench/python_save.py BUILD_DIR [--millions 10,50] [--batch 2,1] [--intervals 10,1] [--ways a,b]
                                [--rounds 3,2] [--cycles 6] [--threads 1] [--folder DIR] [--quick]

Every way holds its own files and all save the same model and optimizer, which go on training; all have saved
before the first round. A round has, in another order each time, a stretch of each way and plain stretches
without saves between them; slowdown is the time of a step in a stretch over that in the plain stretches
before and after it. A stretch is whole cycles of a save and the steps to the next one. At an interval of 1 it
has --cycles of them after two that are not counted, so that whoever is too slow is held up by his own
saves; at longer intervals it is one cycle, and ends when its save is durable. blocked: what the loop stood
still per save, in the call and before the optimizer's step.

The device's limit: how fast this folder takes O_DIRECT writes of 4 MiB, 4 at once, measured in each round,
and what share of it a save every step asks for. Near 1 or above, no way could keep up. accelerate takes part
when it is installed; bench/README.md says how.
"""
import argparse
import os
import random
import statistics
import threading
import time

from kit import pytorch, report

WANTED = {10: 1.02, 1: 1.05}
SHARE_MAX = 0.5  # of the device, at which "bandwidth allows": beyond it saves wait for each other's writes
WARM_SAVES = 2  # as many as pawl has under way at once by default
PLAIN_STEPS = 4


def raw_rate(folder, total, piece=4 << 20, writers=4):
    """Bytes a second that the folder takes from `writers` threads, past the page cache, flush included."""
    import mmap
    memory = mmap.mmap(-1, piece)
    memory.write(os.urandom(1 << 16) * (piece >> 16))
    path = os.path.join(folder, "raw")
    handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_DIRECT", 0), 0o600)
    count = max(writers, total // piece)

    def write(first):
        for i in range(first, count, writers):
            os.pwrite(handle, memory, i * piece)

    try:
        if os.fstat(handle).st_size < count * piece:  # the first time: blocks and their first write
            for first in range(writers):
                write(first)
            os.fsync(handle)
        began = time.perf_counter()
        threads = [threading.Thread(target=write, args=(first,)) for first in range(writers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        os.fsync(handle)
        return count * piece / (time.perf_counter() - began)
    finally:
        os.close(handle)


class Bench:
    def __init__(self, options, number, folder):
        from kit import savers, train
        self.options, self.folder, self.rounds = options, folder, options.rounds[number]
        self.training = train.Training(options.millions[number], options.batch[number])
        self.names = options.ways or savers.available()
        self.ways, self.steps = {}, {}
        for interval in options.intervals:
            for name in self.names:
                own = os.path.join(folder, f"{name}.{interval}")
                os.makedirs(own)
                self.ways[name, interval] = savers.WAYS[name](own, interval, self.training.model,
                                                              self.training.optimizer)
                self.steps[name, interval] = 0

    def close(self):
        for way in self.ways.values():
            way.close()

    # ---- Stretches ----

    def cycles(self, interval):
        return self.options.cycles if interval == 1 else 1

    def plain(self):
        """Seconds of each step without saves."""
        return [self.training.step(None)[0] for _ in range(PLAIN_STEPS)]

    def cycle(self, key, interval):
        """A save and the steps that follow it: (seconds of all, seconds blocked)."""
        way, began, blocked = self.ways[key], time.perf_counter(), 0.0
        for i in range(interval):
            called = time.perf_counter()
            way.after(self.steps[key] + interval)  # the first of them is due
            self.steps[key] += 1
            blocked += (time.perf_counter() - called if i == 0 else 0.0) + self.training.step(way)[1]
        return time.perf_counter() - began, blocked

    def stretch(self, name, interval):
        key = name, interval
        for _ in range(WARM_SAVES if interval == 1 else 0):
            self.cycle(key, interval)
        began, found = time.perf_counter(), [self.cycle(key, interval) for _ in range(self.cycles(interval))]
        if interval > 1:
            self.ways[key].drain()
        took = time.perf_counter() - began
        self.ways[key].drain()
        return {"step_s": took / (interval * len(found)), "blocked_s": statistics.median(b for _, b in found)}

    # ---- Rounds ----

    def warm(self):
        """Two saves each: the first of a process takes memory and makes files."""
        for (name, interval), way in self.ways.items():
            for _ in range(2):
                way.after(self.steps[name, interval] + interval)
                self.steps[name, interval] += interval
                self.training.step(way)
                way.drain()
        raw_rate(self.folder, self.raw_bytes())

    def raw_bytes(self):
        return min(self.training.state_bytes(), 1 << 29)

    def round(self, interval, order):
        """{way: what its stretch took, with `slowdown`}, and the plain steps' median."""
        out, before = {}, self.plain()
        every = list(before)
        for name in order:
            os.sync()
            found = self.stretch(name, interval)
            after = self.plain()
            every += after
            out[name] = {**found, "slowdown": found["step_s"] / statistics.mean(before + after)}
            before = after
        return out, statistics.median(every)

    def run(self):
        """{interval: {way: [each round]}}, {interval: [plain step of each round]}, [raw rate of each]"""
        draw, rates = random.Random(3), []
        results = {i: {n: [] for n in self.names} for i in self.options.intervals}
        plain = {i: [] for i in self.options.intervals}
        self.warm()
        for _ in range(self.rounds):
            rates.append(raw_rate(self.folder, self.raw_bytes()))
            for interval in self.options.intervals:
                found, step = self.round(interval, draw.sample(self.names, len(self.names)))
                plain[interval].append(step)
                for name, result in found.items():
                    results[interval][name].append(result)
        return results, plain, rates


def verdict(name, interval, slowdown, share):
    """None where the target says nothing: of others, and where the device is the limit."""
    if name != "pawl" or interval not in WANTED or (interval == 1 and share > SHARE_MAX):
        return None
    return slowdown <= WANTED[interval]


def tell(bench, interval, results, plain, rates):
    total, step = bench.training.state_bytes(), statistics.median(plain)
    rate = statistics.median(rates)
    share = total / (step * interval) / rate
    rows = []
    for name in bench.names:
        turns = results[name]
        slowdown, blocked = (report.spread([t[k] for t in turns]) for k in ("slowdown", "blocked_s"))
        against = report.ratio([t["slowdown"] for t in turns], [t["slowdown"] for t in results["pawl"]]) \
            if "pawl" in results else None
        met = verdict(name, interval, slowdown["median"], share)
        report.emit(bench="python_save", way=name, interval=interval, parameters=bench.training.parameters,
                    bytes=total, step_s=step, slowdown=slowdown, blocked_s=blocked, over_pawl=against,
                    device_share=share, met=met)
        rows.append([name, report.show(slowdown, 3), report.show(blocked, 1, 1e3),
                     report.show(against) if against else "", {True: "met", False: "MISSED", None: ""}[met]])
    rows.append(["device limit", f"{total / rate / step / interval:.3f} of a step's time", "", "",
                 "allows it" if share <= SHARE_MAX else "does not"])
    print(f"\n{bench.training.parameters / 1e6:.1f} M parameters, {total / 1e6:.0f} MB of state, saved every "
          f"{interval} steps of {step * 1e3:.0f} ms: {total / step / interval / 1e6:.0f} MB/s of the "
          f"{rate / 1e6:.0f} that the folder takes")
    report.table(["way", "slowdown", "blocked per save, ms", "slowdown / pawl's", "wanted"], rows)


def arguments():
    def numbers(text):
        return [int(n) for n in text.split(",")]

    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--millions", type=numbers, default=[10, 50], help="parameters of each model")
    parser.add_argument("--batch", type=numbers, default=[2, 1],
                        help="sequences of 128 tokens a step, for each model")
    parser.add_argument("--intervals", type=numbers, default=[10, 1])
    parser.add_argument("--ways", type=lambda text: text.split(","), help="default: all that are installed")
    parser.add_argument("--rounds", type=numbers, default=[3, 2], help="for each model")
    parser.add_argument("--cycles", type=int, default=6, help="saves of a stretch that saves every step")
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch; saving has the other cores")
    parser.add_argument("--folder", help="on the disk to measure; default: the build folder")
    parser.add_argument("--quick", action="store_true", help="1 M parameters, 1 round: shows that it works")
    options = parser.parse_args()
    if options.quick:
        options.millions, options.batch, options.rounds, options.cycles = [1], [1], [1], 3
    lists = options.millions, options.batch, options.rounds
    if len({len(numbers) for numbers in lists}) > 1 or min(*map(min, lists), *options.intervals, options.cycles) < 1:
        parser.error("--batch and --rounds have a number for each of --millions; all numbers are 1 or more")
    return options


def main():
    options = arguments()
    torch, _ = pytorch.load(options.build, options.threads)
    watch = report.Watch()
    for number in range(len(options.millions)):
        with report.scratch(options.folder or options.build, "python_save") as folder:
            report.emit(bench="python_save", machine=report.machine(folder), torch=torch.__version__)
            bench = Bench(options, number, folder)
            results, plain, rates = bench.run()
            bench.close()
        for interval in options.intervals:
            tell(bench, interval, results[interval], plain[interval], rates)
    watch.end(bench="python_save", rounds=options.rounds)


if __name__ == "__main__":
    main()
