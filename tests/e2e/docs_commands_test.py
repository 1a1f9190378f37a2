"""Every `pawl plan` and `pawl sim` that the documents show runs as it is shown, and prints what they print.

Standard library only. PAWL_BUILD_DIR names the folder that holds the command (default: build).
"""

import os
import pathlib
import re
import shlex
import subprocess
import tempfile
import unittest

PAWL = pathlib.Path(os.environ.get("PAWL_BUILD_DIR", "build")).resolve() / "pawl"
ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENTS = ["README.md", "docs/planning.md", "docs/simulating.md"]
SHOWN = re.compile(r"(?:\$ |build/)?(pawl (?:plan|sim) --.*)")
INLINE = re.compile(r"`(pawl (?:plan|sim) --[^`]*)`")
NAMES_A_VALUE = re.compile(r"\b[A-Z]{2,}\b|\.\.\.")  # --profile FILE: a form, not a command
TIME = re.compile(r"[0-9.]+ m?s\b")


def fenced(text):
    """(command, the lines under it) of the blocks of code; a line "..." stands for lines left out."""
    found = []
    for block in re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S):
        follows = None  # lines after something else are not the output of a command of ours
        for line in block.splitlines():
            shown = SHOWN.fullmatch(line)
            if shown:
                follows = []
                found.append((shown[1], follows))
            elif line.startswith("$ "):
                follows = None
            elif follows is not None and line not in ("", "..."):
                follows.append(line)
    return found


def commands_of(document):
    text = (ROOT / document).read_text(encoding="utf-8")
    found = fenced(text)
    prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    return found + [(c, []) for c in INLINE.findall(prose) if not NAMES_A_VALUE.search(c)]


def cells(line):
    return [cell.strip().strip("`") for cell in line.strip("|").split("|")]


def table(document, head):
    """Rows of the table that begins with the cell `head`."""
    lines = (ROOT / document).read_text(encoding="utf-8").splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("|") and cells(line)[0] == head)
    rows = [cells(lines[first])]
    for line in lines[first + 2:]:
        if not line.startswith("|"):
            break
        rows.append(cells(line))
    return rows


class Commands(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="pawl-docs-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "bench").symlink_to(ROOT / "bench")  # the files that they read; what they write stays here

    def run_shown(self, command):
        words = shlex.split(command, comments=True)
        done = subprocess.run([PAWL, *words[1:]], cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=120)
        self.assertEqual(done.returncode, 0, f"{command}\n{done.stderr}")
        return done.stdout

    def test_every_command_shown_runs(self):
        for document in DOCUMENTS:
            commands = commands_of(document)
            self.assertGreater(len(commands), 0, document)
            for command, _ in commands:
                with self.subTest(document=document, command=command):
                    self.run_shown(command)

    def test_lines_shown_under_a_command_are_printed_in_this_order(self):
        lines_compared = 0
        for document in DOCUMENTS:
            for command, shown in commands_of(document):
                if not shown or document == "README.md":
                    continue
                with self.subTest(document=document, command=command):
                    printed = iter([TIME.sub("TIME", line.rstrip()) for line in self.run_shown(command).splitlines()])
                    for line in shown:
                        lines_compared += 1
                        self.assertIn(TIME.sub("TIME", line.rstrip()), printed, "not printed there: " + line)
        self.assertGreater(lines_compared, 20)

    def numbers(self, command):
        text = self.run_shown(command)
        return [re.search(rf"^{name} +([0-9.]+)", text, re.M)[1] for name in ("period", "bound")]

    def test_the_table_of_policies_is_what_the_command_prints(self):
        tour = "pawl plan --pipelines 3 --stages 4 --microbatches 6 --fail 1:2"
        rows = table("docs/planning.md", "--policy")[1:]
        self.assertEqual([row[0] for row in rows], ["adaptive", "decoupled", "recycle", "pawl"])
        for policy, period, bound, _ in rows:
            self.assertEqual(self.numbers(f"{tour} --policy {policy}"), [period, bound], policy)

    def test_the_table_of_memory_is_what_the_command_prints(self):
        limits, *rows = table("docs/planning.md", "--memory")
        command = next(c for c, _ in commands_of("docs/planning.md") if "--fail 1:0" in c)
        self.assertEqual(len(rows), 4)
        for policy, periods, bounds in (("recycle", *rows[:2]), ("pawl", *rows[2:])):
            for limit, period, bound in list(zip(limits, periods, bounds))[1:]:
                memory = "" if limit == "none" else f" --memory {limit}"
                self.assertEqual(self.numbers(f"{command} --policy {policy}{memory}"), [period, bound], (policy, limit))


if __name__ == "__main__":
    unittest.main()
