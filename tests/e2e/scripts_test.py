#!/usr/bin/env python3
"""The checks and the set-up script do what they are for: each is run on a small tree of its own, once as it
should be and once with the fault planted that it must find. Standard library only, nothing is installed."""
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

LAYERS = "# who includes whom\nbase:\nnet: base\nmodel: base\nrun: base net\ncli:\n"
SMALL = '/* Small. Tested in tests/unit/net_test.c. */\n#include "base/base.h"\n#include <pawl/api.h>\n'


class Tree(unittest.TestCase):
    """A repository with one file of each sort, all in order."""

    def setUp(self):
        self.root = Path(tempfile.mkdtemp(prefix="pawl-scripts-"))
        self.addCleanup(shutil.rmtree, self.root)
        shutil.copytree(ROOT / "scripts", self.root / "scripts")
        (self.root / "include/pawl").mkdir(parents=True)
        shutil.copy(ROOT / "include/pawl/error.def", self.root / "include/pawl/error.def")
        self.write("include/pawl/api.h", "#include <pawl/error.def>\n")
        self.write("src/LAYERS", LAYERS)
        self.write("src/base/base.h", "int base_one(void);\n")
        self.write("src/net/net.c", SMALL + "int net_one(void) { return base_one(); }\n")
        self.write("src/cli/main.c", '#include <pawl/api.h>\n#include "cli/cli.h"\n')
        self.write("tests/unit/net_test.c", '#include "net/net.h"\n')
        self.write("CMakeLists.txt", "pawl_module(base)\npawl_module(net pawl_base PkgConfig::UCX)\n")
        self.write("README.md", "# A tree\n\n[errors](docs/errors.md#retry), [slots](docs/formats/slot.md)\n")
        self.write("docs/formats/slot.md", "# Slot\n")
        subprocess.run(["git", "init", "-q", self.root], check=True)
        self.run_script("gen-errors")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def append(self, name, text):
        self.write(name, (self.root / name).read_text(encoding="utf-8") + text)

    def run_script(self, *command, **environment):
        return subprocess.run([self.root / "scripts" / command[0], *command[1:]], cwd=self.root, text=True,
                              stdin=subprocess.DEVNULL, capture_output=True, check=False,
                              env={**os.environ, **environment})

    def assert_passes(self, *command, **environment):
        done = self.run_script(*command, **environment)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def assert_complains(self, wanted, *command, **environment):
        done = self.run_script(*command, **environment)
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertIn(wanted, done.stdout + done.stderr)


class LayersTest(Tree):
    def test_a_tree_in_order_passes(self):
        self.assert_passes("check-layers")

    def test_an_include_that_is_not_granted_is_found_with_its_line(self):
        self.append("src/net/net.c", '#include "model/gpt.h"\n')
        self.assert_complains("src/net/net.c:5: \"model/gpt.h\": net may not include model", "check-layers")

    def test_an_include_of_an_upper_floor_is_found(self):
        self.append("src/base/base.h", '#  include "net/net.h"\n')
        self.assert_complains("base may not include net", "check-layers")

    def test_the_command_line_sees_the_public_headers_only(self):
        self.append("src/cli/main.c", '#include "base/base.h"\n')
        self.assert_complains("cli may not include base", "check-layers")

    def test_a_public_header_sees_public_headers_only(self):
        self.append("include/pawl/api.h", '#include "base/base.h"\n')
        self.assert_complains("include may not include base", "check-layers")

    def test_an_include_beside_the_form_is_found(self):
        self.append("src/net/net.c", '#include "../model/gpt.h"\n')
        self.assert_complains('as "module/file.h"', "check-layers")

    def test_a_module_that_is_not_listed_is_found(self):
        self.write("src/extra/extra.c", "int extra;\n")
        self.assert_complains("module extra is not in src/LAYERS", "check-layers")

    def test_a_grant_upward_is_found(self):
        self.write("src/LAYERS", "base: net\nnet: base\nmodel:\nrun:\ncli:\n")
        self.assert_complains("base is granted net, which does not stand above it", "check-layers")

    def test_a_link_that_is_not_granted_is_found(self):
        self.append("CMakeLists.txt", "pawl_module(model pawl_base pawl_net)\n")
        self.assert_complains("links model with net", "check-layers")


