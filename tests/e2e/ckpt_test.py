"""pawl ckpt on run folders made by the engine: listing, verifying, exporting, comparing, rolling back, collecting.

Standard library, and for two tests torch, safetensors and transformers (skipped without). PAWL_BUILD_DIR names
the folder that holds the command and the program that makes run folders (default: build)."""

import fcntl
import json
import os
import pathlib
import pty
import random
import shutil
import signal
import stat
import struct
import subprocess
import tarfile
import tempfile
import unittest

try:
    import safetensors
    import safetensors.torch
    import torch
except ImportError:
    torch = None
try:
    import transformers
except ImportError:
    transformers = None

BUILD = pathlib.Path(os.environ.get("PAWL_BUILD_DIR", "build")).resolve()
PAWL, MAKE = BUILD / "pawl", BUILD / "tests" / "e2e_inspect_make"
OK, DIFFERENT, USAGE, DAMAGED, NONE, IO, BUSY, FOREIGN = 0, 1, 64, 65, 66, 74, 75, 76
TIMEOUT = 120  # a guard against a hang, not a measure of speed

# The model of tests/kit/ckpt_kit.h: name, element type, shape.
KIT = [("wte.weight", "F32", [37, 33]), ("h.0.attn.weight", "BF16", [12, 16, 17]), ("h.0.ln.bias", "F64", [13]),
       ("flags", "BOOL", [5]), ("step_count", "I64", []), ("empty", "F32", [0, 8]), ("big", "F32", [64, 64])]
WIDTH = {"F32": 4, "BF16": 2, "F64": 8, "BOOL": 1, "I64": 8}


