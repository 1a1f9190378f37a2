"""pawl beside the shape of PCcheck's storage core and the raw writer, like for like: the same checkpoints in flight (N),
writers per checkpoint (T) and chunks of the core's pipeline (p), in interleaved rounds of one run.

    python bench/ckpt_pccheck.py BUILD_DIR [--sizes 512,1024] [--rounds 5] [--checkpoints 6] [--quick]

The core is NOT PCcheck's own code but a re-implementation of its shape from a description (bench/kit/pccheck.h says
what was kept and what left out). To show how near it comes: measured on another day on this kind of machine, the
published core itself, built unchanged, took these shares of a raw O_DIRECT writer of the same N, T and p: 0.35 to
0.65 at 512 MiB, 0.45 to 0.48 at 1 GiB.

pawl staged copies through a pool twice the checkpoint, which is what the core has; pawl from version buffers copies
nothing. Both take checksums and commit durably; the core does neither, nor does the raw writer. pawl's own chunk size
is used: its chunks are pieces of I/O, the core's p are stages of its pipeline.
"""
import argparse

from kit import report

SETTINGS = "1:1:1,1:2:4,2:2:4,3:1:4,3:2:4"
PUBLISHED = {512: "0.35 to 0.65", 1024: "0.45 to 0.48"}
SIDES = ["raw", "pccheck_core", "pawl_staged", "pawl_versions"]
WANTED = 1.8


def judge(setting, size):
    """Rates in 10^6 bytes per second, CPU seconds per 10^9 bytes, shares of the raw writer, and pawl over the core."""
    rates = {side: [size / 1e6 / s for s in setting[side]["seconds"]] for side in SIDES}
    cpu = {side: report.spread([c / size * 1e9 for c in setting[side]["cpu_s"]]) for side in SIDES}
    return {"rates_mbps": {side: report.spread(r) for side, r in rates.items()}, "cpu_s_per_gb": cpu,
            "share_of_raw": {side: report.ratio(rates[side], rates["raw"]) for side in SIDES[1:]},
            "over_core": {side: report.ratio(rates[side], rates["pccheck_core"]) for side in SIDES[2:]}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--sizes", default="512,1024")
    parser.add_argument("--settings", default=SETTINGS, help="N:T:p, comma-separated")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--checkpoints", type=int, default=6)
    parser.add_argument("--folder", help="on the disk to measure; default: the build folder")
    parser.add_argument("--quick", action="store_true", help="64 MiB, two settings, 3 rounds: shows that it works")
    options = parser.parse_args()
    if options.quick:
        options.sizes, options.settings, options.rounds = "64", "1:1:1,2:2:4", 3
    watch = report.Watch()
    report.emit(bench="ckpt_pccheck", machine=report.machine(options.folder or options.build))
    for mib in (int(size) for size in options.sizes.split(",")):
        with report.scratch(options.folder or options.build, "ckpt_pccheck") as folder:
            result = report.run_json([report.program(options.build, "ckpt_pccheck"), "--folder", folder, "--bytes", mib << 20,
                                      "--settings", options.settings, "--rounds", options.rounds, "--checkpoints",
                                      options.checkpoints])
        tell(mib, result)
    watch.end(bench="ckpt_pccheck", rounds=options.rounds, checkpoints=options.checkpoints)


def tell(mib, result):
    rows = []
    for setting in result["settings"]:
        names = {key: setting[key] for key in ("N", "T", "p")}
        found = judge(setting, result["bytes"])
        best = max(found["over_core"].values(), key=lambda ratio: ratio["median"])
        report.emit(bench="ckpt_pccheck", bytes=result["bytes"], met=best["median"] >= WANTED, **names, **found)
        rows.append([*names.values(), *(report.show(found["rates_mbps"][side], 0) for side in SIDES),
                     report.show(found["share_of_raw"]["pccheck_core"]), PUBLISHED.get(mib, ""),
                     report.show(found["share_of_raw"]["pawl_versions"]), *(report.show(r) for r in found["over_core"].values()),
                     " / ".join(f"{found['cpu_s_per_gb'][side]['median']:.2f}" for side in SIDES)])
    print(f"\n{mib} MiB; PCcheck core: a re-implementation of its shape")
    report.table(["N", "T", "p", "raw, MB/s", "PCcheck core", "pawl staged", "pawl versions", "core / raw",
                  "published core / raw, another day", "pawl versions / raw", "pawl staged / core", "pawl versions / core",
                  "CPU s/GB raw / core / staged / versions"], rows)


main()
