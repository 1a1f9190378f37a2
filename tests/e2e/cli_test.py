"""What people meet at the pawl command before any training starts: help, versions, errors, exit codes.

Standard library only. PAWL_BUILD_DIR names the folder that holds the command (default: build). Runs that train
are tested elsewhere; here every run is refused, so that nothing but the command and a spec is needed.
"""

import os
import pathlib
import re
import resource
import subprocess
import tempfile
import unittest

PAWL = pathlib.Path(os.environ.get("PAWL_BUILD_DIR", "build")).resolve() / "pawl"
SOURCE = pathlib.Path(__file__).resolve().parents[2]

USAGE, NOT_FOUND, IO = 64, 66, 74

SPEC = """
run: {dir: DIR/run}
model: {layers: 8, heads: 2, width: 8, context: 16, vocabulary: 256}
data: {path: DIR/text}
"""


def pawl(*arguments, stdout=subprocess.PIPE):
    return subprocess.run([PAWL, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=stdout,
                          stderr=subprocess.PIPE, text=True, timeout=60)


class Cli(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="pawl-cli-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "text").write_text("the quick brown fox jumps over the lazy dog\n" * 100)
        self.spec = self.folder / "spec.yaml"
        self.spec.write_text(SPEC.replace("DIR", str(self.folder)))

    def test_little_address_space_keeps_no_command_from_ending(self):
        """Down to where a library keeps main from beginning: OpenBLAS 0.3.29 tries for ever to get 128 MiB a processor."""
        for mib in (600, 450, 320, 250, 200, 160, 120):
            for arguments in (["version"], ["plan", "--nosuch"], ["ckpt", "ls", self.folder]):
                if not self.ends_within(mib, arguments):
                    return

    def ends_within(self, mib, arguments):
        """False: its libraries did not come up in so much address space; whether they did is the dynamic linker's word."""
        said = self.folder / "said"

        def limit(size=mib << 20):
            resource.setrlimit(resource.RLIMIT_AS, (size, size))

        with open(said, "wb") as out:
            run = subprocess.Popen([PAWL, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                   env=dict(os.environ, LD_DEBUG="files"), preexec_fn=limit)
        self.addCleanup(run.wait)
        self.addCleanup(run.kill)
        try:
            run.wait(timeout=10)
        except subprocess.TimeoutExpired:
            if b"transferring control" not in said.read_bytes():
                return False
        self.assertLess(run.wait(timeout=60), 128, (mib, arguments, said.read_bytes()[-500:]))
        return True

    def refuses(self, code, wanted, *arguments):
        """The run fails with `code`; the last line of its standard error output is the error."""
        done = pawl(*arguments)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertTrue(done.stderr.endswith("\n"), done.stderr)
        last = done.stderr.splitlines()[-1]
        self.assertTrue(last.startswith("pawl: error: "), done.stderr)
        self.assertIn(wanted, last)
        return done

    def refuses_at_once(self, code, wanted, *arguments):
        done = self.refuses(code, wanted, *arguments)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertFalse((self.folder / "run").exists())

    def test_help_lists_the_commands_and_every_exit_code(self):
        codes = {int(c) for c in re.findall(r"X\(\w+, \w+, (\d+),", (SOURCE / "include/pawl/error.def").read_text())}
        self.assertIn(76, codes)
        for arguments in (["--help"], ["help"], ["-h"], ["train", "--help"], ["help", "train"]):
            done = pawl(*arguments)
            self.assertEqual((done.returncode, done.stderr), (0, ""), arguments)
            listed = {int(c) for c in re.findall(r"^ +(\d+)  ", done.stdout, re.M)}
            self.assertEqual(listed, codes, arguments)
            self.assertIn("pawl train examples/text.yaml", done.stdout)
            self.assertLessEqual(max(map(len, done.stdout.splitlines())), 110)

    def test_help_of_train_names_every_option(self):
        text = pawl("train", "--help").stdout
        for option in ("steps", "set", "inject", "report", "profile-out", "log", "from-scratch", "quiet", "json", "spec-help"):
            self.assertIn("--" + option, text)
        self.assertIn("pawl train [OPTION...] SPEC.yaml", text)

    def test_the_hidden_commands_are_not_in_the_help(self):
        for hidden in ("worker FD", "coordinate"):
            self.assertNotIn(hidden, pawl("--help").stdout)

    def test_version_is_that_of_the_build(self):
        wanted = re.search(r"project\(pawl VERSION ([0-9.]+)", (SOURCE / "CMakeLists.txt").read_text()).group(1)
        for argument in ("version", "--version", "-V"):
            self.assertEqual(pawl(argument).stdout, f"pawl {wanted}\n")

    def test_the_help_of_the_spec_is_the_documentation(self):
        done = pawl("train", "--spec-help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout, (SOURCE / "docs/spec.md").read_text())

    def test_bad_usage_is_named(self):
        self.refuses(USAGE, "a command is missing")
        self.refuses_at_once(USAGE, 'there is no command "trian"', "trian")
        self.refuses_at_once(USAGE, 'there is no command "x"', "help", "x")
        self.refuses_at_once(USAGE, "the spec is missing", "train")
        self.refuses_at_once(USAGE, 'there is no option "--bogus"', "train", self.spec, "--bogus")
        self.refuses_at_once(USAGE, 'there is no option "-x"', "train", self.spec, "-x")
        self.refuses_at_once(USAGE, "option --set needs a value", "train", self.spec, "--set")
        self.refuses_at_once(USAGE, "option --steps needs a value (N)", "train", self.spec, "--st")
        self.refuses_at_once(USAGE, 'there is no option "--s"', "train", self.spec, "--s")
        self.refuses_at_once(USAGE, "option --quiet takes no value", "train", self.spec, "--quiet=yes")
        self.refuses_at_once(USAGE, "one argument too many", "train", self.spec, self.spec)
        for steps in ("0", "-1", "x", "", "1e3", "5 ", "99999999999999999999"):
            self.refuses_at_once(USAGE, f'option --steps is "{steps}"', "train", self.spec, "--steps", steps)

    def test_a_worker_or_a_coordinator_is_not_started_by_hand(self):
        for command in ("worker", "coordinate"):
            for arguments in ([], ["x"], ["-1"], ["1", "2"], [""]):
                self.refuses_at_once(USAGE, f"{command} is started by pawl train", command, *arguments)

    def test_a_spec_that_is_not_there_is_named(self):
        self.refuses_at_once(NOT_FOUND, "none.yaml", "train", self.folder / "none.yaml")

    def test_a_bad_field_is_named_with_its_place_and_the_fix(self):
        self.spec.write_text(self.spec.read_text() + "parallel:\n  stagse: 2\n")
        self.refuses_at_once(USAGE, "spec.yaml:6:3: section parallel has no key \"stagse\": did you mean "
                             "parallel.stages?", "train", self.spec)

    def test_what_does_not_fit_is_refused_before_anything_starts(self):
        for assignment, wanted in (
                ("parallel.stages=9", "parallel.stages is 9 but model.layers is 8: use at most 8 stages"),
                ("parallel.microbatches=0", "parallel.microbatches is \"0\": write a whole number from 1"),
                ("data.path=/proc/nonexistent", "data.path: "),
                ("model.heads=3", "model.width is 8 but model.heads is 3"),
                ("nonsense", "write section.key=value"),
        ):
            self.refuses_at_once(USAGE, wanted, "train", self.spec, "--set", assignment)

    def test_a_pipe_is_a_spec_but_no_data_and_no_profile(self):
        pipe = self.folder / "pipe"  # nobody writes into it: it is not to be waited for
        os.mkfifo(pipe)
        self.refuses_at_once(USAGE, f"data.path: training text {pipe}: not a regular file", "train", self.spec,
                             "--set", f"data.path={pipe}")
        self.refuses_at_once(USAGE, f'parallel.profile is "{pipe}", which is not a regular file', "train", self.spec,
                             "--set", f"parallel.profile={pipe}")
        command = f'exec {PAWL} train <(cat {self.spec}) --set parallel.stages=9'
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
        self.assertIn("use at most 8 stages", done.stderr)

    def test_a_bad_fault_is_refused_before_anything_starts(self):
        for fault in ("", "kill", "kill:3", "kill:99@5", "kill:all@x", "nap:1@5"):
            self.refuses(USAGE, "inject", "train", self.spec, "--inject", fault)

    def test_an_empty_or_torn_spec_is_refused(self):
        for text in (b"", b"\xff\xfe", b"run: {dir: x", b"run: [1]", b"---\n---\n"):
            self.spec.write_bytes(text)
            self.refuses_at_once(USAGE, "spec.yaml:", "train", self.spec)

    def test_a_result_that_cannot_be_printed_is_an_error(self):
        with open("/dev/full", "w") as full:
            done = pawl("train", "--spec-help", stdout=full)
        self.assertEqual(done.returncode, IO)
        self.assertIn("pawl: error: writing to the standard output", done.stderr)


if __name__ == "__main__":
    unittest.main()
