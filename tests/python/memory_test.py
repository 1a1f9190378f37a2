"""How much memory may be taken is what the tightest of the kernel's and the control groups' words leaves."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path

from pawl import _memory


class MemoryTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)

    def put(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def left(self) -> int:
        return _memory.available(self.root)

    def test_nothing_readable_is_nothing(self) -> None:
        self.assertEqual(self.left(), 0)
        self.put("proc/meminfo", "MemTotal: 100 kB\nMemAvailable: much kB\n")
        self.put("proc/self/cgroup", "0::/\nstrange\n")
        self.assertEqual(self.left(), 0)

    def test_the_kernel_says_it_in_kilobytes(self) -> None:
        self.put("proc/meminfo", "MemTotal:       100 kB\nMemAvailable:    70 kB\n")
        self.assertEqual(self.left(), 70 * 1024)

    def test_the_tightest_group_above_counts(self) -> None:
        self.put("proc/meminfo", "MemAvailable: 9999999 kB\n")
        self.put("proc/self/cgroup", "0::/jobs/a\n")
        self.put("sys/fs/cgroup/jobs/a/memory.max", "max\n")
        self.put("sys/fs/cgroup/jobs/a/memory.current", "500\n")
        self.assertEqual(self.left(), 9999999 * 1024)
        self.put("sys/fs/cgroup/jobs/memory.max", "4000\n")
        self.put("sys/fs/cgroup/jobs/memory.current", "1000\n")
        self.assertEqual(self.left(), 3000)
        self.put("sys/fs/cgroup/jobs/a/memory.max", "600\n")
        self.assertEqual(self.left(), 100)

    def test_a_container_sees_its_group_at_the_top(self) -> None:
        self.put("proc/self/cgroup", "0::/not/there\n")
        self.put("sys/fs/cgroup/memory.max", "900\n")
        self.put("sys/fs/cgroup/memory.current", "200\n")
        self.assertEqual(self.left(), 700)

    def test_version_1_and_a_group_over_its_limit(self) -> None:
        self.put("proc/self/cgroup", "5:cpu:/x\n4:hugetlb,memory:/x\n")
        self.put("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "800\n")
        self.put("sys/fs/cgroup/memory/x/memory.usage_in_bytes", "300\n")
        self.assertEqual(self.left(), 500)
        self.put("sys/fs/cgroup/memory/x/memory.usage_in_bytes", "900\n")
        self.assertEqual(self.left(), 0)

    def test_here_there_is_some_and_ranks_share_it(self) -> None:
        alone, shared = _memory.for_copies(1), _memory.for_copies(1000)
        self.assertGreater(alone, 0)
        self.assertLess(shared, alone)


if __name__ == "__main__":
    unittest.main()