def function(lines, head="static int long_one(int a)"):
    return head + " {\n" + "    a++;\n" * (lines - 3) + "    return a;\n}\n"


class LengthsTest(Tree):
    def test_a_tree_in_order_passes(self):
        self.assert_passes("check-lengths")

    def test_a_function_at_the_limit_passes_and_is_named(self):
        self.write("src/net/long.c", function(80))
        self.assertIn("long: src/net/long.c:1: long_one: 80 lines", self.assert_passes("check-lengths"))

    def test_a_function_over_the_limit_is_found_with_its_line(self):
        self.write("src/net/long.c", "int a;\n\n" + function(81))
        self.assert_complains("TOO LONG: src/net/long.c:3: long_one: 81 lines", "check-lengths")

    def test_braces_in_strings_and_comments_do_not_hide_a_function(self):
        tricky = 'const char *a = "{ \\" {"; /* { */ char b = \'{\'; // {\n#define OPEN {\n'
        self.write("src/net/long.c", tricky + "struct s { int a; };\nint t[] = {1, 2};\n" + function(81))
        self.assert_complains("src/net/long.c:5: long_one: 81 lines", "check-lengths")

    def test_the_lines_of_a_long_head_count(self):
        self.write("src/net/long.c", function(80, "__attribute__((noinline)) static int\nlong_one(int a)"))
        self.assert_complains("src/net/long.c:1: long_one: 81 lines", "check-lengths")

    def test_a_long_table_is_no_function(self):
        self.write("src/net/table.c", "int t[sizeof(int) * 99] = {\n" + "1,\n" * 300 + "};\n")
        self.assertNotIn("table.c", self.assert_passes("check-lengths"))

    def test_a_file_over_the_limit_is_found(self):
        self.write("src/net/table.c", "int t[] = {\n" + "1,\n" * 799 + "};\n")
        self.assert_complains("TOO LONG: src/net/table.c: 801 lines", "check-lengths")


class DocsTest(Tree):
    def test_a_tree_in_order_passes(self):
        self.assert_passes("check-docs")

    def test_a_link_to_nowhere_is_found(self):
        self.append("README.md", "[gone](docs/gone.md)\n")
        self.assert_complains("README.md: link to docs/gone.md: no such file", "check-docs")

    def test_a_link_to_no_heading_is_found(self):
        self.append("README.md", "[gone](docs/errors.md#gone)\n")
        self.assert_complains("docs/errors.md#gone: no such heading", "check-docs")

    def test_a_comment_that_names_a_missing_file_is_found(self):
        self.append("src/net/net.c", "\n/* Tested in\n * tests/unit/gone_test.c. */\n")
        self.assert_complains("src/net/net.c:7: names tests/unit/gone_test.c", "check-docs")

    def test_a_string_that_names_a_missing_file_is_not_a_comment(self):
        self.append("src/net/net.c", 'const char *a = "tests/unit/gone_test.c";\n')
        self.assert_passes("check-docs")

    def test_a_document_that_names_a_missing_file_is_found(self):
        self.append("README.md", "Run `scripts/gone`.\n")
        self.assert_complains("README.md:4: names scripts/gone", "check-docs")

    def test_a_format_that_nothing_leads_to_is_found(self):
        self.write("docs/formats/lonely.md", "# Lonely\n")
        self.assert_complains("docs/formats/lonely.md: nothing leads to it", "check-docs")

    def test_an_error_table_that_is_not_current_is_found(self):
        self.append("include/pawl/error.def", 'X(NEW, STOP, 70, "new")\n')
        self.assert_complains("run scripts/gen-errors", "check-docs")

    def test_a_malformed_error_is_found(self):
        self.append("include/pawl/error.def", "X(NEW, LATER, 70, \"new\")\n")
        self.assert_complains("include/pawl/error.def", "gen-errors", "--check")

    def test_a_note_for_later_is_found(self):
        self.append("src/net/net.c", "/* TO" + "DO: think */\n")
        self.assert_complains("src/net/net.c:5: leaves something for later", "check-docs")

    def test_a_path_of_one_machine_is_found(self):
        self.append("README.md", "see /ho" + "me/somebody/notes\n")
        self.assert_complains("README.md:4: a path of one machine", "check-docs")


