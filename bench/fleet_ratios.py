#!/usr/bin/env python3
"""What failures cost under ReCycle and pawl, against Oobleck's and Bamboo's models: ratios of goodput.

    fleet_ratios.py BUILD [--quick] [--json FILE]

On the recorded spot trace and at fixed rates for the shapes of ReCycle's testbed, with a share of the machines
dead throughout for the four larger models, and on the trace again with all stop times of one side halved and
doubled. Everything comes out of `pawl sim`; models, shapes and hours are below, and the constants of every
policy are printed with the result. None of them was chosen by looking at a ratio.
"""
import argparse
import json
import math
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TRACE = ROOT / "bench/traces/p3-trace.csv"
POLICIES = ("oobleck", "bamboo", "recycle", "pawl")
OURS, RIVALS = ("recycle", "pawl"), ("oobleck", "bamboo")

# ReCycle's three models on 32 workers. Micro-batches: four for each stage, as Oobleck's planner assumes.
TESTBED = (("gpt3-medium", 16, 2), ("gpt3-3.35b", 8, 4), ("gpt3-6.7b", 4, 8))
# 256, 512, 1024 and 1536 GPUs in tensor-parallel groups of 8; depths such that the state fits into half a device.
# The last number is Megatron-LM's batch (SC'21) in sequences, for micro-batches of one.
LARGE = (("megatron-18.4b", 8, 4, 1024), ("megatron-39.1b", 8, 8, 1536),
         ("megatron-76.1b", 16, 8, 1792), ("megatron-145.6b", 24, 8, 2304))
RATES, RATE_HOURS = "6h,2h,30min", 8  # nobody comes back: 16 of 32 are lost at the highest rate
SHARES = "1%,5%,10%"
STOPS = ("detect_s", "quorum_s", "rendezvous_s", "pause_s", "restart_s", "rebuild_s", "join_s", "replan_s", "stop_s")


def simulate(build, model, pipelines, stages, microbatches, *options):
    command = [build / "pawl", "sim", "--json", "--quiet", "--profile", model, "--pipelines", pipelines,
               "--stages", stages, "--microbatches", microbatches, "--policies", ",".join(POLICIES), *options]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"fleet_ratios: {done.stderr.strip()}")
    return json.loads(done.stdout)


def by_scenario(result):
    """Scenario -> policy -> row, in the order of the file."""
    found = {}
    for row in result["rows"]:
        found.setdefault(row["scenario"], {})[row["policy"]] = row
    return found


def ratio(rows, ours, rival, key="goodput"):
    """None where the rival cannot run at all."""
    return rows[ours][key] / rows[rival][key] if rows[rival][key] > 0 else None


def ratios(rows):
    return {f"{ours}/{rival}": ratio(rows, ours, rival) for ours in OURS for rival in RIVALS}


def text(value):
    return "cannot run" if value is None else f"{value:.3f}"


def print_table(title, lines):
    heads = ["model, shape, micro-batches", "scenario", *(f"{o}/{r}" for o in OURS for r in RIVALS),
             *(f"{p}, of its own ideal" for p in POLICIES)]
    print(f"\n## {title}\n\n| " + " | ".join(heads) + " |\n|" + "---|" * len(heads))
    for line in lines:
        own = [f"{line['relative'][p]:.3f}" for p in POLICIES]
        print("| " + " | ".join([line["job"], line["scenario"], *map(text, line["ratios"].values()), *own]) + " |")


def run_job(build, model, pipelines, stages, microbatches, *options):
    job = f"{model} {pipelines}x{stages}, {microbatches}"
    for scenario, rows in by_scenario(simulate(build, model, pipelines, stages, microbatches, *options)).items():
        yield {"job": job, "scenario": scenario, "ratios": ratios(rows),
               "relative": {p: rows[p]["relative"] for p in POLICIES},
               "goodput": {p: rows[p]["goodput"] for p in POLICIES}}


def testbed(build):
    lines = []
    for model, pipelines, stages in TESTBED:
        job = (build, model, pipelines, stages, 4 * stages)
        lines += run_job(*job, "--trace", TRACE)
        lines += run_job(*job, "--rate", RATES, "--hours", RATE_HOURS)
    return lines


def large(build):
    lines = []
    for model, pipelines, stages, batch in LARGE:
        for microbatches in (4 * stages, batch // pipelines):
            lines += run_job(build, model, pipelines, stages, microbatches, "--dead", SHARES, "--hours", 1)
    return lines


def scaled(constants, policies, factor):
    for c in constants:
        if c["policy"] in policies and c["name"] in STOPS and c["value"] > 0:
            yield from ("--set", f"{c['policy']}.{c['name']}={c['value'] * factor!r}")


def sweep(build, constants):
    lines = []
    for model, pipelines, stages in TESTBED:
        for side, policies in (("rivals'", RIVALS), ("our", OURS)):
            for factor in (0.5, 2.0):
                for line in run_job(build, model, pipelines, stages, 4 * stages, "--trace", TRACE,
                                    *scaled(constants, policies, factor)):
                    line["scenario"] = f"trace, {side} stops x{factor:g}"
                    lines.append(line)
    return lines


def print_constants(constants):
    print("\n## Constants\n\n| policy | constant | value | unit | source |\n|---|---|---|---|---|")
    for c in constants:
        if c["policy"] in ("common", *POLICIES):
            print(f"| {c['policy']} | {c['name']} | {c['value']:.10g} | {c['unit']} | {c['source']} |")


def summarise(tables):
    print("\n## Least, geometric mean and most\n\n| table | ratio | least | mean | most |\n|---|---|---|---|---|")
    for title, lines in tables.items():
        for name in lines[0]["ratios"]:
            values = [line["ratios"][name] for line in lines if line["ratios"][name] is not None]
            if values:
                mean = math.exp(sum(map(math.log, values)) / len(values))
                print(f"| {title} | {name} | {min(values):.3f} | {mean:.3f} | {max(values):.3f} |")
    below = [(title, line["job"], line["scenario"], name) for title, lines in tables.items() for line in lines
             for name, value in line["ratios"].items() if value is not None and value <= 1]
    print(f"\n{len(below)} ratios are not above 1")
    for entry in below:
        print("- " + ": ".join(entry))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("--quick", action="store_true", help="the testbed alone")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all numbers, too")
    args = parser.parse_args()
    constants = simulate(args.build, "gpt3-medium", 2, 2, 2, "--dead", "25%", "--hours", 1)["constants"]
    tables = {"Trace and rates": testbed(args.build)}
    if not args.quick:
        tables["Dead throughout"] = large(args.build)
        tables["Stop times halved and doubled"] = sweep(args.build, constants)
    for title, lines in tables.items():
        print_table(title, lines)
    summarise(tables)
    print_constants(constants)
    if args.json:
        args.json.write_text(json.dumps({"constants": constants, "tables": tables}, indent=1) + "\n")


main()
