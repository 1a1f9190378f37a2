"""The Python examples are run as they say, killed in the middle, and end as unbroken runs do."""
import contextlib
import importlib.util
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ENV = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"}
LINE = re.compile(r"step (\d+) (loss \S+.*)")


def steps_of(text: str) -> dict[int, str]:
    """{step: what was printed of it}"""
    return {int(m[1]): m[2] for m in map(LINE.match, text.splitlines()) if m}


def run(command: list[str]) -> dict[int, str]:
    """Runs it to its end; whatever happens, none of its processes is left."""
    with subprocess.Popen(command, env=ENV, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          start_new_session=True) as process:
        try:
            said, complained = process.communicate()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode != 0:
        raise AssertionError(f"{command} ended with {process.returncode}\n{said[-2000:]}\n"
                             f"{complained[-4000:]}")
    return steps_of(said)


def run_killed(command: list[str], last: int) -> dict[int, str]:
    """What it printed up to step `last` or some later one, when it was killed with SIGKILL."""
    with subprocess.Popen(command, env=ENV, stdout=subprocess.PIPE, text=True) as process:
        printed = ""
        assert process.stdout is not None
        for line in process.stdout:
            printed += line
            match = LINE.match(line)
            if match and int(match[1]) >= last:
                process.kill()
                break
        process.stdout.read()
    if process.returncode != -9:
        raise AssertionError(f"{command} ended with {process.returncode} before it could be killed at step "
                             f"{last}")
    return steps_of(printed)


class ExamplesTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def command(self, name: str, where: str, *arguments: str) -> list[str]:
        """The one that the docs print, with another folder and more arguments."""
        lines = (ROOT / "docs/pytorch.md").read_text().splitlines()
        python, *words = next(line for line in lines if f"examples/python/{name}" in line).split()
        self.assertEqual((python, words[1]), ("python", "--folder"))
        files = [str(ROOT / word) if "." in word else word for word in words[3:]]
        where = str(self.folder / where)
        return [sys.executable, str(ROOT / words[0]), "--folder", where, *files, *arguments]

    def check_killed(self, name: str, total: int, *arguments: str) -> None:
        arguments = (*arguments, "--steps", str(total))
        whole = run(self.command(name, "whole", *arguments))
        self.assertEqual(sorted(whole), list(range(total)))
        head = run_killed(self.command(name, "cut", *arguments), total // 2 + 5)
        tail = run(self.command(name, "cut", *arguments))
        self.assertGreater(min(tail), 0, "the second run began anew: nothing was saved before the kill")
        self.assertEqual(max(tail), total - 1)
        self.assertLessEqual(min(tail), max(head) + 1, "steps are missing between the kill and the resume")
        for part in (head, tail):
            self.assertEqual({step: whole[step] for step in part}, part)

    def test_the_classifier_killed_has_the_losses_of_one_that_was_not(self) -> None:
        self.check_killed("classifier.py", 50)  # over the end of an epoch: 32 batches

    def test_the_classifier_with_workers_too(self) -> None:
        self.check_killed("classifier.py", 30, "--workers", "2")

    def test_the_gpt_killed_has_the_losses_of_one_that_was_not(self) -> None:
        self.check_killed("gpt.py", 60)

    def test_a_text_too_short_is_told(self) -> None:
        text = self.folder / "text"
        text.write_text("short")
        done = subprocess.run(self.command("gpt.py", "a", "--text", str(text)), env=ENV, capture_output=True,
                              text=True)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("has 5 bytes", done.stderr)

    def test_four_ranks_end_and_three_go_on_with_the_same_batches_as_the_docs_say(self) -> None:
        said = (ROOT / "docs/pytorch-ranks.md").read_text()
        first, second = [line for line in said.splitlines() if line.startswith("torchrun ")]
        program = (ROOT / "examples/python/distributed.py").read_text()
        self.assertTrue(first in program and second in program, "the program's own text says it otherwise")

        def ranks(line: str, where: str, count: str = "") -> dict[int, str]:
            words = [str(ROOT / w) if w.startswith("examples/") else w for w in line.split()[1:]]
            words[words.index("--folder") + 1] = str(self.folder / where)
            if count:
                words[words.index("--nproc-per-node") + 1] = count
            return run([sys.executable, "-m", "torch.distributed.run", *words])

        try:
            whole = ranks(second, "whole", "1")
        except AssertionError as failed:
            if "without libuv support" in str(failed):
                self.skipTest("this PyTorch's torchrun wants libuv, which it was built without")
            raise
        head, tail = ranks(first, "cut"), ranks(second, "cut")
        self.assertEqual(sorted(tail), list(range(40, 80)))
        parts = {**head, **tail}
        self.assertEqual(sorted(parts), sorted(whole))
        for step, text in parts.items():
            loss, samples = text.removeprefix("loss ").split(" samples ")
            loss_whole, samples_whole = whole[step].removeprefix("loss ").split(" samples ")
            self.assertEqual(samples, samples_whole, f"step {step}")
            # sums in another order
            self.assertAlmostEqual(float(loss), float(loss_whole), delta=1e-3, msg=f"step {step}")


if __name__ == "__main__":
    if importlib.util.find_spec("torch") is None:
        print("no torch in this Python: the examples need it")
        sys.exit(77)
    unittest.main()