class CheckTest(Tree):
    """scripts/check itself: what it counts and how it ends."""

    def test_a_tree_in_order_ends_with_its_count(self):
        said = self.assert_passes("check", "layers", "lengths")
        self.assertEqual(said.splitlines()[-1], "2 passed, 0 failed")

    def test_a_failed_stage_is_named_and_the_others_still_run(self):
        self.append("src/net/net.c", '#include "model/gpt.h"\n')
        done = self.run_script("check", "layers", "lengths")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stdout.splitlines()[-2:], ["FAILED   layers", "1 passed, 1 failed"])
        self.assertIn("net may not include model", done.stdout)

    def test_a_stage_that_breaks_has_failed(self):
        (self.root / "scripts/check-lengths").unlink()
        done = self.run_script("check", "layers", "lengths", "tidy")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stdout.splitlines()[-1], "1 passed, 2 failed")

    def test_what_cannot_run_is_skipped_with_its_reason(self):
        (self.root / "scripts/format").write_text("#!/bin/sh\necho no such tool here\nexit 77\n")
        said = self.assert_passes("check", "format", "layers")
        self.assertEqual(said.splitlines()[-2:], ["skipped  format: no such tool here",
                                                  "1 passed, 0 failed, 1 skipped"])

    def ctest_stage(self, script):
        """The stage `tests` with one test, a shell script: the build is one that CMake alone makes."""
        if not shutil.which("cmake") or not shutil.which("ctest"):
            self.skipTest("no cmake")
        self.write("case.sh", script)
        self.write("tests/requirements.txt", "")
        self.write("case/CMakeLists.txt", "cmake_minimum_required(VERSION 3.25)\nproject(case NONE)\n"
                   "enable_testing()\nadd_test(NAME storm/one COMMAND sh ${CMAKE_SOURCE_DIR}/../case.sh)\n"
                   "add_test(NAME unit/good COMMAND true)\n")
        subprocess.run(["cmake", "-S", self.root / "case", "-B", self.root / "build"], check=True,
                       stdout=subprocess.DEVNULL)
        done = self.run_script("check", "tests")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertEqual(done.stdout.splitlines()[-1], "1 passed, 1 failed")
        return done.stdout

    def test_a_failed_test_is_shown_with_the_end_of_its_own_output(self):
        said = self.ctest_stage("for i in $(seq 100); do echo line $i; done; echo all is lost >&2; exit 3\n")
        self.assertIn("   | line 77\n", said)
        self.assertNotIn("   | line 76\n", said)
        self.assertIn("   | all is lost\n", said)
        self.assertIn("FAILED   tests: storm/one\n1 passed", said)

    def test_what_names_and_repeats_a_failure_is_shown_and_stands_beside_its_name(self):
        said = self.ctest_stage("echo 'FAIL: test_x (X)'; echo 'repeat with: SEED=7 storm'; i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); "
                                "echo a line of a long report, number $i; done; exit 1\n")
        self.assertIn("   | FAIL: test_x (X)\n   | repeat with: SEED=7 storm\n   | ...\n   | a line of a long", said)
        self.assertIn("number 20000\n", said)
        self.assertIn("FAILED   tests: storm/one\n         FAIL: test_x (X)\n         repeat with: SEED=7 storm\n", said)

    def test_a_stage_that_does_not_exist_is_refused(self):
        self.assert_complains("no stage speed", "check", "speed")