def kit_bytes(step, tensor):
    """What the kit saves for a tensor at a step."""
    _, dtype, shape = KIT[tensor]
    size = WIDTH[dtype]
    for n in shape:
        size *= n
    words = (((step * 1000003 + tensor * 7919 + i + 1) * 0x9e3779b97f4a7c15) & (1 << 64) - 1 for i in range((size + 7) // 8))
    return b"".join(struct.pack("<Q", w) for w in words)[:size]


def read_safetensors(path):
    """Name -> (dtype, shape, bytes), and the metadata, by the format's definition."""
    data = pathlib.Path(path).read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    metadata = header.pop("__metadata__", {})
    return {n: (t["dtype"], t["shape"], data[8 + size + t["data_offsets"][0]:8 + size + t["data_offsets"][1]])
            for n, t in header.items()}, metadata


class Ckpt(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="pawl-ckpt-"))
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)

    # ---- helpers ----

    def make(self, *steps, name="run", run="A", parts=2, keep=3, start="1:0"):
        folder = self.root / name
        subprocess.run([MAKE, folder, run, str(parts), str(keep), start, *map(str, steps)], check=True, timeout=TIMEOUT)
        return folder

    def pawl(self, *arguments, code=OK, **options):
        done = subprocess.run([PAWL, "ckpt", *map(str, arguments)], capture_output=True, timeout=TIMEOUT, **options)
        text = done.stderr.decode()
        self.assertEqual(done.returncode, code, f"{arguments}: {done.stdout.decode()}{text}")
        if code not in (OK, DIFFERENT):
            last = text.strip().splitlines()[-1]
            self.assertRegex(last, r"(^|\[y/N\] )pawl: error: ")
        return done

    def json(self, *arguments, code=OK):
        return json.loads(self.pawl(*arguments, "--json", code=code).stdout)

    def error(self, code, *arguments):
        return self.pawl(*arguments, code=code).stderr.decode().strip().splitlines()[-1]

    def end(self, process):
        process.kill()
        process.wait(timeout=TIMEOUT)
        process.stdin.close()
        process.stdout.close()

    def slot_of(self, folder, step, part):
        """Path of the file that holds a part of a step."""
        for p in self.json("info", folder, step)["parts"]:
            if p["part"] == part:
                return pathlib.Path(p["store"]) / p["file"]
        self.fail(f"no part {part} of step {step}")

    def flip(self, path, at):
        with open(path, "r+b") as f:
            f.seek(at)
            byte = f.read(1)
            f.seek(at)
            f.write(bytes([byte[0] ^ 0x10]))

    def header_bytes(self, path):
        with open(path, "rb") as f:
            return 8 + struct.unpack("<Q", f.read(8))[0]

    def snapshot(self, folder):
        return {p.relative_to(folder): p.read_bytes() for p in sorted(folder.rglob("*"))
                if p.is_file() and p.name != ".lock"}

    # ---- words ----

    def test_each_subcommand_explains_itself(self):
        done = self.pawl("--help")
        for name in ("ls", "info", "verify", "export", "diff", "rollback", "gc"):
            self.assertIn(f"\n  {name} ", done.stdout.decode())
            text = self.pawl(name, "--help").stdout.decode()
            for word in (f"Usage: pawl ckpt {name} ", "--json", "Examples:", "Exit codes:"):
                self.assertIn(word, text)
            again = subprocess.run([PAWL, "help", "ckpt", name], capture_output=True, timeout=TIMEOUT)
            self.assertEqual(again.stdout.decode(), text)

    def test_wrong_words_are_named_and_change_nothing(self):
        folder = self.make(1)
        for words, named in ((["lst", folder], "lst"), (["ls"], "folder"), (["ls", folder, folder], "folder"),
                             (["ls", "--all", folder], "--all"), (["verify", folder, "x"], 'STEP is "x"'),
                             (["verify", folder, "0"], 'STEP is "0"'), (["verify", folder, "1", "--all"], "--all"),
                             (["export", folder], "-o"), (["export", folder, "-o"], "needs a value"),
                             (["export", folder, "-o", "x", "--max-shard-size", "5XB"], "max-shard-size: \"5XB\""),
                             (["export", folder, "-o", "x", "--max-shard-size", "0kB"], "0 is too little"),
                             (["diff", folder], "two"), (["diff", folder, "1", "1", "1"], "too many"),
                             (["rollback", folder, "--yes"], "step"), (["rollback", folder, "1"], "--yes"),
                             (["gc", folder, "--keep", "0"], "--keep"), (["gc", folder, "--keep=-1"], "--keep")):
            self.assertIn(named, self.error(USAGE, *words))
        self.assertIn("subcommand", self.error(USAGE))

    def test_a_folder_without_checkpoints_is_not_found(self):
        self.error(NONE, "ls", self.root / "missing")
        self.assertIn("no checkpoints", self.error(NONE, "ls", self.root))
        (self.root / "run" / "store").mkdir(parents=True)
        self.assertIn("nothing was ever saved", self.error(NONE, "ls", self.root / "run"))
        self.assertIn("complete ones: 3, 2", self.error(NONE, "info", self.make(2, 3), 9))

    # ---- ls, info ----

    def test_steps_are_listed_newest_first_with_what_they_lack(self):
        folder = self.make(1, 2, "3-1")
        found = self.json("ls", folder)
        self.assertEqual([s["step"] for s in found["steps"]], [3, 2, 1])
        self.assertEqual([s["complete"] for s in found["steps"]], [False, True, True])
        self.assertEqual([s["current"] for s in found["steps"]], [False, True, False])
        self.assertEqual(found["current"], 2)
        self.assertEqual(found["steps"][0]["missing"], "unit 0 of 1: part 1 of 2")
        self.assertEqual(found["run"], "41" * 16)
        self.assertEqual(found["problems"], [])
        for s in found["steps"]:
            newest = max(p["committed_at"] for p in self.json("info", folder, s["step"])["parts"])
            self.assertEqual(s["committed_at"], newest)
        text = self.pawl("ls", folder).stdout.decode()
        self.assertRegex(text, r"\n\* +2 ")
        self.assertIn("lacks unit 0 of 1: part 1 of 2", text)

    def test_a_run_its_store_and_one_rank_are_all_folders_to_look_at(self):
        folder = self.make(1, 2)
        for path in (folder, folder / "store"):
            self.assertEqual(self.json("ls", path)["current"], 2)
        rank = self.json("ls", folder / "store" / "rank-0000", code=DAMAGED)
        self.assertEqual((rank["stores"], rank["current"]), (1, None))
        alone = self.make(7, name="alone", parts=1)
        self.assertEqual(self.json("ls", alone / "store" / "rank-0000")["current"], 7)

    def test_info_shows_tensors_slices_files_and_extra_data(self):
        folder = self.make(4, 5)
        found = self.json("info", folder)
        self.assertEqual(found["step"]["step"], 5)
        self.assertEqual({t["name"]: (t["dtype"], t["shape"]) for t in found["tensors"]}, {n: (d, s) for n, d, s in KIT})
        wte = next(t for t in found["tensors"] if t["name"] == "wte.weight")
        self.assertEqual([(s["begin"], s["extent"]) for s in wte["slices"]], [([0, 0], [18, 33]), ([18, 0], [19, 33])])
        self.assertEqual(len({s["part"] for s in wte["slices"]}), 2)
        self.assertEqual(found["blobs"], [{"unit": 0, "bytes": 22, "json": {"step": 5, "part": 0}}])
        self.assertEqual(sum(r["used"] for r in found["ranks"]), 4)
        self.assertEqual([r["damaged"] for r in found["ranks"]], [0, 0])
        text = self.pawl("info", folder, 4).stdout.decode()
        for word in ("h.0.attn.weight  BF16[12,16,17]", '{"step": 4, "part": 0}', "slot-000000.safetensors"):
            self.assertIn(word, text)

    # ---- verify ----

    def test_a_copy_by_any_tool_is_valid_or_names_the_missing_shard(self):
        folder = self.make(1, 2)
        subprocess.run(["cp", "-r", folder, self.root / "copied"], check=True)
        with tarfile.open(self.root / "x.tar", "w") as tar:
            tar.add(folder / "store", "store", filter=lambda i: None if "/." in i.name else i)
        with tarfile.open(self.root / "x.tar") as tar:
            tar.extractall(self.root / "untarred")
        for copy in ("copied", "untarred"):
            found = self.json("verify", self.root / copy, "--all")
            self.assertTrue(found["valid"])
            self.assertEqual((found["verified_steps"], found["verified_slots"]), (2, 4))
        before = self.snapshot(self.root / "copied")
        shutil.rmtree(self.root / "copied" / "store" / "rank-0001")
        self.assertIn("part 1 of 2", self.error(DAMAGED, "verify", self.root / "copied"))
        self.assertIn("part 1 of 2", self.error(DAMAGED, "verify", self.root / "copied", "--all"))
        slot = self.slot_of(self.root / "untarred", 2, 1)
        slot.unlink()
        found = self.json("verify", self.root / "untarred", code=DAMAGED)
        self.assertEqual([(p["kind"], p["step"], p["part"], p["file"]) for p in found["problems"]],
                         [("slot", 2, 1, slot.name)])
        self.assertEqual(found["current"], 1)
        self.assertLess(0, len(before))

    def test_looking_changes_nothing(self):
        folder = self.make(1, 2, "3-0")
        before = self.snapshot(folder), sorted(folder.rglob("*"))
        for words in (["ls"], ["ls", "--verify"], ["info"], ["verify"], ["verify", "--all"]):
            self.pawl(words[0], folder, *words[1:])
        self.pawl("diff", folder, 1, 2, code=DIFFERENT)
        self.pawl("rollback", folder, 1, "--dry-run")
        self.pawl("gc", folder, "--dry-run", "--keep", 1)
        self.assertEqual((self.snapshot(folder), sorted(folder.rglob("*"))), before)

    def test_damage_is_named_by_file_chunk_and_tensor(self):
        folder = self.make(1, 2)
        slot = self.slot_of(folder, 2, 1)
        self.flip(slot, self.header_bytes(slot) + 9000)
        self.assertEqual(self.json("ls", folder)["problems"], [])  # the headers are good
        found = self.json("verify", folder, code=DAMAGED)
        self.assertFalse(found["valid"])
        problem, = found["problems"]
        self.assertEqual((problem["kind"], problem["code"], problem["file"], problem["chunk"], problem["step"]),
                         ("chunk", "CORRUPT", slot.name, 1, 2))
        self.assertEqual(problem["offset"], self.header_bytes(slot) + 8192)
        self.assertIn(problem["tensor"], [n for n, _, _ in KIT])
        self.assertIn(slot.name, self.error(DAMAGED, "verify", folder))
        self.pawl("verify", folder, 1)
        self.error(DAMAGED, "export", folder, "-o", self.root / "x.safetensors")
        self.assertEqual(sorted(p.name for p in self.root.iterdir()), ["run"])

    def test_short_shards_are_refused_with_file_and_sizes(self):
        folder = self.make(1, 2)
        slot = self.slot_of(folder, 2, 0)
        size = slot.stat().st_size
        for cut in (1, 4096, size // 2):
            whole = slot.read_bytes()
            os.truncate(slot, size - cut)
            last = self.error(DAMAGED, "verify", folder)
            for word in (slot.name, str(size - cut), str(size)):
                self.assertIn(word, last)
            self.assertEqual(self.json("ls", folder, code=DAMAGED)["current"], 1)
            slot.write_bytes(whole)
        self.pawl("verify", folder)

    def test_of_five_steps_the_newest_two_damaged_the_third_is_current(self):
        folder = self.make(1, 2, 3, 4, 5, keep=5)
        for slot in [self.slot_of(folder, step, 0) for step in (5, 4)]:
            self.flip(slot, 100)
        found = self.json("ls", folder, code=DAMAGED)
        self.assertEqual([(s["step"], s["complete"], s["damaged"]) for s in found["steps"]],
                         [(5, False, 1), (4, False, 1), (3, True, 0), (2, True, 0), (1, True, 0)])
        self.assertEqual(found["current"], 3)
        self.pawl("export", folder, "-o", self.root / "x.safetensors")
        self.assertEqual(read_safetensors(self.root / "x.safetensors")[1]["pawl.step"], "3")

    def test_both_regions_of_a_log_and_the_identity_are_looked_at(self):
        folder = self.make(1, 2, 3)
        log = folder / "store" / "rank-0001" / "commit-000001.log"
        for region in (0, 1):
            self.flip(log, region * 65536 + 60)
            found = self.json("verify", folder, code=DAMAGED)
            self.assertEqual([(p["kind"], p["region"], p["file"]) for p in found["problems"]],
                             [("log", region, log.name)])
            self.flip(log, region * 65536 + 60)
        (folder / "store" / "rank-0000" / "STORE").write_text("pawl store 2\n")
        self.assertIn("another version", self.error(DAMAGED, "verify", folder))

    def test_what_was_written_without_checksums_is_refused_unless_asked_for(self):
        folder = self.make(1, "unchecked", name="plain", start="1:0")
        self.assertIn("without checksums", self.error(DAMAGED, "verify", folder))
        found = self.json("ls", folder, "--unchecked")
        self.assertTrue(found["steps"][0]["unchecked"])
        self.pawl("verify", folder, "--unchecked")

    # ---- other runs ----

    def test_a_folder_that_mixes_two_runs_is_refused_and_both_are_named(self):
        a, b = self.make(1000), self.make(10, name="b", run="B")
        shutil.rmtree(a / "store" / "rank-0001")
        shutil.copytree(b / "store" / "rank-0001", a / "store" / "rank-0001")
        for words in (["ls"], ["verify"], ["gc"], ["rollback", 10, "--yes"]):
            last = self.error(FOREIGN, words[0], a, *words[1:])
            self.assertIn("41" * 16, last)
            self.assertIn("42" * 16, last)

    def test_gc_of_one_run_leaves_another_alone(self):
        a, b = self.make(1000), self.make(8, 9, 10, name="b", run="B", keep=3)
        before = self.snapshot(a)
        self.pawl("gc", b, "--keep", 1)
        self.assertEqual([s["step"] for s in self.json("ls", b)["steps"]], [10])
        self.assertEqual(self.snapshot(a), before)

    # ---- hostile folders ----

    def test_what_cannot_be_read_is_an_error_and_not_an_empty_folder(self):
        folder = self.make(1, 2, keep=2)
        slot = self.slot_of(folder, 2, 0)
        slot.unlink()
        slot.symlink_to(slot.name)  # a loop
        found = self.json("ls", folder, code=IO)
        self.assertEqual((found["current"], found["problems"][0]["code"]), (1, "IO"))
        shutil.rmtree(folder / "store" / "rank-0001")
        (folder / "store" / "rank-0001").symlink_to("rank-0001")
        last = self.error(IO, "ls", folder)
        self.assertIn("rank-0001", last)
        self.error(IO, "verify", folder)
        log = folder / "store" / "rank-0000" / "commit-000001.log"
        log.unlink()
        log.symlink_to(log.name)
        self.error(IO, "verify", folder)

    def test_a_folder_a_pipe_or_a_device_in_a_slots_place_neither_blocks_nor_counts(self):
        folder = self.make(1, 2, keep=2)
        slot = self.slot_of(folder, 2, 0)
        for put in (slot.mkdir, lambda: os.mkfifo(slot), lambda: slot.symlink_to("/dev/zero")):
            slot.rmdir() if slot.is_dir() else slot.unlink()
            put()
            found = self.json("ls", folder, code=self.pawl_code("ls", folder))
            self.assertEqual((found["current"], found["steps"][0]["damaged"]), (1, 1))
        self.assertIn(self.pawl_code("ls", folder), (DAMAGED, IO))
        for name in ("slot-000077.safetensors", "commit-000009.log", ".new-x"):
            os.mkfifo(folder / "store" / "rank-0000" / name)
        os.remove(folder / "store" / "rank-0000" / "commit-000009.log")
        self.pawl("gc", folder)
        self.assertTrue(stat.S_ISFIFO((folder / "store" / "rank-0000" / "slot-000077.safetensors").lstat().st_mode))

    def pawl_code(self, *arguments):
        return subprocess.run([PAWL, "ckpt", *map(str, arguments)], capture_output=True, timeout=TIMEOUT).returncode

    def test_ten_thousand_strange_names_are_ignored(self):
        folder = self.make(1, 2)
        store = folder / "store" / "rank-0000"
        names = [f"slot-{i:06}.safetensors.bak" for i in range(9990)]
        names += ["slot-99999999999999999999.safetensors", "slot--00001.safetensors", "slot-1.safetensors", "slot-",
                  "commit-18446744073709551616.log", "commit-00000x.log", "\x1b[2Jx", "a\nb", "\u202egnp.exe"]
        for name in names:
            (store / name).touch()
        (folder / "store" / "rank-99999999999999999999").mkdir()
        (folder / "store" / "rank-x").mkdir()
        self.assertEqual(self.json("ls", folder)["current"], 2)
        self.pawl("verify", folder, "--all")
        self.pawl("gc", folder)
        for name in names:
            self.assertTrue((store / name).exists())

    def test_a_log_of_absurd_size_is_told_and_not_read(self):
        folder = self.make(1)
        with open(folder / "store" / "rank-0000" / "commit-000007.log", "wb") as f:
            f.truncate(1 << 40)
        self.assertIn("commit-000007.log", self.error(DAMAGED, "ls", folder))

    def test_names_cannot_move_the_cursor(self):
        folder = self.make(1, name="run\x1b[2J\n\u202e")
        self.flip(self.slot_of(folder, 1, 0), 50)
        for words in (["ls"], ["verify"], ["verify", "--all"]):
            done = self.pawl(words[0], folder, *words[1:], code=DAMAGED)
            for text in (done.stdout.decode(), done.stderr.decode()):
                self.assertNotRegex(text, "[\x00-\x09\x0b-\x1f\x7f\u202e]")
        found = self.pawl("ls", folder, "--json", code=DAMAGED).stdout.decode()
        self.assertEqual(json.loads(found)["path"], str(folder))
        self.assertNotRegex(found.rstrip("\n"), "[\x00-\x1f\x7f\u202e]")
        broken = os.fsencode(self.root) + b"/bad\xff"
        os.rename(folder, broken)
        done = subprocess.run([PAWL, "ckpt", "ls", broken, "--json"], capture_output=True, timeout=TIMEOUT)
        self.assertTrue(json.loads(done.stdout.decode())["path"].endswith("bad\\xff"))

    # ---- unfinished saves ----

    def test_an_unfinished_newest_step_is_passed_over(self):
        folder = self.make(5, "6-0")
        found = self.json("verify", folder)
        self.assertTrue(found["valid"])
        self.assertEqual([(s["step"], s["missing"]) for s in found["incomplete"]], [(6, "unit 0 of 1: part 0 of 2")])
        self.pawl("export", folder, "-o", self.root / "x.safetensors")
        self.assertEqual(read_safetensors(self.root / "x.safetensors")[1]["pawl.step"], "5")
        self.assertIn("incomplete", self.error(DAMAGED, "export", folder, 6, "-o", self.root / "y.safetensors"))

    def test_the_only_copy_is_never_removed_though_unfinished(self):
        folder = self.make("1-1")
        before = self.snapshot(folder)
        self.assertIn("no step is complete", self.error(DAMAGED, "ls", folder))
        self.error(DAMAGED, "gc", folder, "--keep", 1)
        self.error(DAMAGED, "rollback", folder, 1, "--yes")
        self.assertEqual(self.snapshot(folder), before)

    # ---- export ----

    def check_exported(self, found, step, names=None):
        wanted = {n: (d, s, kit_bytes(step, i)) for i, (n, d, s) in enumerate(KIT) if names is None or n in names}
        self.assertEqual(found, wanted)

    def test_an_export_is_the_saved_bytes_whatever_the_number_of_ranks(self):
        for parts in (1, 2, 5):
            folder = self.make(3, 4, name=f"run{parts}", parts=parts)
            done = self.json("export", folder, 3, "-o", self.root / f"{parts}.safetensors")
            self.assertEqual((done["step"], done["tensors"], done["files"]), (3, len(KIT), 1))
            found, metadata = read_safetensors(self.root / f"{parts}.safetensors")
            self.check_exported(found, 3)
            self.assertEqual(metadata, {"format": "pt", "pawl.step": "3"})

    def test_shards_are_bounded_and_the_index_finds_every_tensor(self):
        folder = self.make(3)
        done = self.json("export", folder, "-o", self.root / "model", "--max-shard-size", "7kB")
        index = json.loads((self.root / "model" / "model.safetensors.index.json").read_text())
        files = sorted(set(index["weight_map"].values()))
        self.assertEqual(files, [f"model-{i + 1:05}-of-{len(files):05}.safetensors" for i in range(len(files))])
        self.assertEqual(sorted(p.name for p in (self.root / "model").iterdir()), files + ["model.safetensors.index.json"])
        self.assertEqual(done["files"], len(files) + 1)
        found = {}
        for file in files:
            here, _ = read_safetensors(self.root / "model" / file)
            size = sum(len(t[2]) for t in here.values())
            self.assertTrue(size <= 7000 or len(here) == 1, file)
            self.assertEqual({n: index["weight_map"][n] for n in here}, {n: file for n in here})
            found.update(here)
        self.check_exported(found, 3)
        self.assertEqual(index["metadata"]["total_size"], sum(len(t[2]) for t in found.values()))
        self.pawl("export", folder, "-o", str(self.root / "one") + "/", "--max-shard-size", "5GB")
        self.assertEqual([p.name for p in (self.root / "one").iterdir()], ["model.safetensors"])

    def test_tensors_are_chosen_by_prefix_or_glob_and_renamed(self):
        folder = self.make(3)
        target = self.root / "x.safetensors"
        self.pawl("export", folder, "-o", target, "--include", "h.0.", "--include", "f*s", "--exclude", "*.bias")
        self.check_exported(read_safetensors(target)[0], 3, ["h.0.attn.weight", "flags"])
        self.pawl("export", folder, "-o", target, "--force", "--strip-prefix", "h.0.", "--include", "h.")
        self.assertEqual(sorted(read_safetensors(target)[0]), ["attn.weight", "ln.bias"])
        self.assertIn("none of its 7 tensors", self.error(NONE, "export", folder, "-o", target, "--force", "--include", "zz"))
        self.error(USAGE, "export", folder, "-o", target, "--force", "--include", "flags", "--strip-prefix", "flags")

    def test_what_is_there_is_not_replaced_without_force(self):
        folder, target = self.make(3), self.root / "x.safetensors"
        target.write_text("mine")
        self.assertIn("exists", self.error(BUSY, "export", folder, "-o", target))
        self.assertEqual(target.read_text(), "mine")
        self.assertEqual(sorted(p.name for p in self.root.iterdir()), ["run", "x.safetensors"])
        self.pawl("export", folder, "-o", target, "--force")
        self.check_exported(read_safetensors(target)[0], 3)
        (self.root / "m").mkdir()
        (self.root / "m" / "model.safetensors.index.json").touch()
        self.error(BUSY, "export", folder, "-o", self.root / "m", "--max-shard-size", "9000")
        self.assertEqual([p.name for p in (self.root / "m").iterdir()], ["model.safetensors.index.json"])
        self.error(NONE, "export", folder, "-o", self.root / "no" / "x.safetensors")

    def test_force_replaces_files_of_exports_and_nothing_else(self):
        folder = self.make(1)
        (folder / "RUN").write_text("pawl run 1\nrun " + "41" * 16 + "\n")
        (folder / "notes").write_text("mine")
        (self.root / "link").symlink_to(self.root / "elsewhere")
        os.mkfifo(self.root / "fifo")
        (self.root / "m" / "model.safetensors").mkdir(parents=True)
        (self.root / "shards").mkdir()
        (self.root / "shards" / "model.safetensors.index.json").symlink_to("/dev/null")
        before, store = self.snapshot(folder), folder / "store" / "rank-0000"
        copy = self.root / "copy"  # of one store, which no run's folder is around
        shutil.copytree(store, copy)
        (self.root / "alias").symlink_to(store)
        for target in (self.root / "link", self.root / "fifo", "/dev/null", self.root / "m", store / "STORE", store / "new", copy / "STORE",
                       self.root / "alias" / "STORE", folder / "store" / "rank-0009/", folder / "RUN", folder / "SAVED",
                       folder / "run.json", folder / "notes", folder / "store" / "x", folder / "starts/"):
            for force in (["--force"], []) if str(target) != "/dev/null" else (["--force"],):
                line = self.error(USAGE, "export", folder, "-o", f"{target}/" if target.name in ("rank-0009", "starts") else target, *force) \
                    if isinstance(target, pathlib.Path) else self.error(USAGE, "export", folder, "-o", target, *force)
                self.assertIn(str(target), line)
        self.error(USAGE, "export", folder, "-o", self.root / "shards", "--force", "--max-shard-size", "9000")
        self.assertEqual([p.name for p in (self.root / "shards").iterdir()], ["model.safetensors.index.json"])
        self.assertEqual(self.snapshot(folder), before)
        self.assertEqual(sorted(p.name for p in folder.iterdir()), ["RUN", "notes", "store"])
        self.assertFalse((folder / "store" / "rank-0009").exists())
        self.assertTrue(stat.S_ISFIFO((self.root / "fifo").lstat().st_mode))
        for target in (folder / "weights.st", folder / "model/"):
            self.pawl("export", folder, "-o", f"{target}/" if target.name == "model" else target)
            self.pawl("export", folder, "-o", target, "--force")
        self.pawl("verify", folder, "--all")

    @unittest.skipUnless(torch, "needs torch and safetensors")
    def test_torch_reads_what_was_exported(self):
        folder, target = self.make(3, parts=3), self.root / "x.safetensors"
        self.pawl("export", folder, "-o", target)
        found = safetensors.torch.load_file(target)
        self.assertEqual(sorted(found), sorted(n for n, _, _ in KIT))
        for i, (name, _, shape) in enumerate(KIT):
            self.assertEqual(list(found[name].shape), shape)
            data = found[name].reshape(-1).contiguous().view(torch.uint8).numpy().tobytes()
            self.assertEqual(data, kit_bytes(3, i), name)

    @unittest.skipUnless(torch and transformers, "needs torch and transformers")
    def test_transformers_loads_what_was_trained_and_exported_in_shards(self):
        text = self.root / "text.txt"
        text.write_text("the pawl holds the wheel " * 400)
        spec = self.root / "spec.yaml"
        spec.write_text(f"""
run: {{dir: {self.root / "gpt"}, steps: 3, seed: 11}}
model: {{layers: 2, heads: 2, width: 16, context: 16, vocabulary: 256, tied: true, dropout: 0}}
data: {{path: {text}, format: bytes}}
parallel: {{pipelines: 2, stages: 2, microbatches: 2, batch: 2, schedule: 1f1b}}
optimizer: {{lr: 0.01}}
save: {{every: 1, in_flight: 2, keep: 2, export_dir: {self.root / "own"}}}
""")
        subprocess.run([PAWL, "train", spec, "--quiet"], check=True, capture_output=True, timeout=TIMEOUT)
        model = self.root / "hf"
        self.pawl("export", self.root / "gpt", "-o", model, "--max-shard-size", "10KB", "--exclude", "exp_avg",
                  "--exclude", "exponent/")
        self.assertTrue((model / "model.safetensors.index.json").exists())
        shutil.copy(self.root / "own" / "config.json", model)
        ours = transformers.GPT2LMHeadModel.from_pretrained(model)
        own = transformers.GPT2LMHeadModel.from_pretrained(self.root / "own")
        for name, value in own.state_dict().items():
            self.assertTrue(torch.equal(value, ours.state_dict()[name]), name)

    # ---- diff ----

    def test_equal_steps_are_equal_however_they_are_cut(self):
        a, b = self.make(3, parts=1), self.make(3, name="b", run="B", parts=4)
        found = self.json("diff", a, b)
        self.assertEqual((found["equal"], found["same"], found["differences"]), (True, len(KIT), []))
        self.pawl("diff", a, 3, 3)
        self.pawl("diff", a, 3, b, 3)

    def test_differences_are_counted_and_measured(self):
        folder = self.make(1, 2)
        found = self.json("diff", folder, 1, 2, code=DIFFERENT)
        self.assertEqual((found["step_a"], found["step_b"], found["equal"], found["same"]), (1, 2, False, 1))
        for d in found["differences"]:
            i = [n for n, _, _ in KIT].index(d["name"])
            a, b, size = kit_bytes(1, i), kit_bytes(2, i), WIDTH[KIT[i][1]]
            differ = [k for k in range(len(a) // size) if a[k * size:(k + 1) * size] != b[k * size:(k + 1) * size]]
            self.assertEqual((d["kind"], d["elements"], d["first"]), ("values", len(differ), differ[0]))
            if KIT[i][1] not in ("F32", "F64"):
                continue
            form = "<%d%s" % (len(a) // size, "f" if size == 4 else "d")
            pairs = list(zip(struct.unpack(form, a), struct.unpack(form, b)))
            numbers = [abs(x - y) for x, y in pairs if x == x and y == y]
            self.assertEqual(d["nans"], sum(x != x or y != y for x, y in pairs))
            self.assertAlmostEqual(d["largest"] / max(numbers), 1, places=12)
        self.assertIn("largest difference", self.pawl("diff", folder, 1, 2, code=DIFFERENT).stdout.decode())

    # ---- rollback ----

    def test_rollback_asks_first_and_does_only_what_it_was_told(self):
        folder = self.make(1, 2, 3)
        before = self.snapshot(folder)
        for answer, code in ((b"\n", BUSY), (b"n\n", BUSY), (b"yes please\n", BUSY), (b"yes\n", OK)):
            main, terminal = pty.openpty()
            os.write(main, answer)
            done = self.pawl("rollback", folder, 1, code=code, stdin=terminal)
            os.close(terminal)
            os.close(main)
            self.assertIn("[y/N]", done.stderr.decode())
            self.assertEqual(self.snapshot(folder) == before, code != OK)
        self.assertEqual([s["step"] for s in self.json("ls", folder)["steps"]], [1])
        self.make(2, 3, start="2:1")
        found = self.json("ls", folder)
        self.assertEqual([(s["step"], s["incarnation"]) for s in found["steps"]], [(3, 2), (2, 2), (1, 1)])
        self.pawl("verify", folder, "--all")

    def test_a_run_in_use_is_looked_at_but_not_changed(self):
        folder = self.make(1, 2, 3)
        writer = subprocess.Popen([MAKE, folder, "A", "2", "3", "2:3", "4", "hold"], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE)
        self.addCleanup(self.end, writer)
        self.assertEqual(writer.stdout.readline(), b"holding\n")
        before = self.snapshot(folder)
        for words in (["rollback", 2, "--yes"], ["gc"]):
            self.assertIn(str(writer.pid), self.error(BUSY, words[0], folder, *words[1:]))
        self.assertEqual(self.snapshot(folder), before)
        self.assertEqual(self.json("verify", folder, "--all")["current"], 4)
        self.assertEqual(len(self.json("rollback", folder, 2, "--dry-run")["changes"]), 4)
        writer.communicate(timeout=TIMEOUT)
        self.assertEqual(self.json("rollback", folder, 2, "--yes")["newest"], 2)

    def test_a_launcher_between_two_starts_of_its_workers_is_in_the_way_too(self):
        folder = self.make(1, 2)
        with open(folder / ".lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.error(BUSY, "rollback", folder, 1, "--yes")
            self.error(BUSY, "gc", folder, "--keep", 1)
        self.assertEqual(self.json("ls", folder)["current"], 2)
        self.pawl("rollback", folder, 1, "--yes")

    def test_readers_beside_a_busy_writer_never_see_damage(self):
        folder = self.make(1)
        writer = subprocess.Popen([MAKE, folder, "A", "2", "1", "2:1", "2", "loop"], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE)
        self.addCleanup(self.end, writer)
        self.assertEqual(writer.stdout.readline(), b"looping\n")
        steps = set()
        for i in range(12):
            # Nothing but success, or the slots were used again faster than they could be read, twice.
            for words in (["ls", "--json"], ["verify"], ["verify", "--all"], ["export", "-o", self.root / f"{i}.st"]):
                done = subprocess.run([PAWL, "ckpt", words[0], folder, *words[1:]], capture_output=True, timeout=TIMEOUT)
                self.assertIn(done.returncode, (OK, BUSY), f"{words}: {done.stdout.decode()}{done.stderr.decode()}")
                if words[0] == "ls":
                    found = json.loads(done.stdout)
                    self.assertEqual(found["problems"], [])
                    steps.add(found["current"])
                if words[0] == "export" and done.returncode == OK:
                    tensors, metadata = read_safetensors(self.root / f"{i}.st")
                    self.check_exported(tensors, int(metadata["pawl.step"]))
        self.assertGreater(len(steps), 1)
        writer.communicate(timeout=TIMEOUT)

    # ---- marks ----

    def test_marks_of_a_run_decide_which_step_is_current(self):
        folder = self.make(1, 2, 3)
        (folder / "RUN").write_text("pawl run 1\nrun " + "41" * 16 + "\n")
        for name in ("bad/3-1", "bad/2-9", "bad/02-1", "bad/x", "scratch/7"):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).touch()
        for path in (folder, folder / "store"):
            found = self.json("ls", path)
            self.assertEqual([(s["step"], s["bad"], s["current"]) for s in found["steps"]],
                             [(3, True, False), (2, False, True), (1, False, False)])
        self.assertIn("bad/", self.error(USAGE, "rollback", folder, 3, "--yes"))
        self.make(1, start="8:3")  # of a start after the one that began anew
        (folder / "scratch" / "8").touch()
        found = self.json("ls", folder)
        self.assertEqual([(s["step"], s["incarnation"]) for s in found["steps"] if s["current"]], [(1, 8)])
        self.assertIn("scratch/", self.error(USAGE, "rollback", folder, 2, "--yes"))
        self.pawl("gc", folder, "--keep", 1)
        self.assertEqual([(s["step"], s["incarnation"]) for s in self.json("ls", folder)["steps"] if s["current"]], [(1, 8)])

    # ---- gc ----

    def test_gc_frees_what_nobody_names(self):
        folder = self.make(1, 2, 3)
        store = folder / "store" / "rank-0001"
        (store / ".new-STORE").write_text("left over")
        (store / ".probe-123").write_text("left over")
        (store / ".keep").touch()
        (store / "slot-000123.safetensors").write_bytes(b"x" * 5000)
        self.pawl("rollback", folder, 2, "--yes")
        planned = self.json("gc", folder, "--dry-run")
        self.assertTrue((store / "slot-000123.safetensors").exists())
        done = self.json("gc", folder)
        self.assertEqual(dict(planned, dry_run=False), done)
        kinds = sorted((c["kind"], c["file"]) for c in done["changes"] if c["store"].endswith("rank-0001"))
        self.assertIn(("slot", "slot-000123.safetensors"), kinds)
        self.assertIn(("temporary", ".new-STORE"), kinds)
        self.assertIn(("temporary", ".probe-123"), kinds)
        self.assertEqual(done["bytes"], sum(c["bytes"] for c in done["changes"]))
        for c in done["changes"]:
            self.assertFalse((pathlib.Path(c["store"]) / c["file"]).exists())
        self.assertTrue((store / ".keep").exists())
        self.assertEqual(self.json("gc", folder)["changes"], [])
        self.assertEqual([s["step"] for s in self.json("ls", folder)["steps"]], [2, 1])
        self.make(3, start="2:2")
        self.pawl("verify", folder, "--all")

    def test_gc_removes_what_a_replaced_log_had_left_over(self):
        folder = self.make(1, 2)
        store = folder / "store" / "rank-0000"
        for name in (".new-commit-000001.log", ".new-commit-000002.log"):
            (store / name).write_text("left over")
        done = self.json("gc", folder)
        self.assertEqual([c["file"] for c in done["changes"]], [".new-commit-000001.log", ".new-commit-000002.log"])
        self.assertEqual([n for n in os.listdir(store) if n.startswith(".new")], [])
        self.pawl("verify", folder, "--all")

    @unittest.skipUnless(os.geteuid() == 0, "needs to mount a small disk")
    def test_gc_frees_a_disk_that_is_full(self):
        disk = self.root / "disk"
        disk.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", disk], capture_output=True).returncode != 0:
            self.skipTest("no disk can be mounted")
        self.addCleanup(subprocess.run, ["umount", disk], check=True)
        folder = self.make(1, 2, 3, name="disk/run")
        self.pawl("rollback", folder, 2, "--yes")
        planned = self.json("gc", folder, "-n")
        self.assertGreater(planned["bytes"], 0)
        with open(disk / "filler", "wb", buffering=0) as f:
            try:
                while True:
                    f.write(bytes(4096))
            except OSError:
                pass
        self.assertEqual(shutil.disk_usage(disk).free, 0)
        self.assertEqual(self.json("gc", folder)["changes"], planned["changes"])
        self.assertGreater(shutil.disk_usage(disk).free, 0)
        for c in planned["changes"]:
            self.assertFalse((pathlib.Path(c["store"]) / c["file"]).exists())
        self.assertEqual(self.json("ls", folder)["current"], 2)
        self.pawl("verify", folder, "--all")

    # ---- the rest ----

    def test_what_no_resume_takes_is_not_valid(self):
        folder = self.make(1, 2)
        run, started = "pawl run 1\nrun " + "41" * 16 + "\n", "pawl start 1\nranks 2\ntoken x\n"
        for name in ("starts", "bad"):
            (folder / name).mkdir()
        (folder / "SAVED").write_text("pawl saved 1\n")
        (folder / "RUN").write_text(run)
        (folder / "starts" / "1").write_text(started)
        (folder / "starts" / "1.resume").write_text("pawl resume 1\nstep 0\nincarnation 0\n")
        (folder / "starts" / "x").write_text("of no meaning")

        def check(code, *named):
            for path in (folder, folder / "store"):
                for words in (["ls", path], ["verify", path], ["verify", path, "--all"], ["info", path]):
                    line = self.pawl(*words, code=code).stderr.decode()
                    for name in named:
                        self.assertIn(name, line)

        check(OK)
        for path, good in ((folder / "RUN", run), (folder / "starts" / "1", started),
                           (folder / "starts" / "1.resume", "pawl resume 1\nstep 0\nincarnation 0\n")):
            for damaged in ("", good[:-1], good + "x", good.replace("pawl", "pawk"), good * 1000):
                path.write_text(damaged)
                check(DAMAGED, path.name)
            path.write_text(good)
        (folder / "RUN").unlink()
        check(DAMAGED, "RUN")
        (folder / "RUN").write_text(run.replace("4141", "4242"))
        check(FOREIGN, "RUN", "4242", "4141")
        (folder / "RUN").write_text(run)
        (folder / "bad" / "2-1").touch()
        check(OK)
        (folder / "bad" / "1-1").touch()
        check(DAMAGED, "bad/")
        self.assertFalse(self.json("verify", folder, code=DAMAGED)["valid"])
        self.pawl("verify", folder, 1)
        (folder / "bad" / "1-1").unlink()  # the way out, when the bytes are good
        check(OK)

    def test_an_identity_of_absurd_size_is_told_and_not_read(self):
        folder = self.make(1)
        with open(folder / "store" / "rank-0000" / "STORE", "r+b") as f:
            f.truncate(1 << 40)
        line = self.error(DAMAGED, "ls", folder)
        self.assertIn("1099511627776", line)
        self.assertIn("4096", line)

    def test_a_result_that_nobody_can_get_is_an_error(self):
        folder = self.make(1)
        for words in (["ls", folder], ["ls", folder, "--json"], ["verify", folder], ["info", folder], ["--help"]):
            done = subprocess.run(["sh", "-c", 'exec "$0" ckpt "$@" >&-', PAWL, *words], capture_output=True, timeout=TIMEOUT)
            self.assertEqual(done.returncode, IO, (words, done))
            self.assertIn(b"pawl: error: writing", done.stderr)
        self.pawl("verify", folder, "--all")

    def test_progress_is_shown_when_asked_for_and_not_into_files(self):
        folder = self.make(1)
        self.assertEqual(self.pawl("verify", folder).stderr, b"")
        self.assertIn("verify 100 %", self.pawl("verify", folder, "--progress").stderr.decode())

    def test_a_result_that_cannot_be_printed_is_an_error(self):
        folder = self.make(1)
        for words in (["ls", folder], ["ls", folder, "--json"], ["verify", folder], ["info", folder], ["gc", folder, "-n"]):
            with open("/dev/full", "w") as full:
                done = subprocess.run([PAWL, "ckpt", *words], stdout=full, stderr=subprocess.PIPE, timeout=TIMEOUT)
            self.assertEqual(done.returncode, IO)
            self.assertIn(b"writing to the standard output", done.stderr)

    def test_random_damage_is_found_or_meaningless(self):
        """Whatever byte flips, an export of the newest step that verifies is bit for bit that step."""
        folder = self.make(1, 2, 3)
        files = [p for p in sorted((folder / "store").rglob("*")) if p.is_file() and p.name not in (".lock",)]
        rng = random.Random(4)
        for i in range(30):
            path = rng.choice(files)
            at = rng.randrange(path.stat().st_size)
            self.flip(path, at)
            target = self.root / f"{i}.st"
            code = self.pawl_code("export", folder, "-o", target)
            self.assertIn(code, (OK, DAMAGED, FOREIGN), (path, at))
            if code == OK:
                tensors, metadata = read_safetensors(target)
                self.check_exported(tensors, int(metadata["pawl.step"]))
            self.flip(path, at)
        self.pawl("verify", folder, "--all")


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    unittest.main()
