"""What exact gradient sums cost against plain float ones in real training: iteration times of the same job with
optimizer.sums exact and float, in short runs that take turns. Medians and ratios as JSON lines; ratios are of the two
runs of a round, by wall time of an iteration and by processor time of the whole run, which other users of the machine
disturb less.

    python bench/sums_cost.py BUILD_DIR [--rounds N] [--config layers,heads,width,context,batch,microbatches]...
"""
import argparse
import datetime
import json
import pathlib
import random
import resource
import shutil
import statistics
import subprocess
import tempfile

# At least 1,024 tokens a micro-batch. The fewer micro-batches an iteration has, the more a reduction weighs.
CONFIGS = ["4,4,256,256,4,4", "4,4,256,256,4,1"]
STEPS = 7
WARM = 1
KINDS = ("exact", "float")


def used_s():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def moment(event):
    return datetime.datetime.strptime(event["time"], "%Y-%m-%dT%H:%M:%S.%fZ")


def run(build, folder, config, kind):
    layers, heads, width, context, batch, microbatches = config
    spec = folder / "spec.yaml"
    spec.write_text(
        f"run: {{dir: {folder}/{kind}, steps: {STEPS}}}\n"
        f"model: {{layers: {layers}, heads: {heads}, width: {width}, context: {context}, vocabulary: 256}}\n"
        f"data: {{path: {folder}/text}}\n"
        f"parallel: {{pipelines: 2, stages: 1, microbatches: {microbatches}, batch: {batch}, replan: false}}\n"
        f"optimizer: {{sums: {kind}}}\nsave: {{every: 0}}\n")
    shutil.rmtree(folder / kind, ignore_errors=True)
    began = used_s()
    subprocess.run([pathlib.Path(build) / "pawl", "train", spec, "--quiet"], check=True, stdout=subprocess.DEVNULL)
    cpu = (used_s() - began) / STEPS
    events = [json.loads(line) for line in (folder / kind / "log.jsonl").read_text().splitlines()]
    ends = [moment(e) for e in events if e["event"] == "step"][-STEPS:]
    times = [(b - a).total_seconds() for a, b in zip(ends[WARM:], ends[WARM + 1:])]
    return statistics.median(times), cpu


def spread(values):
    return {"median": round(statistics.median(values), 4), "least": round(min(values), 4),
            "largest": round(max(values), 4)}


def compare(build, config, rounds):
    measured = {kind: [] for kind in KINDS}
    with tempfile.TemporaryDirectory(prefix="pawl-sums-") as name:
        folder = pathlib.Path(name)
        (folder / "text").write_bytes(random.Random(1).randbytes(1 << 21))
        for turn in range(rounds):
            for kind in KINDS if turn % 2 == 0 else reversed(KINDS):
                measured[kind].append(run(build, folder, config, kind))
    wall, cpu = ([a[i] / b[i] for a, b in zip(measured["exact"], measured["float"])] for i in (0, 1))
    return {"config": config, "tokens_per_microbatch": config[3] * config[4], "rounds": rounds,
            "exact_s": statistics.median(m[0] for m in measured["exact"]),
            "float_s": statistics.median(m[0] for m in measured["float"]),
            "exact / float": spread(wall), "exact / float, processor time": spread(cpu)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--config", action="append")
    arguments = parser.parse_args()
    for config in arguments.config or CONFIGS:
        print(json.dumps(compare(arguments.build, [int(n) for n in config.split(",")], arguments.rounds)), flush=True)


if __name__ == "__main__":
    main()