class PythonTest(Tree):
    """The stage `python`, with the mypy and ruff that scripts/setup put beside this interpreter."""

    def setUp(self):
        super().setUp()
        if not Path(sys.executable).with_name("mypy").exists():
            self.skipTest("no mypy beside this Python; scripts/setup check makes one that has it")
        self.write("tests/requirements.txt", "")
        self.write("python/pyproject.toml", (ROOT / "python/pyproject.toml").read_text(encoding="utf-8"))
        self.write("python/pawl/__init__.py", "def one() -> int:\n    return 1\n")
        self.write("python/build_backend/build.py", "NAME = 'pawl'\n")
        self.write("examples/python/example.py", "import pawl\n\nprint(pawl.one())\n")
        self.write("tests/python/one_test.py", "import pawl\n\nassert pawl.one() == 1\n")
        self.write("torch.py", "")  # mypy runs where there is one; not every environment has PyTorch
        self.cache = {"XDG_CACHE_HOME": str(self.root / "cache")}
        named = subprocess.run(["bash", "-c", "source scripts/tools.sh; venv_folder $(find_venv_python)"],
                               cwd=self.root, env={**os.environ, **self.cache}, capture_output=True, text=True,
                               check=True).stdout.strip()
        Path(named).parent.mkdir(parents=True)
        Path(named).symlink_to(sys.prefix)

    def test_what_is_in_order_passes(self):
        said = self.assert_passes("check", "python", **self.cache)
        self.assertEqual(said.splitlines()[-1], "2 passed, 0 failed")

    def test_a_wrong_type_is_found(self):
        self.append("tests/python/one_test.py", "pawl.one() + 'two'\n")
        self.assert_complains("tests/python/one_test.py:4: error: ", "check", "python", **self.cache)

    def test_a_function_without_types_is_found(self):
        self.append("examples/python/example.py", "\n\ndef two(a):\n    return a\n")
        self.assert_complains("examples/python/example.py:6: error: ", "check", "python", **self.cache)

    def test_a_long_line_is_found(self):
        self.append("python/pawl/__init__.py", "# " + "x" * 109 + "\n")
        self.assert_complains("python/pawl/__init__.py:3:111: E501", "check", "python", **self.cache)

    def test_a_script_with_a_name_that_is_not_there_is_found(self):
        self.append("scripts/check-lengths", "print(lengths)\n")
        self.assert_complains("F821", "check", "python", **self.cache)

    def test_without_the_environment_it_is_skipped(self):
        said = self.assert_passes("check", "python", XDG_CACHE_HOME=str(self.root / "none"))
        self.assertIn("skipped  python: no mypy and ruff; run scripts/setup check", said)


def release():
    path = Path("/etc/os-release")
    return path.read_text(encoding="utf-8") if path.exists() else ""


