"""Resident memory over 2,000 saves: its slope once everything has been used once, and the staging memory against its
budget.

    python bench/ckpt_memory.py BUILD_DIR [--saves 2000] [--mib 16] [--quick]

The state has sizes that divide nothing and is changed after every save. Slope: least squares over the resident memory
after every tenth save, in bytes per save, after the first 400: until then the engine's list of 1024 events, three of
each save, gets its pages. That growth is printed beside. Zero is met below one page per ten saves, the grain of what
the kernel counts. Staging: a budget smaller than the state and one larger, most ever used as the engine tells it, and
from outside the peak of resident memory above the state, which may exceed the budget by what an engine needs besides.
"""
import argparse

from kit import report

WARM_SAVES = 400
CASES = [("pawl", 0), ("staged", 4 << 20), ("staged", 64 << 20)]
SLOPE_MAX = 4096 / 10
BESIDES_BYTES = 4 << 20  # events, plans, headers, stacks: none of it grows with the state


def slope(values, every):
    """Least squares, per save."""
    places = [i * every for i in range(len(values))]
    middle, level = sum(places) / len(places), sum(values) / len(values)
    return (sum((x - middle) * (y - level) for x, y in zip(places, values, strict=True)) /
            sum((x - middle) ** 2 for x in places))


def judge(result, way):
    rss, every = result["rss_bytes"], result["sample_every"]
    steady = rss[WARM_SAVES // every:]
    per_save = slope(steady, every)
    used, budget = result["staging_used_bytes"], result["staging_bytes"]
    extra = result["rss_peak_bytes"] - result["rss_before_bytes"]
    told = used > 0 or way != "staged"  # a figure that is never set stays below any budget
    return {"slope_bytes_per_save": per_save, "growth_bytes": steady[-1] - steady[0], "warm_growth_bytes": steady[0] - rss[0],
            "extra_peak_bytes": extra, "staging_bytes": budget, "staging_used_bytes": used, "flat": abs(per_save) <= SLOPE_MAX,
            "in_budget": told and used <= budget and extra <= budget + BESIDES_BYTES}


def measure(options, way, staging):
    with report.scratch(options.folder or options.build, "ckpt_memory") as folder:
        result = report.run_json([report.program(options.build, "ckpt_memory"), "--folder", folder, "--way", way, "--saves",
                                  options.saves, "--bytes", options.mib << 20, "--staging", staging])
    found = judge(result, way)
    report.emit(bench="ckpt_memory", way=way, bytes=result["bytes"], tensors=result["tensors"], saves=options.saves, **found)
    word = {True: "met", False: "MISSED"}
    kib = [f"{found[key] / 1024:.0f}" for key in ("warm_growth_bytes", "growth_bytes")]
    mib = [f"{found[key] / 2**20:.1f}" for key in ("staging_bytes", "staging_used_bytes", "extra_peak_bytes")]
    return [way, f"{result['bytes'] / 2**20:.1f}", f"{found['slope_bytes_per_save']:.1f}", *kib, word[found["flat"]], *mib,
            word[found["in_budget"]]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--saves", type=int, default=2000)
    parser.add_argument("--mib", type=int, default=16)
    parser.add_argument("--folder", help="on the disk to measure; default: the build folder")
    parser.add_argument("--quick", action="store_true", help="1,000 saves of 4 MiB")
    options = parser.parse_args()
    if options.quick:
        options.saves, options.mib = 1000, 4
    if options.saves < 2 * WARM_SAVES:
        parser.error(f"--saves: wanted at least {2 * WARM_SAVES}, had {options.saves}")
    watch = report.Watch()
    report.emit(bench="ckpt_memory", machine=report.machine(options.folder or options.build))
    rows = [measure(options, way, staging) for way, staging in CASES]
    print(f"\n{options.saves} saves")
    report.table(["way", "state, MiB", "slope, bytes per save", f"growth in the first {WARM_SAVES}, KiB", "growth after, KiB", "flat",
                  "staging budget, MiB", "used, MiB", "peak above the state, MiB", "within budget"], rows)
    watch.end(bench="ckpt_memory")


main()
