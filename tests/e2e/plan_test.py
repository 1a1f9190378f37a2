"""`pawl plan`: its plans against an independent checker, its numbers, its files, its refusals.

Standard library only. PAWL_BUILD_DIR names the folder that holds the command (default: build).
"""

import copy
import itertools
import json
import os
import pathlib
import random
import resource
import signal
import subprocess
import tempfile
import time
import unittest

import plan_check

PAWL = pathlib.Path(os.environ.get("PAWL_BUILD_DIR", "build")).resolve() / "pawl"
USAGE, DATA, NOT_FOUND, LOST, IO = 64, 65, 66, 70, 74
POLICIES = ["gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "adaptive", "decoupled", "recycle", "pawl"]
STAGGERED = {"zb-h1", "zb-h2", "zb-v", "recycle", "pawl"}


def pawl(*arguments, timeout=120):
    return subprocess.run([PAWL, "plan", *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=timeout)


def sizes(d, p, m):
    return ["--pipelines", d, "--stages", p, "--microbatches", m]


def fail_option(dead):
    return ["--fail", ",".join(f"{p}:{s}" for p, s in dead)] if dead else []


class PlanCase(unittest.TestCase):
    def plan(self, *arguments):
        done = pawl(*arguments, "--json")
        self.assertEqual(done.returncode, 0, (arguments, done.stderr))
        return json.loads(done.stdout)

    def checked(self, d, p, m, policy, dead=(), options=(), **how):
        data = self.plan(*sizes(d, p, m), "--policy", policy, *fail_option(dead), *options)
        try:
            plan_check.check(data, staggered=policy in STAGGERED, fixed_homes=policy != "pawl", **how)
        except plan_check.Wrong as wrong:
            self.fail(f"{d}x{p}x{m} {policy} dead {dead} {options}: {wrong}")
        return data


class Plans(PlanCase):
    def test_every_policy_makes_valid_plans_of_many_shapes_and_failures(self):
        shapes = [(1, 1, 1), (1, 4, 8), (2, 2, 4), (3, 4, 8), (4, 2, 8), (2, 6, 6), (5, 3, 9), (4, 8, 16)]
        for (d, p, m), policy in itertools.product(shapes, POLICIES):
            if p == 1 and policy in ("interleaved", "zb-v"):
                continue
            cases = [()] if d == 1 else [(), ((d - 1, p // 2),), ((0, 0), (1, p - 1))]
            for dead in cases:
                with self.subTest(shape=(d, p, m), policy=policy, dead=dead):
                    if any(sum(s == stage for _, s in dead) >= d for stage in range(p)):
                        continue
                    self.checked(d, p, m, policy, dead, ["--no-move"])

    def test_uneven_costs_transfers_and_random_failures(self):
        chance = random.Random(11)
        for _ in range(40):
            d, p, m = chance.randint(2, 5), chance.randint(2, 6), chance.randint(1, 10)
            costs = [chance.choice([0.5, 1, 1.25, 2, 3.7]) for _ in range(3)]
            comm = chance.choice([0, 0, 0.1, 0.5])
            dead = set()
            for _ in range(chance.randint(0, 4)):
                w = (chance.randrange(d), chance.randrange(p))
                if sum(s == w[1] for _, s in dead | {w}) < d:
                    dead.add(w)
            policy = chance.choice(["adaptive", "decoupled", "recycle", "pawl", "1f1b", "zb-h1"])
            options = ["--cost", ",".join(map(str, costs)), "--comm", comm]
            self.checked(d, p, m, policy, sorted(dead), options, costs=costs, comm=comm)

    def test_memory_limits_hold_by_the_checkers_own_count(self):
        for limit in (4, 5, 6, 8):
            for policy in ("adaptive", "decoupled", "recycle", "pawl"):
                limits = {(p, s): limit for p in range(3) for s in range(4)}
                self.checked(3, 4, 6, policy, [(1, 2)], ["--memory", limit], limits=limits)

    def test_a_file_of_limits_holds_for_every_worker(self):
        limits = [5, 4, 7, 3, 6, 6, 6, 6]
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "limits.json"
            for text in (json.dumps(limits), json.dumps([limits[:4], limits[4:]]), json.dumps({"workers": limits})):
                path.write_text(text)
                by_worker = {(i // 4, i % 4): x for i, x in enumerate(limits)}
                self.checked(2, 4, 8, "recycle", [(1, 3)], ["--memory-file", path], limits=by_worker)

    def test_a_slow_worker_is_timed_as_slow(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "p.yaml"
            path.write_text("pawl_profile: 1\nstages: [{forward: 1, input_grad: 1, weight_grad: 1, repeat: 4}]\n"
                            "workers: [{pipeline: 0, stage: 1, slow: 2}]\n")
            for policy in ("recycle", "pawl"):
                self.checked(3, 4, 6, policy, [(1, 2)], ["--profile", path], slow={(0, 1): 2})

    def test_the_checker_notices_what_is_wrong(self):
        """Else what it says of the plans above is worth nothing."""
        good = self.checked(3, 4, 6, "recycle", [(1, 2)])
        swaps = 0
        for change in range(40):
            chance, bad = random.Random(change), copy.deepcopy(good)
            busy = chance.choice([w for w in bad["workers"] if w["alive"]])["instructions"]
            i = chance.randrange(len(busy))
            kind = change % 5
            if kind == 0:
                del busy[i]
            elif kind == 1:
                busy.insert(i, dict(busy[i]))
            elif kind == 2:
                busy[i]["start"] += 0.5
            elif kind == 3:
                bad["period"] -= 1
            else:
                j = next((j for j in range(len(busy) - 1) if busy[j]["op"] == "F" and busy[j + 1]["op"] != "F"), 0)
                busy[j], busy[j + 1] = busy[j + 1], busy[j]
                swaps += 1
            with self.assertRaises(plan_check.Wrong, msg=f"change {change}"):
                plan_check.check(bad)
        self.assertGreater(swaps, 0)


class Numbers(PlanCase):
    def test_two_failures_of_one_stage(self):
        lost = ["--policy", "recycle", "--fail", "0:2,1:2"]
        moved = self.plan(*sizes(3, 4, 6), *lost)
        self.assertEqual((moved["period"], moved["lower_bound"], moved["gap"]), (27, 27, 0))
        self.assertEqual(len(moved["moves"]), 1)
        self.assertEqual(moved["moves"][0]["to"]["stage"], 2)
        plan_check.check(moved, fixed_homes=True)
        self.assertEqual(self.plan(*sizes(3, 4, 6), *lost, "--no-move")["period"], 54)

    def test_counted_failures_are_placed(self):
        data = self.plan(*sizes(3, 4, 6), "--policy", "recycle", "--failures", 4)
        self.assertEqual(data["period"], 27)
        lost = [w["stage"] for w in data["workers"] if not w["alive"]]
        self.assertEqual(sorted(lost), [0, 1, 2, 3])

    def test_the_same_seed_gives_the_same_plan(self):
        arguments = [*sizes(3, 4, 6), "--memory", 5, "--fail", "1:2", "--seed", 5]
        a, b = self.plan(*arguments), self.plan(*arguments)
        self.assertEqual(a["workers"], b["workers"])

    def test_an_exact_plan_is_proven_and_valid(self):
        data = self.plan(*sizes(1, 3, 4), "--policy", "decoupled", "--exact", "--time-limit", "20s", "--quiet")
        self.assertTrue(data["proven"])
        self.assertEqual(data["engine"], "z3")
        plan_check.check(data, staggered=False)
        best = data["period"]
        self.assertLessEqual(best, self.plan(*sizes(1, 3, 4), "--policy", "decoupled")["period"])

    def test_one_of_a_kind_is_not_called_many(self):
        text = pawl(*sizes(8, 4, 1), "--policy", "recycle", "--fail", "2:2").stdout
        self.assertIn(", 1 micro-batch as guest, ", text)
        self.assertIn("1 pipeline x 1 stage x 1 micro-batch, 1 of 1 worker lives", pawl(*sizes(1, 1, 1)).stdout)

    def test_built_in_profiles_are_found_in_any_letter_case(self):
        small, large = (pawl(*sizes(2, 2, 4), "--policy", "1f1b", "--format", "csv", "--profile", name)
                        for name in ("gpt3-6.7b", "GPT3-6.7B"))
        self.assertEqual((large.returncode, large.stdout), (0, small.stdout), large.stderr)

    def test_built_in_profiles_plan_with_bytes(self):
        data = self.plan(*sizes(4, 4, 8), "--profile", "gpt3-6.7b", "--fail", "1:1")
        self.assertEqual((data["unit"], data["memory_unit"]), ("ms", "bytes"))
        self.assertLess(max(data["peak_memory"]), 80 * 2**30)


class Files(PlanCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="pawl-plan-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_every_format_goes_to_a_file_or_the_standard_output(self):
        for name in ("text", "json", "svg", "chrome", "csv", "ir"):
            path = self.folder / name
            arguments = [*sizes(2, 2, 4), "--policy", "1f1b", "--format", name]
            printed, done = pawl(*arguments), pawl(*arguments, "-o", path)
            self.assertEqual((printed.returncode, done.returncode, done.stdout), (0, 0, ""), done.stderr)
            self.assertGreater(len(path.read_text()), 40)
            if name in ("csv", "ir", "svg"):
                self.assertEqual(path.read_text(), printed.stdout)
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()),
                         sorted(["text", "json", "svg", "chrome", "csv", "ir"]))

    def test_a_result_that_cannot_be_written_leaves_the_former_one(self):
        path = self.folder / "plan.csv"
        path.write_text("former")
        done = pawl(*sizes(3, 2, 4), "--fail", "0:0", "--format", "csv", "-o", path)
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(path.read_text(), "former")
        self.assertEqual([p.name for p in self.folder.iterdir()], ["plan.csv"])
        done = pawl(*sizes(3, 2, 4), "-o", self.folder / "none" / "plan.txt")
        self.assertEqual(done.returncode, NOT_FOUND)
        self.assertIn("none/plan.txt", done.stderr)

    def test_a_dash_is_the_standard_output(self):
        arguments = [*sizes(2, 2, 4), "--policy", "1f1b", "--format", "csv"]
        for command in (["plan", *arguments, "-o", "-"],
                        ["sim", "--dead", "10%", "--pipelines", "4", "--stages", "2", "--policies", "recycle", "-o", "-"]):
            done = subprocess.run([PAWL, *map(str, command)], cwd=self.folder, capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertGreater(len(done.stdout), 40)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_links_stay_and_what_they_lead_to_is_replaced_in_its_folder(self):
        arguments = [*sizes(2, 2, 4), "--policy", "1f1b", "--format", "csv"]
        wanted = pawl(*arguments).stdout
        (self.folder / "far").mkdir()
        target, link, second = self.folder / "far/plan.csv", self.folder / "link", self.folder / "second"
        link.symlink_to("far/plan.csv")
        second.symlink_to(link)
        for there in (False, True):
            if there:
                target.write_text("former")
            else:
                target.unlink(missing_ok=True)
            for name in (link, second):
                done = pawl(*arguments, "-o", name)
                self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
                self.assertTrue(link.is_symlink() and second.is_symlink())
                self.assertEqual(target.read_text(), wanted)
                self.assertEqual([p.name for p in (self.folder / "far").iterdir()], ["plan.csv"])
        loop = self.folder / "loop"
        loop.symlink_to("loop")
        self.assertEqual(pawl(*arguments, "-o", loop).returncode, IO)

    def test_a_killed_command_leaves_nothing_beside_the_former_file(self):
        try:
            os.close(os.open(self.folder, os.O_TMPFILE | os.O_WRONLY))
        except OSError:
            self.skipTest("no files without a name here")
        path = self.folder / "plan.json"
        path.write_text("former")

        def stop_at_the_limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))

        command = [PAWL, "plan", *map(str, sizes(4, 4, 16)), "--policy", "1f1b", "--json", "-o", path]
        done = subprocess.run(command, preexec_fn=stop_at_the_limit, capture_output=True, timeout=120)
        self.assertEqual(done.returncode, IO)
        self.assertIn(b"File too large", done.stderr)
        self.assertEqual([p.name for p in self.folder.iterdir()], ["plan.json"])
        self.assertEqual(path.read_text(), "former")
        began = time.monotonic()
        subprocess.run(command[:-2], check=True, stdout=subprocess.DEVNULL, timeout=120)
        took = time.monotonic() - began
        for part in range(20):
            with subprocess.Popen(command) as killed:
                time.sleep(took * part / 16)
                killed.kill()
            self.assertEqual([p.name for p in self.folder.iterdir()], ["plan.json"])
            if path.read_text() != "former":
                json.loads(path.read_text())

    def test_a_full_device_is_an_error(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full")
        self.assertEqual(pawl(*sizes(3, 4, 6), "-o", "/dev/full").returncode, IO)

    def test_a_signal_ends_a_long_search_with_the_plan_so_far(self):
        with subprocess.Popen([PAWL, "plan", *map(str, sizes(4, 8, 16)), "--memory", "9", "--fail", "1:0",
                               "--search", "60s", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True) as process:
            begin = time.monotonic()
            while "SigCgt" not in (status := pathlib.Path(f"/proc/{process.pid}/status").read_text()) or not int(
                    next(x for x in status.splitlines() if x.startswith("SigCgt")).split()[1], 16) & 2:
                self.assertLess(time.monotonic() - begin, 30)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=50)
            self.assertEqual(process.returncode, 0, err)
            self.assertIn("stopped by a signal", err)
            plan_check.check(json.loads(out), limits={(p, s): 9 for p in range(4) for s in range(8)},
                             fixed_homes=False)


class Refusals(PlanCase):
    def refuses(self, code, wanted, *arguments):
        done = pawl(*arguments)
        self.assertEqual(done.returncode, code, (arguments, done.stderr))
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertTrue(done.stderr.startswith("pawl: error: "), done.stderr)
        self.assertIn(wanted, done.stderr)
        self.assertEqual(done.stdout, "")

    def test_options_are_refused_with_their_name_and_value(self):
        for wanted, *arguments in [
                ('option --pipelines: "x"', "--pipelines", "x"),
                ('option --pipelines: "0"', "--pipelines", "0"),
                ('option --stages: "-1"', "--stages", "-1"),
                ('option --cost: "1,2"', "--cost", "1,2"),
                ('option --cost: "1,0,1"', "--cost", "1,0,1"),
                ('option --cost: "1,-1,1"', "--cost", "1,-1,1"),
                ('option --cost: "nan,1,1"', "--cost", "nan,1,1"),
                ('option --cost: "1,1,1,1"', "--cost", "1,1,1,1"),
                ('option --comm: "-1"', "--comm", "-1"),
                ('option --comm: "inf"', "--comm", "inf"),
                ('option --fail: "1"', "--fail", "1"),
                ('option --fail: "1:"', "--fail", "1:"),
                ('option --fail: "1:2,"', "--fail", "1:2,"),
                ('option --fail: "1:2;2:0"', "--fail", "1:2;2:0"),
                ('option --failures: "many"', "--failures", "many"),
                ('there is no policy "best"', "--policy", "best"),
                ('option --memory: "lots"', "--memory", "lots"),
                ('option --memory: "0"', "--memory", "0"),
                ('option --format: "pdf"', "--format", "pdf"),
                ('option --seed: "-5"', "--seed", "-5"),
                ('option --search: "soon"', "--search", "soon"),
                ('option --min-gain: "-2%"', "--min-gain", "-2%"),
                ('option --time-limit: 0', "--time-limit", "0"),
                ('option "--banana"', "--banana"),
                ('"extra" is no option', "extra"),
        ]:
            self.refuses(USAGE, wanted, *sizes(3, 4, 6), *arguments)

    def test_what_does_not_go_together_is_refused(self):
        self.refuses(USAGE, "option --pipelines is missing")
        self.refuses(USAGE, "option --microbatches is missing", "--pipelines", 2, "--stages", 2)
        self.refuses(USAGE, "--profile and --cost", *sizes(2, 2, 2), "--profile", "gpt3-medium", "--cost", "1,1,1")
        self.refuses(USAGE, "--comm goes with --cost", *sizes(2, 2, 2), "--profile", "gpt3-medium", "--comm", 1)
        self.refuses(USAGE, "exclude each other", *sizes(2, 2, 2), "--memory", 5, "--memory-file", "x")

    def test_impossible_requests_are_refused(self):
        self.refuses(USAGE, 'option --pipelines: "5000": give a whole number from 1 to 4096', *sizes(5000, 2, 2))
        self.refuses(USAGE, 'option --stages: "1025": give a whole number from 1 to 1024', *sizes(2, 1025, 2))
        self.refuses(USAGE, 'option --microbatches: "0": give a whole number from 1 to 16384', *sizes(2, 2, 0))
        self.refuses(USAGE, 'option --chunks: "65": give a whole number from 1 to 64', *sizes(2, 2, 2), "--chunks", 65)
        self.refuses(USAGE, "too many", *sizes(4096, 16, 16384))
        self.refuses(LOST, "stage 1 has no live worker", *sizes(2, 2, 2), "--fail", "0:1,1:1")
        self.refuses(LOST, "3 failures are more than the 2", *sizes(2, 2, 2), "--failures", 3)
        self.refuses(USAGE, "worker 0:1 is named twice", *sizes(2, 2, 2), "--fail", "0:1", "--fail", "0:1")
        self.refuses(USAGE, "no worker 2:0", *sizes(2, 2, 2), "--fail", "2:0")
        self.refuses(USAGE, "memory: 0.5 of a micro-batch", *sizes(2, 2, 2), "--memory", 0.5)
        self.refuses(DATA, "worker 0:0: memory for micro-batches is 1024 bytes, one needs", *sizes(2, 2, 2),
                     "--memory", "1k", "--profile", "gpt3-medium")
        self.refuses(USAGE, "memory in bytes needs a profile", *sizes(2, 2, 2), "--memory", "24GiB")
        self.refuses(USAGE, 'option --cost: "1,1,1e300"', *sizes(2, 2, 2), "--cost", "1,1,1e300")
        self.refuses(USAGE, "forward of chunk 0 is 1e+12: the times of all micro-batches together must stay below "
                     "1.15292e+12, in the unit of the costs", *sizes(2, 2, 2), "--cost", "1e12,1e12,1e12")
        self.refuses(USAGE, 'option --cost: "0x10,1,1"', *sizes(2, 2, 2), "--cost", "0x10,1,1")
        self.refuses(USAGE, 'option --comm: "0x1"', *sizes(2, 2, 2), "--comm", "0x1")
        self.refuses(USAGE, 'option --memory: "0x5"', *sizes(2, 2, 2), "--memory", "0x5")

    def test_files_are_refused_with_their_name(self):
        self.refuses(NOT_FOUND, "/nowhere/p.yaml", *sizes(2, 2, 2), "--profile", "/nowhere/p.yaml")
        self.refuses(NOT_FOUND, 'there is no built-in profile "gpt3-6.7": there are gpt3-medium, gpt3-3.35b, gpt3-6.7b,',
                     *sizes(2, 2, 2), "--profile", "gpt3-6.7")
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "p.yaml"
            path.write_text("pawl_profile: 1\nstages:\n  - {forward: 0, input_grad: 1, weight_grad: 1}\n")
            self.refuses(DATA, f"{path}:3:15: stage 0: forward is 0", *sizes(2, 2, 2), "--profile", path)
            path.write_text("[1, 2, 3]")
            self.refuses(DATA, f"{path}:1:1: 3 limits: give 2", *sizes(2, 2, 2), "--memory-file", path)
            path.write_text("[5, 0.5]")
            self.refuses(DATA, f'{path}:1:5: a limit is "0.5"', *sizes(2, 2, 2), "--memory-file", path)

    def test_warnings_do_not_stop_a_plan(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "p.yaml"
            path.write_text("pawl_profile: 1\nstages: [{forward: 1, input_grad: 1, weight_grad: 1, repeat: 8}]\n")
            done = pawl(*sizes(2, 4, 4), "--profile", path, "--json")
            self.assertEqual(done.returncode, 0)
            self.assertIn("pawl: warning: profile unnamed has 8 stages, the plan 4", done.stderr)

    def test_help_names_every_option_and_exit_code(self):
        done = pawl("--help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for option in ("pipelines", "stages", "microbatches", "profile", "cost", "comm", "fail", "failures", "policy",
                       "memory", "memory-file", "no-move", "min-gain", "exact", "engine", "time-limit", "format",
                       "seed", "search", "chunks", "recompute", "offload", "quiet", "json"):
            self.assertIn("--" + option, done.stdout)
        self.assertIn("Exit codes:", done.stdout)
        for most in ("4096", "1024", "16384", "64,"):
            self.assertIn("to " + most, " ".join(done.stdout.split()))
        self.assertLessEqual(max(map(len, done.stdout.splitlines())), 110)


if __name__ == "__main__":
    unittest.main()
