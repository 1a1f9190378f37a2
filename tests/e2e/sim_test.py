"""`pawl sim`: rows that add up, the same by seed, files in one step, refusals that name what is wrong.

Standard library only. PAWL_BUILD_DIR names the folder that holds the command (default: build).
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import unittest
import xml.dom.minidom

PAWL = pathlib.Path(os.environ.get("PAWL_BUILD_DIR", "build")).resolve() / "pawl"
TRACES = pathlib.Path(__file__).resolve().parents[2] / "bench/traces"
P3, GPUS = TRACES / "p3-trace.csv", TRACES / "gpus_trace.csv"
USAGE, DATA, NOT_FOUND, CANCELLED = 64, 65, 66, 75
ALL = ["fault-scaled", "drop-replica", "checkpoint-restart", "oobleck", "bamboo", "varuna", "recycle", "pawl"]
SMALL = ["--pipelines", "4", "--stages", "3", "--microbatches", "6", "--profile", "gpt3-medium"]


def pawl(*arguments, timeout=120):
    return subprocess.run([PAWL, "sim", *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=timeout)


class SimCase(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def rows(self, *arguments):
        done = pawl(*arguments, "--json", "--quiet")
        self.assertEqual(done.returncode, 0, (arguments, done.stderr))
        self.assertEqual(done.stderr, "")
        return json.loads(done.stdout)["rows"]

    def refused(self, code, *arguments, says):
        done = pawl(*arguments)
        self.assertEqual(done.returncode, code, (arguments, done.stdout, done.stderr))
        self.assertEqual(done.stdout, "")
        lines = [line for line in done.stderr.splitlines() if line.startswith("pawl: error: ")]
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertIn(says, lines[0])

    def file(self, text, name="file"):
        path = self.dir / name
        path.write_text(text)
        return path


class Rows(SimCase):
    def check(self, row):
        parts = row["ettr"] * row["seconds"] + sum(row[k] for k in ("lost_s", "stopped_s", "saving_s", "idle_s"))
        self.assertAlmostEqual(parts / row["seconds"], 1, 6, row)
        for key in ("goodput", "relative", "throughput", "availability", "ettr", "lost_s", "stopped_s", "saving_s",
                    "idle_s", "worker_hours", "cost"):
            self.assertGreaterEqual(row[key], 0, (key, row))
        self.assertLessEqual(row["availability"], 1 + 1e-9)
        self.assertLessEqual(row["ettr"], row["availability"] + 1e-9)

    def test_time_adds_up_for_every_policy_and_source_of_failures(self):
        for source in (["--trace", P3], ["--trace", GPUS, "--seed", 3], ["--rate", "6h,30min", "--hours", 12],
                       ["--mtbf", "40h", "--repair", "2h", "--burst", 2, "--hours", "2d"],
                       ["--dead", "1%,30%", "--hours", 1]):
            rows = self.rows(*source, *SMALL)
            self.assertEqual({row["policy"] for row in rows}, set(ALL))
            for row in rows:
                self.check(row)

    def test_the_recorded_trace_has_its_failures_and_lengths(self):
        rows = self.rows("--trace", P3, "--policies", "fault-scaled,pawl")
        for row in rows:
            self.assertEqual((row["failures"], row["joins"]), (167, 145))
            self.assertEqual(row["seconds"], 40920 - 1500)
        self.assertEqual(rows[0]["lost_s"], 0)

    def test_pawl_and_recycle_are_above_oobleck_and_bamboo_on_the_recorded_trace(self):
        for model, pipelines, stages in (("gpt3-medium", 16, 2), ("gpt3-3.35b", 8, 4), ("gpt3-6.7b", 4, 8)):
            rows = self.rows("--trace", P3, "--profile", model, "--pipelines", pipelines, "--stages", stages,
                             "--policies", "oobleck,bamboo,recycle,pawl")
            goodput = {row["policy"]: row["goodput"] for row in rows}
            for ours in ("recycle", "pawl"):
                for rival in ("oobleck", "bamboo"):
                    self.assertGreater(goodput[ours], goodput[rival], (model, ours, rival))

    def test_the_same_seed_gives_the_same_bytes_and_another_one_others(self):
        options = ["--mtbf", "20h", "--repair", "1h", *SMALL, "--json", "--quiet"]
        first, again, other = (pawl(*options, "--seed", seed).stdout for seed in (5, 5, 6))
        self.assertEqual(first, again)
        self.assertNotEqual(first, other)

    def test_without_failures_nothing_is_lost(self):
        for row in self.rows("--rate", "100h", "--hours", 10, *SMALL):
            self.assertEqual((row["failures"], row["stops"], row["lost_s"], row["stopped_s"]), (0, 0, 0, 0))
            self.assertGreater(row["relative"], 0.9)

    def test_oobleck_s_ideal_is_its_best_layout_with_or_without_failures(self):
        for microbatches in (4, 8, 16):
            job = ["--pipelines", 16, "--stages", 2, "--microbatches", microbatches, "--profile", "gpt3-3.35b",
                   "--hours", 48, "--policies", "oobleck"]
            failing, [never] = self.rows("--rate", "6h,3h", "--repair", "4h", *job), self.rows("--rate", "100h", *job)
            for row in failing:
                self.assertLess(row["relative"], 1)
                self.assertAlmostEqual(row["goodput"] / row["relative"], never["goodput"] / never["relative"], 9)

    def test_who_has_no_machine_left_says_so(self):
        rows = self.rows("--mtbf", "1s", "--hours", 1, "--pipelines", 4, "--stages", 4, "--microbatches", 16)
        self.assertEqual({row["note"] for row in rows if row["goodput"] == 0}, {"cannot run: no machine is left"})

    def test_a_profile_of_a_file_is_used(self):
        profile = self.file("pawl_profile: 1\nunit: s\nunit_s: 1\nstages:\n"
                            "- {forward: 1, input_grad: 1, weight_grad: 1, layers: 2, repeat: 3}\n"
                            "workers:\n- {pipeline: 0, stage: 1, slow: 3}\n", "profile.yaml")
        done = pawl("--rate", "2h", "--hours", 4, "--profile", profile, "--stages", 3, "--pipelines", 2,
                    "--microbatches", 6, "--policies", "fault-scaled", "--json", "--quiet")
        self.assertEqual(done.returncode, 0, done.stderr)
        row = json.loads(done.stdout)["rows"][0]
        # 12 micro-batches in (6 + 2) x 3 s, for 2 h by all, then by 5 of 6
        self.assertAlmostEqual(row["throughput"], (0.5 + 0.5 * 5 / 6) * 12 / 24, 6)
        self.assertIn("taken to be alike", done.stderr)  # slow workers

    def test_a_profile_of_another_number_of_stages_is_refused(self):
        profile = self.file("pawl_profile: 1\nunit_s: 1\nstages:\n- {forward: 1, input_grad: 1, weight_grad: 1}\n")
        self.refused(USAGE, "--rate", "2h", "--profile", profile, "--stages", 3, says="the profile has 1 stages")
        self.refused(USAGE, "--rate", "2h", "--profile", self.file(profile.read_text().replace("unit_s: 1\n", "")),
                     "--stages", 1, says="unit_s")


class Constants(SimCase):
    def test_the_printed_constants_are_a_stops_file(self):
        printed = pawl("--print-stops")
        self.assertEqual(printed.returncode, 0, printed.stderr)
        self.assertIn("oobleck:", printed.stdout)
        stops = self.file(printed.stdout)
        options = ["--rate", "1h", "--hours", 6, *SMALL]
        self.assertEqual(self.rows(*options), self.rows(*options, "--stops", stops))

    def test_the_document_names_every_constant_with_its_value(self):
        text = (TRACES.parents[1] / "docs/formats/stops.md").read_text()
        policy = None
        for line in pawl("--print-stops").stdout.splitlines():
            constant = re.fullmatch(r"  (\w+): (\S+) # .*", line)
            if constant is None:
                policy = line.removesuffix(":")
            elif constant[1].startswith("checkpoint_"):
                row = re.search(rf"^\| `{constant[1]}` \| (\S+) \| (\S+) \|", text, re.MULTILINE)
                self.assertEqual(row[2 if policy == "pawl" else 1], constant[2], (policy, line))
            else:
                self.assertRegex(text, rf"(?m)^\| {policy} \| `{constant[1]}` \| {re.escape(constant[2])} \|")

    def test_a_constant_changes_its_policy_alone(self):
        options = ["--rate", "30min", "--hours", 6, *SMALL]
        before, after = (self.rows(*options, *extra) for extra in ([], ["--set", "oobleck.rendezvous_s=300"]))
        for old, new in zip(before, after, strict=True):
            if old["policy"] == "oobleck":
                self.assertLess(new["goodput"], old["goodput"])
            else:
                self.assertEqual(new, old)

    def test_an_assignment_comes_after_the_file(self):
        stops = self.file("oobleck:\n  rendezvous_s: 300\n")
        options = ["--rate", "30min", "--hours", 6, *SMALL, "--policies", "oobleck"]
        self.assertEqual(self.rows(*options), self.rows(*options, "--stops", stops, "--set", "oobleck.rendezvous_s=30"))

    def test_checkpoints_are_those_of_the_option(self):
        options = ["--rate", "100h", "--hours", 10, *SMALL, "--policies", "oobleck"]
        [row] = self.rows(*options, "--checkpoint", "90s,10s")
        self.assertAlmostEqual(row["saving_s"] / row["seconds"], 0.1, 2)


class Output(SimCase):
    def test_every_format_is_written_and_a_file_is_replaced_whole(self):
        out = self.file("old", "out")
        for form, starts in (("text", "4 pipelines"), ("json", "{"), ("svg", "<")):
            done = pawl("--rate", "2h", "--hours", 6, *SMALL, "--format", form, "-o", out)
            self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
            self.assertTrue(out.read_text().startswith(starts), out.read_text()[:80])
            if form == "svg":
                xml.dom.minidom.parseString(out.read_text())
        self.assertEqual([p.name for p in self.dir.iterdir()], ["out"])

    def test_progress_is_on_the_standard_error_output_unless_quiet(self):
        options = ["--rate", "2h", "--hours", 6, *SMALL]
        self.assertRegex(pawl(*options).stderr, r"pawl: sim: \d+ %")
        self.assertEqual(pawl(*options, "--quiet").stderr, "")

    def test_progress_is_told_and_a_signal_heard_within_one_long_row(self):
        process = subprocess.Popen([PAWL, "sim", "--mtbf", "10h", "--repair", "1h", "--hours", "876000", "--stages", "4",
                                    "--profile", "gpt3-medium", "--policies", "fault-scaled,varuna,bamboo"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        first, second = process.stderr.readline(), process.stderr.readline()
        process.send_signal(signal.SIGINT)
        out, rest = process.communicate(timeout=60)
        self.assertRegex(first, r"^pawl: sim: \d+ %: mtbf 10h, fault-scaled$")
        self.assertRegex(second, r"^pawl: sim: \d+ %: mtbf 10h, fault-scaled$")  # of the same row
        self.assertEqual((process.returncode, out), (CANCELLED, ""), rest)
        self.assertIn("stopped", rest)

    def test_help_has_examples_that_work_and_exit_codes(self):
        text = pawl("--help").stdout
        self.assertIn("Exit codes:", text)
        examples = re.findall(r"^  pawl sim (.*)$", text, re.MULTILINE)
        self.assertGreaterEqual(len(examples), 3)
        for example in examples:
            words = [str(TRACES / "p3-trace.csv") if w.endswith("p3-trace.csv") else w for w in example.split()]
            done = subprocess.run([PAWL, "sim", *words], cwd=self.dir, capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, 0, (example, done.stderr))

    def test_a_signal_ends_it_with_nothing_written(self):
        out = self.dir / "out.json"
        process = subprocess.Popen([PAWL, "sim", "--mtbf", "100h", "--repair", "1h", "--hours", "80000", "--pipelines", "32",
                                    "--stages", "16", "--profile", "megatron-39.1b", "--policies", "pawl", "--json", "-o", out],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        time.sleep(0.3)  # to be under way; it would take minutes
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, CANCELLED, err)
        self.assertIn("stopped", err)
        self.assertEqual(list(self.dir.iterdir()), [])


class Refusals(SimCase):
    def test_options_are_refused_by_name(self):
        rate = ["--rate", "2h"]
        for says, *arguments in (
                ["give one of the options --trace, --rate, --mtbf, --dead"],
                ["give only one of the options", *rate, "--dead", "5%"],
                ["option --rate: \"often\"", "--rate", "often"],
                ["option --rate: \"\"", "--rate", "2h,,1h"],
                ["option --rate: \"0s\": 0 is too little", "--rate", "0s"],
                ["option --mtbf", "--mtbf", "-3h"],
                ["option --dead", "--dead", "five"],
                ["option --dead: \"100%\": somebody must live", "--dead", "5%,100%"],
                ["above 0% and below 100%", "--dead", "0%"],
                ["dead share: 99% of 32 workers is everybody, but somebody must live", "--dead", "99%"],
                ["repair: a trace says itself who fails and comes back when", "--trace", P3, "--repair", "1h"],
                ["burst: a trace says itself", "--trace", P3, "--burst", "2"],
                ["repair: dead shares are dead from the start to the end", "--dead", "5%", "--repair", "1h"],
                ["option --hours", *rate, "--hours", "0"],
                ["option --burst", *rate, "--burst", "many"],
                ["burst: 40 at once", *rate, "--burst", "40"],
                ["option --seed", *rate, "--seed", "-1"],
                ["option --pipelines", *rate, "--pipelines", "0"],
                ["pipelines", *rate, "--pipelines", "5000"],
                ["there is no policy \"bambo\"", *rate, "--policies", "oobleck,bambo"],
                ["there is no policy \"\"", *rate, "--policies", ""],
                ["option --checkpoint", *rate, "--checkpoint", "1h,2s,3s,4s"],
                ["option --format: \"pdf\"", *rate, "--format", "pdf"],
                ["bamboo.depth", *rate, "--set", "bamboo.depth=0"],
                ["there is no policy \"bambo\"", *rate, "--set", "bambo.depth=2"],
                ["wanted policy.constant=value", *rate, "--set", "depth"],
                ["\"extra\" is no option", *rate, "extra"],
                ["--nonsense", *rate, "--nonsense"]):
            self.refused(USAGE, *arguments, says=says)

    def test_a_missing_or_unknown_profile_is_named(self):
        self.refused(NOT_FOUND, "--rate", "2h", "--profile", "nobody", says="nobody")

    def test_bad_files_are_refused_with_their_place(self):
        for text, says in (("0,add,a\n1000,rem", "line 2"), ("0,add,a\n1000,remove,b\n2000,remove,c", "cut off"),
                           ("", "nothing is recorded"), ("hello\n", "line 1"), ("0,add,a\n", "nothing happens after its start")):
            trace = self.file(text, "t.csv")
            self.refused(DATA, "--trace", trace, says=says)
            self.refused(DATA, "--trace", trace, says="t.csv")
        self.refused(NOT_FOUND, "--trace", self.dir / "none.csv", says="none.csv")
        stops = self.file("oobleck:\n  detect: 5\n", "stops.yaml")
        self.refused(DATA, "--rate", "2h", "--stops", stops, says="stops.yaml:2:")

    def test_odd_traces_are_read_with_a_warning(self):
        trace = self.file("0,add,a\n0,add,b\n9000,remove,a\n4000,remove,b\n5000,remove,b\n3600000,add,c\n")
        done = pawl("--trace", trace, "--pipelines", 2, "--stages", 1, "--profile", "gpt3-medium", "--policies", "pawl",
                    "--json", "--quiet")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("pawl: warning: trace, line 4: goes back in time", done.stderr)
        self.assertIn("node b is removed and not there", done.stderr)
        self.assertEqual(len(json.loads(done.stdout)["warnings"]), 2)


if __name__ == "__main__":
    unittest.main()
