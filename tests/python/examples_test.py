"""The Python examples are run as they say, killed in the middle, and end with the losses of an unbroken run."""
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ENV = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "OMP_NUM_THREADS": "1"}
LINE = re.compile(r"step (\d+) (loss \S+.*)")
TEXT = "".join(f"{n} times {n} is {n * n}, and the square of {n} is {n * n}.\n" for n in range(2000))


def steps_of(text):
    """{step: what was printed of it}"""
    return {int(m[1]): m[2] for m in map(LINE.match, text.splitlines()) if m}


def run(command, timeout=120):
    done = subprocess.run(command, env=ENV, capture_output=True, text=True, timeout=timeout)
    if done.returncode != 0:
        raise AssertionError(f"{command} ended with {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return steps_of(done.stdout)


def run_killed(command, last):
    """What it printed up to step `last` or some later one, when it was killed with SIGKILL."""
    with subprocess.Popen(command, env=ENV, stdout=subprocess.PIPE, text=True) as process:
        printed = ""
        for line in process.stdout:
            printed += line
            match = LINE.match(line)
            if match and int(match[1]) >= last:
                process.kill()
                break
        process.stdout.read()
    if process.returncode != -9:
        raise AssertionError(f"{command} ended with {process.returncode} before it could be killed at step {last}")
    return steps_of(printed)


class ExamplesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def command(self, name, where, *arguments):
        return [sys.executable, str(ROOT / "examples/python" / name), "--run", str(self.folder / where), *arguments]

    def check_killed(self, name, total, *arguments):
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

    def test_the_classifier_killed_has_the_losses_of_one_that_was_not(self):
        self.check_killed("classifier.py", 50)  # over the end of an epoch: 32 batches

    def test_the_classifier_with_workers_too(self):
        self.check_killed("classifier.py", 30, "--workers", "2")

    def test_the_gpt_killed_has_the_losses_of_one_that_was_not(self):
        text = self.folder / "text"
        text.write_text(TEXT)
        self.check_killed("gpt.py", 60, "--text", str(text))

    def test_a_text_too_short_is_told(self):
        text = self.folder / "text"
        text.write_text("short")
        done = subprocess.run(self.command("gpt.py", "a", "--text", str(text)), env=ENV, capture_output=True, text=True)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("has 5 bytes", done.stderr)

    def test_four_ranks_end_and_three_go_on_with_the_same_batches_as_the_docs_say(self):
        said = (ROOT / "docs/pytorch-ranks.md").read_text()
        first, second = (line.split() for line in said.splitlines() if line.startswith("torchrun "))
        self.assertTrue(all(" ".join(line) in (ROOT / "examples/python/distributed.py").read_text() for line in (first, second)))

        def ranks(line, where, **others):
            words = [str(ROOT / w) if w.startswith("examples/") else w for w in line[1:]]
            for option, value in {"--folder": str(self.folder / where), **others}.items():
                words[words.index(option) + 1] = value
            return run([sys.executable, "-m", "torch.distributed.run", *words], timeout=300)

        whole = ranks(second, "whole", **{"--nproc-per-node": "1"})
        parts = {**ranks(first, "cut"), **(tail := ranks(second, "cut"))}
        self.assertEqual(sorted(tail), list(range(40, 80)))
        self.assertEqual(sorted(parts), sorted(whole))
        for step, text in parts.items():
            loss, samples = re.fullmatch(r"loss (\S+) samples (\S+)", text).groups()
            loss_whole, samples_whole = re.fullmatch(r"loss (\S+) samples (\S+)", whole[step]).groups()
            self.assertEqual(samples, samples_whole, f"step {step}")
            self.assertAlmostEqual(float(loss), float(loss_whole), delta=1e-3, msg=f"step {step}")  # other sums


if __name__ == "__main__":
    if importlib.util.find_spec("torch") is None:
        print("no torch in this Python: the examples need it")
        sys.exit(77)
    unittest.main()
