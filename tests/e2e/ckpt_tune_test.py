"""pawl ckpt tune and pawl ckpt bench as people meet them: amounts, errors, JSON, signals, nothing left behind.

Standard library only. PAWL_BUILD_DIR names the folder that holds the command (default: build). Small saves on the
disk of the build tree; no speed is asserted.
"""

import json
import math
import os
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

BUILD = pathlib.Path(os.environ.get("PAWL_BUILD_DIR", "build")).resolve()
PAWL = BUILD / "pawl"

USAGE, NOT_FOUND, IO = 64, 66, 74
TUNE = ("--bytes", "2MiB", "--iteration-time", "20ms", "--in-flight", "2", "--rounds", "2")


def ckpt(*arguments):
    return subprocess.run([PAWL, "ckpt", *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=120)


class CkptTune(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="pawl-tune-", dir=BUILD)
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def refuses(self, code, wanted, *arguments):
        done = ckpt(*arguments)
        self.assertEqual((done.returncode, done.stdout), (code, ""), done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertTrue(done.stderr.startswith("pawl: error: "), done.stderr)
        self.assertIn(wanted, done.stderr)
        self.assertEqual(os.listdir(self.folder), [])

    def test_the_table_the_choice_and_the_reason_are_printed(self):
        done = ckpt("tune", self.folder, *TUNE, "--mtbf", "8h", "--memory", "1GiB", "--storage", "1GB")
        self.assertEqual(done.returncode, 0, done.stderr)
        for wanted in ("in flight", "Tw/N", "device alone", "\nchoice ", "save every", "a failure loses", "needs ", "why ",
                       "Young", "Daly", "least Tw/N"):
            self.assertIn(wanted, done.stdout)
        self.assertEqual(sum(line.startswith("*") for line in done.stdout.splitlines()), 1)
        self.assertIn("tune: ", done.stderr)
        self.assertEqual(os.listdir(self.folder), [])

    def test_json_holds_a_choice_that_follows_from_its_points(self):
        done = ckpt("tune", self.folder, *TUNE, "--overhead", "5%", "--json", "--quiet")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        result = json.loads(done.stdout)
        choice, need = result["choice"], result["need"]
        self.assertEqual(result["bytes"], 2 << 20)
        self.assertEqual(need["overhead"], 0.05)
        best = min(p["write_s"] / p["in_flight"] for p in result["points"])
        self.assertLessEqual(choice["write_s"] / choice["in_flight"], best * 1.02 + 1e-12)
        bandwidth = choice["write_s"] / (choice["in_flight"] * 1.05 * 0.02)
        stall = choice["expected_stall_s"] / (0.05 * 0.02)
        self.assertAlmostEqual(choice["bandwidth_min"], bandwidth, delta=1e-9 * bandwidth)
        self.assertEqual(choice["every"], max(1, math.ceil(max(bandwidth, stall) - 1e-9)))
        self.assertEqual(choice["storage_bytes"], (choice["in_flight"] + 2) * (2 << 20))

    def test_a_kept_result_lies_beside_the_stores(self):
        done = ckpt("tune", self.folder, *TUNE, "--json", "--quiet", "--save")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((self.folder / "tune.json").read_text(), done.stdout)

    def test_bad_options_are_named(self):
        for option, value in (("--bytes", "2XB"), ("--bytes", "-1"), ("--bytes", "0"), ("--iteration-time", "soon"),
                              ("--iteration-time", "0"), ("--overhead", "three"), ("--overhead", "0%"), ("--mtbf", "8q"),
                              ("--keep", "0"), ("--keep", "65"), ("--keep", "2.5"), ("--in-flight", "33"),
                              ("--rounds", "x"), ("--memory", ""), ("--storage", "1e9")):
            self.refuses(USAGE, option, "tune", self.folder, *TUNE, f"{option}={value}")
        for command in ("tune", "bench"):
            self.refuses(USAGE, "--what", command, self.folder, "--what")
            self.refuses(USAGE, "--bytes", command, self.folder, "--bytes")
            self.refuses(USAGE, "one argument too many", command, self.folder, self.folder)
            self.refuses(USAGE, "folder is missing", command)
        self.refuses(USAGE, "--bytes is missing", "tune", self.folder)
        self.refuses(USAGE, "--iteration-time is missing", "tune", self.folder, "--bytes", "1MiB")
        self.refuses(USAGE, "multiple of 4096", "bench", self.folder, "--bytes", "1001")

    def test_what_cannot_be_measured_is_refused(self):
        self.refuses(NOT_FOUND, "/proc/nonexistent", "tune", "/proc/nonexistent", *TUNE)
        self.refuses(NOT_FOUND, "/proc/nonexistent", "bench", "/proc/nonexistent")
        self.refuses(IO, "6291455", "tune", self.folder, *TUNE, "--storage", str((6 << 20) - 1))
        self.refuses(IO, "are free", "bench", self.folder, "--bytes", "1000TiB")

    def test_help_says_what_options_there_are(self):
        for command in ("tune", "bench"):
            done = ckpt(command, "--help")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("--bytes=B", done.stdout)
            self.assertIn("Exit codes", done.stdout)
        for command in ("tune", "bench", "export"):  # one reader of amounts
            self.assertIn("with iB are powers of 1024, with B powers of 1000", ckpt(command, "--help").stdout)

    def test_bench_prints_ratios_and_leaves_nothing_behind(self):
        done = ckpt("bench", self.folder, "--bytes", "4MiB", "--rounds", "2", "--json", "--quiet")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        result = json.loads(done.stdout)
        for key in ("write_mbps", "device_write_mbps", "write_ratio", "restore_ratio", "cpu_s_per_gb", "device_read_mbps",
                    "restore_mbps", "blocked_us"):
            self.assertGreater(result[key], 0, key)
        self.assertEqual((result["bytes"], result["rounds"], result["in_flight"]), (4 << 20, 2, 2))
        done = ckpt("bench", self.folder, "--bytes", "4MiB", "--rounds", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("device alone, write", done.stdout)
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_signal_ends_it_as_signals_do_and_nothing_is_left(self):
        for command, arguments in (("tune", ("--bytes", "64MiB", "--iteration-time", "20ms")),
                                   ("bench", ("--bytes", "64MiB", "--rounds", "64"))):
            for number in (signal.SIGINT, signal.SIGTERM):
                with subprocess.Popen([PAWL, "ckpt", command, self.folder, *arguments], stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, text=True) as running:
                    deadline = time.monotonic() + 60
                    while not os.listdir(self.folder) and time.monotonic() < deadline and running.poll() is None:
                        time.sleep(0.001)
                    running.send_signal(number)
                    out, err = running.communicate(timeout=60)
                self.assertEqual((running.returncode, out), (-number, ""), err)
                self.assertIn("removed", err)
                self.assertEqual(os.listdir(self.folder), [])

    def test_a_pipe_that_nobody_reads_ends_it_and_nothing_is_left(self):
        for command, arguments in (("tune", ("--bytes", "64MiB", "--iteration-time", "20ms")),
                                   ("bench", ("--bytes", "64MiB", "--rounds", "64"))):
            with subprocess.Popen([PAWL, "ckpt", command, self.folder, *arguments], stdout=subprocess.DEVNULL,
                                  stderr=subprocess.PIPE) as running:
                running.stderr.read(1)
                running.stderr.close()
                self.assertEqual(running.wait(timeout=60), -signal.SIGPIPE)
            self.assertEqual(os.listdir(self.folder), [])

    def test_plain_files_are_measured_where_the_fast_way_is_not_to_be_had(self):
        done = subprocess.run([PAWL, "ckpt", "tune", self.folder, *TUNE, "--quiet"], stdout=subprocess.PIPE, text=True,
                              env={**os.environ, "PAWL_STORE": "plain"}, timeout=120, check=False)
        self.assertEqual(done.returncode, 0)
        self.assertIn("plain files", done.stdout)


if __name__ == "__main__":
    unittest.main()
