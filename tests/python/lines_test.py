"""Three lines make a plain PyTorch script one that survives a kill, and its losses stay what they were."""

from __future__ import annotations

import difflib
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

if importlib.util.find_spec("torch") is None:
    print("skipped: this Python has no torch")
    sys.exit(77)

LINES_MAX = 3
ROOT = Path(__file__).resolve().parents[2]

PLAIN = """\
import torch
torch.manual_seed(1)
torch.set_num_threads(1)
layers = torch.nn.Linear(8, 16), torch.nn.Dropout(0.1), torch.nn.Tanh(), torch.nn.Linear(16, 1)
model = torch.nn.Sequential(*layers)
opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(30):
    x = torch.randn(32, 8)
    loss = (model(x).squeeze(1) - x.prod(1)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item().hex(), flush=True)
"""

SAVED = PLAIN.replace("import torch\n", "import torch\nimport pawl\n").replace(
    "for step in range(30):",
    'ckpt = pawl.Checkpointer("run", model=model, optimizer=opt, every=4)\nfor step in ckpt.steps(30):')

# The same, killed by itself when step 17 is printed: saves of steps 4, 8, 12 and 16 were begun.
KILLED = SAVED + "    if step == 17: import os, signal; os.kill(os.getpid(), signal.SIGKILL)\n"


# What the lines in the docs leave to the reader.
BEFORE_SHOWN = """\
import os, pawl, torch
from pawl import Checkpointer, _native
from pawl.data import Loader, Sampler
from torch.utils.data import DataLoader
torch.set_num_threads(1)
torch.multiprocessing.set_start_method("fork")
model = torch.nn.Linear(8, 1)
opt = optimizer = torch.optim.AdamW(model.parameters())
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5)
data = torch.utils.data.TensorDataset(torch.randn(640, 8), torch.randn(640))
top, steps = os.getcwd(), 12
def newest():
    with _native.Reader("runs/a") as reader:
        return reader.steps()[reader.newest()].step
"""


class LinesTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_script(self, text: str, status: int = 0) -> dict[int, str]:
        """{step: its loss} of a script run in the folder."""
        file = self.folder / "train.py"
        file.write_text(text)
        given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(Path(p).resolve()) for p in given)}
        if "PAWL_LIBRARY" in environment:
            environment["PAWL_LIBRARY"] = str(Path(environment["PAWL_LIBRARY"]).resolve())
        done = subprocess.run([sys.executable, str(file)], cwd=self.folder, env=environment,
                              capture_output=True, text=True, timeout=600)
        self.assertEqual(done.returncode, status, done.stderr)
        return {int(step): loss for step, loss in map(str.split, done.stdout.splitlines())}

    def test_a_script_needs_no_more_lines(self) -> None:
        lines = difflib.ndiff(PLAIN.splitlines(), SAVED.splitlines())
        changed = [line for line in lines if line.startswith("+ ")]
        self.assertLessEqual(len(changed), LINES_MAX, changed)

    def test_and_with_them_it_goes_on_after_a_kill_with_the_same_losses(self) -> None:
        plain, head = self.run_script(PLAIN), self.run_script(KILLED, -9)
        tail = self.run_script(SAVED)
        self.assertEqual(sorted(plain), list(range(30)))
        self.assertEqual(sorted(head), list(range(18)))
        self.assertIn(min(tail), (4, 8, 12, 16), "it did not go on from a step that was saved")
        self.assertEqual({**head, **tail}, plain)

    def test_without_numpy_and_the_command_reads_what_was_saved(self) -> None:
        bare = 'import sys\nsys.modules["numpy"] = None\n'
        head = self.run_script(bare + KILLED, -9)
        tail = self.run_script(bare + SAVED)
        self.assertEqual({**head, **tail}, self.run_script(PLAIN))
        pawl = Path(os.environ["PAWL_BUILD_DIR"]).resolve() / "pawl"
        for word, told in (("verify", "newest complete step: 30"), ("info", "model/0.weight")):
            done = subprocess.run([pawl, "ckpt", word, self.folder / "run"], capture_output=True, text=True,
                                  timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(told, done.stdout)

    def test_the_lines_that_the_docs_show_run_as_printed(self) -> None:
        text = BEFORE_SHOWN
        for page, stored in (("README.md", 10), ("docs/pytorch.md", 0), ("docs/pytorch-data.md", 12)):
            shown = re.findall(r"^```python$(.*?)^```$", (ROOT / page).read_text(), re.M | re.S)
            self.assertEqual(len(shown), 1, page)
            text += f"os.makedirs({page!r})\nos.chdir({page!r})\n{shown[0].replace('10000', 'steps')}"
            text += f"assert step == steps - 1\nckpt.close()\nassert not {stored} or newest() == {stored}\n"
            text += "os.chdir(top)\n"
        self.run_script(text)


if __name__ == "__main__":
    unittest.main()