class SetupTest(Tree):
    """The set-up script believes a dpkg-query and an apt-get of ours."""

    def setUp(self):
        super().setUp()
        if not re.search(r'^ID=debian$', release(), re.M) or not re.search(r'^VERSION_ID="1[23]"$', release(), re.M):
            self.skipTest("installs on Debian 12 and 13 only")
        shutil.copytree(ROOT / "tests", self.root / "tests", dirs_exist_ok=True)
        self.bin = self.root / "bin"
        self.installed = self.root / "installed"
        self.installed.write_text("")
        self.tool("dpkg-query", 'for name; do :; done; grep -qx "$name" "$INSTALLED" && echo -n installed\n')
        self.tool("apt-get", 'echo "$*" >>"$INSTALLED.calls"; [ -z "${OFFLINE:-}" ] || exit 100\n'
                             'for name; do echo "$name" >>"$INSTALLED"; done\n')
        self.tool("id", "echo 0\n")

    def tool(self, name, text):
        self.bin.mkdir(exist_ok=True)
        path = self.bin / name
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def environment(self, **more):
        return {"PATH": f"{self.bin}:{os.environ['PATH']}", "INSTALLED": str(self.installed), **more}

    def calls(self):
        path = Path(f"{self.installed}.calls")
        return path.read_text() if path.exists() else ""

    def test_a_dry_run_names_what_is_missing_and_why_and_installs_nothing(self):
        said = self.assert_passes("setup", "build", "--dry-run", **self.environment())
        self.assertRegex(said, r"libucx-dev +messages between workers")
        self.assertNotIn("libcmocka-dev", said)
        self.assertEqual(self.calls(), "")

    def test_only_what_is_missing_is_installed(self):
        everything = self.assert_passes("setup", "build", "--dry-run", **self.environment())
        names = [line.split()[0] for line in everything.splitlines() if line.startswith("  ")]
        self.installed.write_text("\n".join(n for n in names if n != "libyaml-dev") + "\n")
        self.assert_passes("setup", "build", **self.environment())
        self.assertRegex(self.calls(), r"update.*\n.*install .*--no-install-recommends libyaml-dev\n$")

    def test_nothing_is_asked_of_apt_when_nothing_is_missing(self):
        self.assert_passes("setup", "build", **self.environment())
        Path(f"{self.installed}.calls").unlink()
        self.assert_passes("setup", "build", **self.environment())
        self.assertEqual(self.calls(), "")

    def test_offline_it_says_what_it_wanted(self):
        self.assert_complains("apt-get install failed", "setup", "build", **self.environment(OFFLINE="1"))

    def test_without_root_or_sudo_it_gives_the_command(self):
        self.tool("id", "echo 1000\n")
        narrow = self.root / "narrow"
        narrow.mkdir()
        for name in ("env", "bash", "dirname", "sed", "cut", "head", "sort", "cat", "grep"):
            (narrow / name).symlink_to(shutil.which(name))
        path = f"{self.bin}:{narrow}"
        self.assert_complains("as root run: apt-get install", "setup", "build", **self.environment(PATH=path))

    def python(self):
        """A python3 that makes environments whose pip notes what it is told to install."""
        self.tool("python3", 'case "$*" in\n'
                             '"-m venv "*) mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;;\n'
                             '*--dry-run*) ;;\n'
                             '*"pip install"*) for last; do :; done; cat "$last" >>"$INSTALLED.pins"\n'
                             '    [ -z "${NO_PIP:-}" ] || exit 1 ;;\n'
                             'esac\n')
        return self.environment(XDG_CACHE_HOME=str(self.root / "cache"))

    def test_the_tests_environment_is_made_once_and_made_anew_when_the_pins_change(self):
        environment, pins = self.python(), Path(f"{self.installed}.pins")
        self.write("tests/requirements.txt", "one==1\n")
        self.assert_passes("setup", "check", **environment)
        first = self.assert_passes("setup", "python", **environment)
        self.assert_passes("setup", "check", **environment)
        self.assertEqual(pins.read_text(), "one==1\n", "it was installed twice")
        self.write("tests/requirements.txt", "one==1\ntwo==2\n")
        self.assertNotEqual(self.run_script("setup", "python", **environment).returncode, 0)
        self.assert_passes("setup", "check", **environment)
        self.assertNotEqual(self.assert_passes("setup", "python", **environment), first)
        self.assertEqual(pins.read_text(), "one==1\none==1\ntwo==2\n")

    def test_an_environment_that_could_not_be_filled_is_no_environment(self):
        environment = self.python()
        said = self.run_script("setup", "check", **environment, NO_PIP="1").stderr
        self.assertIn("tests that need PyTorch will be SKIPPED", said)
        self.assertNotEqual(self.run_script("setup", "python", **environment).returncode, 0)
        self.assert_passes("setup", "check", **environment)
        self.assertIn("/cache/pawl/venv-", self.assert_passes("setup", "python", **environment))

    def test_a_text_of_ones_own_is_taken(self):
        self.assert_passes("setup", "build", **self.environment())
        own = self.root / "own.txt"
        own.write_text("A line like any other.\n" * 50000)
        self.assert_passes("setup", "demo", **self.environment(TEXT=str(own)))
        self.assertEqual((self.root / "build/data/text.txt").read_text(), own.read_text())

    def test_a_text_that_is_too_short_or_no_text_is_refused(self):
        self.assert_passes("setup", "build", **self.environment())
        own = self.root / "own.txt"
        own.write_text("short\n")
        self.assert_complains("wanted at least 1000000 bytes, had 6", "setup", "demo",
                              **self.environment(TEXT=str(own)))
        own.write_bytes(b"\0" * 1000000)
        self.assert_complains("1000000 control characters", "setup", "demo", **self.environment(TEXT=str(own)))
        self.assert_complains("not a readable file", "setup", "demo", **self.environment(TEXT="/no/such/text"))


class BenchTest(Tree):
    def setUp(self):
        super().setUp()
        self.write("bench/one.py", '#!/usr/bin/env python3\n"""Says its options. And more.\n\n    one BUILD\n"""\n'
                                   "import sys\nprint(sys.argv[1:])\nsys.exit('--bad' in sys.argv)\n")
        self.write("bench/two.c", "/* Not built: by nobody.\n *\n *   bench_two FOLDER */\n#include <stdio.h>\n")

    def test_help_has_the_options_and_the_head_of_a_benchmark(self):
        told = self.assert_passes("bench", "--help")
        for wanted in ("scripts/bench [NAME...] [-- OPTION...]", "--list", "-- --quick"):
            self.assertIn(wanted, told)
        self.assertEqual(self.assert_passes("bench", "--help", "one", "two"),
                         "Says its options. And more.\n\n    one BUILD\n\n"
                         "Not built: by nobody.\n\n  bench_two FOLDER\n")
        self.assertRegex(self.assert_passes("bench", "--list"), "^one +Says its options\ntwo +Not built\n$")

    def test_an_unknown_name_or_option_is_told_with_the_known_ones_and_nothing_is_run(self):
        for words in (("one", "tow"), ("--help", "tow")):
            done = self.run_script("bench", *words)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn("no benchmark is called tow: wanted one of\n  one\n  two\n", done.stderr)
        self.assert_complains("scripts/bench NAME -- --quick", "bench", "--quick")

    def test_a_named_one_gets_the_build_folder_and_the_options_and_a_failure_ends_it(self):
        self.assertEqual(self.assert_passes("bench", "one", "--", "--quick"), "== one\n['build', '--quick']\n")
        self.assertEqual(self.run_script("bench", "one", "two", "--", "--bad").stdout.count("=="), 1)
        self.assert_complains("build/bench/bench_two is not there: build it first", "bench", "two")
        self.assertEqual(list((self.root / "build").iterdir()), [])


class InstallTest(Tree):
    """The install script believes a cmake, an ldconfig and an id of ours; it runs as root unless told."""

    KNOWN = "\tlibpawl_ckpt.so.0 (libc6,x86-64) => /usr/local/lib/libpawl_ckpt.so.0"
    VARIABLES = "export PKG_CONFIG_PATH={0}/pkgconfig LD_LIBRARY_PATH={0}"

    def setUp(self):
        super().setUp()
        self.write("build/CMakeCache.txt", "CMAKE_INSTALL_LIBDIR:PATH=lib\n")
        self.calls = self.root / "calls"
        self.tool("cmake", '[ "$1" = --version ] && echo "cmake version 99.0" && exit\necho "cmake $*" >>"$CALLS"\n')
        self.tool("ldconfig", 'echo "ldconfig $*" >>"$CALLS"\n[ "$1" != -p ] || echo "$KNOWN"\n')
        self.tool("id", 'echo "${ID:-0}"\n')

    def tool(self, name, text):
        self.write(f"bin/{name}", "#!/bin/sh\n" + text)
        (self.root / "bin" / name).chmod(0o755)

    def install(self, prefix, **more):
        path = f"{self.root}/bin:{os.environ['PATH']}"
        more = {"DESTDIR": "", "KNOWN": self.KNOWN, **more}
        said = self.assert_passes("install", prefix, PATH=path, CMAKE="cmake", CALLS=str(self.calls), **more)
        return said, self.calls.read_text().splitlines()

    def test_the_loader_is_told_of_a_library_where_it_searches(self):
        said, calls = self.install("/usr/local")
        self.assertEqual(calls, ["cmake --install build --prefix /usr/local", "ldconfig ", "ldconfig -p"])
        self.assertEqual(said, "")

    def test_elsewhere_the_variables_that_programs_need_are_printed(self):
        said, _ = self.install("/opt/pawl")
        self.assertIn(self.VARIABLES.format("/opt/pawl/lib"), said)

    def test_without_root_the_loader_is_not_told(self):
        said, calls = self.install("some/where", ID="1000")
        self.assertNotIn("ldconfig ", calls)
        self.assertIn(self.VARIABLES.format(self.root.resolve() / "some/where/lib"), said)

    def test_a_package_in_the_making_leaves_the_loader_alone(self):
        said, calls = self.install("/usr", DESTDIR=str(self.root / "stage"))
        self.assertEqual(calls, ["cmake --install build --prefix /usr"])
        self.assertEqual(said, "")


if __name__ == "__main__":
    unittest.main()
