"""Ranks that agree: on what they were given, when to save, when to stop, what to resume; and those that do
not."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import time
import unittest
from typing import Any
from unittest import mock

import ranks  # first: it skips where there is no torch

import torch
import torch.distributed as td

from pawl import _link, _restore, _store, errors
from pawl.checkpointer import Checkpointer

_link.LOST_S = 4.0  # a killed rank is missed sooner


def build(width: int = 300) -> tuple[Any, Any]:
    torch.manual_seed(1)
    model = torch.nn.Linear(width, 7)
    return model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)


def train(model: Any, optimizer: Any, pause_s: float = 0.0) -> None:
    """The same step on all ranks, which do not wait for each other."""
    optimizer.zero_grad()
    for parameter in model.parameters():
        parameter.grad = parameter.detach().cos()
    optimizer.step()
    time.sleep(pause_s)


def opened(folder: str, **options: Any) -> tuple[Any, Any, Checkpointer]:
    model, optimizer = build()
    return model, optimizer, Checkpointer(f"{folder}/run", model=model, optimizer=optimizer,
                                          **{"every": 1000, **options})


def must_raise(kind: type[BaseException], text: str, call: Any, within_s: float = 30.0) -> None:
    began = time.monotonic()
    try:
        call()
    except kind as e:
        assert text in str(e), f"wanted {text!r} in: {e}"
        assert time.monotonic() - began < within_s, f"{time.monotonic() - began:.1f} s until: {e}"
        return
    raise AssertionError(f"no {kind.__name__} with {text!r}")


# ---- When to save ----


def rank_auto(rank: int, world: int, folder: str, pauses: list[float]) -> None:
    model, optimizer, ckpt = opened(folder, every="auto", overhead=0.5, on_full="wait")
    ckpt.resume()
    saved = []
    for step in range(1, 61):
        train(model, optimizer, pauses[rank])
        if ckpt.step():
            saved.append(step)
    ckpt.close()
    ranks.put(folder, f"saved-{rank}", repr(saved))


def rank_counts_differently(rank: int, world: int, folder: str) -> None:
    model, optimizer, ckpt = opened(folder, every="auto")
    train(model, optimizer)
    if rank == 1:
        must_raise(errors.Argument, "rank 1 saves step 5 when rank 0 saves step 1", lambda: ckpt.step(5))
        ckpt.close()
    else:
        must_raise(errors.PeerLost, "rank 1 of 2 to have begun the save of step 1: it has closed",
                   lambda: ckpt.step(1))


# ---- When to stop ----


def rank_stops(rank: int, world: int, folder: str, pauses: list[float], together: int) -> None:
    model, optimizer, ckpt = opened(folder, every=3, grace=20.0)
    ckpt.resume()
    try:
        for step in range(1, 100000):
            train(model, optimizer, pauses[rank])
            if together and step % together == 0:
                td.barrier()
            if step == 7:
                ranks.put(folder, f"runs-{rank}", "")
            ckpt.step()
    except errors.Preempted as e:
        ranks.put(folder, f"stopped-{rank}", f"{step} {e.saved}")
        ckpt._close(5.0, 5.0)
        raise


def rank_told_at_the_end(rank: int, world: int, folder: str) -> None:
    model, optimizer, ckpt = opened(folder)
    for step in range(1, 6):
        train(model, optimizer, 0.3 * rank)
        if rank == 2 and step == 5:
            os.kill(os.getpid(), signal.SIGTERM)
        ckpt.step()
    ckpt.close()


def rank_zero_first(rank: int, world: int, folder: str) -> None:
    model, optimizer, ckpt = opened(folder)
    for _ in range(5):
        train(model, optimizer, 0.4 * rank)
        ckpt.step()
    ckpt.close()


# ---- save() ----


def rank_saves_alone(rank: int, world: int, folder: str) -> None:
    model, optimizer, ckpt = opened(folder)
    train(model, optimizer)
    ckpt.step()
    if rank == 1:
        must_raise(errors.Argument, "called on rank 1, and for 4 s not on ranks 0, 2 of 3", ckpt.save, 5.0)
    td.barrier()
    if rank != 1:
        must_raise(errors.Argument, "not on ranks 0, 2 of 3", ckpt.save, 5.0)  # rank 1 waits no more
    td.barrier()
    assert ckpt.save(wait=True)
    assert not ckpt.save()
    train(model, optimizer)
    ckpt.step()
    assert ckpt.save(wait=True)
    assert ckpt.status()["durable_step"] == 2
    ckpt.close()


def rank_dies_in_save(rank: int, world: int, folder: str, victim: int) -> None:
    model, optimizer, ckpt = opened(folder)
    train(model, optimizer)
    ckpt.step()
    ckpt.save(wait=True)
    ranks.put(folder, f"good-{rank}", ranks.digest(model, optimizer))
    train(model, optimizer)
    ckpt.step()
    td.barrier()
    if rank == victim:
        ckpt._group.agree_save(2)  # says that it saves, and is gone
        os.kill(os.getpid(), signal.SIGKILL)
    must_raise(errors.PeerLost, f"rank {victim}" if victim else "lost rank 0", lambda: ckpt.save(wait=True),
               25.0)
    if victim:  # without the store nothing was begun
        must_raise(errors.Error, "step 2", lambda: ckpt.close(1.0))
    with contextlib.suppress(errors.Error):
        ckpt._close(1.0, 0.0)  # else the last reference's end waits for the grace


def rank_ends_unseen(rank: int, world: int, folder: str, victim: int) -> None:
    """No collective tells of it, and no sign of life is missed in so short a time."""
    with mock.patch.object(_link, "LOST_S", 60.0):
        model, optimizer, ckpt = opened(folder, every=1)
        for _ in range(3):
            ckpt.step()
        ranks.put(folder, f"three-{rank}", "")
        if rank == victim:
            ranks.await_file(folder, f"three-{1 - rank}")
            os.kill(os.getpid(), signal.SIGKILL)
        must_raise(errors.PeerLost, "its process has ended", lambda: [ckpt.step() for _ in range(3)], 20.0)
        if victim:
            text = "step 5 waits for rank 1 of 2: its process has ended"
            must_raise(errors.PeerLost, text, ckpt.close, 10.0)
            return
        try:
            ckpt.save()
        except errors.PeerLost as e:  # and none of the store's words, frames and all, before it
            assert str(e) == "rank 1 has lost rank 0: its process has ended" and not e.__context__, e
        else:
            raise AssertionError("no PeerLost")
        began = time.monotonic()
        with contextlib.suppress(errors.PeerLost):  # where step 4 was begun before it was known
            ckpt.close()
        assert time.monotonic() - began < 10.0


def rank_resumes(rank: int, world: int, folder: str, step: int, then: int) -> None:
    model, optimizer, ckpt = opened(folder)
    assert ckpt.resume() == step
    assert ranks.digest(model, optimizer) == ranks.get(folder, "good-0")
    for _ in range(then):
        train(model, optimizer)
        ckpt.step()
    if then:
        ckpt.save()
    ckpt.close()
    ranks.put(folder, f"good-{rank}", ranks.digest(model, optimizer))


# ---- resume() ----


def rank_dies_in_resume(rank: int, world: int, folder: str, victim: int) -> None:
    model, optimizer, ckpt = opened(folder)
    if rank == victim:
        mock.patch.object(_restore.Restore, "_plan", lambda *_: os.kill(os.getpid(), signal.SIGKILL)).start()
    before = ranks.digest(model, optimizer)
    must_raise(errors.PeerLost, f"rank {victim}", ckpt.resume, 25.0)
    assert ranks.digest(model, optimizer) == before, "something was loaded"
    ckpt._close(1.0, 0.0)


def rank_fails_in_resume(rank: int, world: int, folder: str, victim: int) -> None:
    model, optimizer, ckpt = opened(folder)

    def fails(*_: Any) -> Any:
        raise errors.StateMismatch("row 7 differs")

    if rank == victim:
        mock.patch.object(_restore.Restore, "_plan", fails).start()
    before = ranks.digest(model, optimizer)
    if rank == victim:
        must_raise(errors.StateMismatch, "row 7", ckpt.resume)
    else:
        must_raise(errors.PeerLost, f"rank {victim}: StateMismatch: row 7 differs", ckpt.resume)
    assert ranks.digest(model, optimizer) == before, "something was loaded"
    ckpt._close(1.0, 0.0)


# ---- Rank 0, and who only seems to be gone ----


def rank_zero_stops(rank: int, world: int, folder: str) -> None:
    """Its process lives, and answers nobody."""
    _, _, ckpt = opened(folder)
    ranks.put(folder, f"pid-{rank}", str(os.getpid()))
    ckpt.step()
    td.barrier()
    if rank == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
    must_raise(errors.PeerLost, "lost rank 0", ckpt.save)
    ckpt._close(1.0, 0.0)
    os.kill(int(ranks.get(folder, "pid-0")), signal.SIGKILL)


def rank_without_store(rank: int, world: int, folder: str, why: str) -> None:
    """why: rank 0 dies when it has said where its store is; or what is there is another program's."""
    serve = _link.Link._serve

    def strange(link: _link.Link) -> Any:
        told = serve(link)
        link._server.set("start", "that of others")
        return told

    if rank == 0 and why == "gone":
        mock.patch.object(_link.Link, "_connect", lambda *_: os.kill(os.getpid(), signal.SIGKILL)).start()
    elif rank == 0:
        mock.patch.object(_link.Link, "_serve", strange).start()
    elif why == "gone":
        mock.patch.object(_store, "refusal", late_refusal).start()
    if rank == 0:
        must_raise(errors.PeerLost, "rank 1 of 2", lambda: opened(folder))
    else:
        text = "Connection refused" if why == "gone" else "another program answers"
        must_raise(errors.PeerLost, text, lambda: opened(folder))


def late_refusal(host: str, port: int, patience_s: float, refusal: Any = _store.refusal) -> str:
    """Once rank 0 is gone: before that its port answers."""
    end = time.monotonic() + ranks.LIMIT_S
    while not (told := refusal(host, port, patience_s)) and time.monotonic() < end:
        time.sleep(0.01)
    return str(told)


def rank_elsewhere(rank: int, world: int, folder: str) -> None:
    """Rank 1 is on a machine that has another disk under the same name."""
    mock.patch("socket.gethostname", lambda: f"machine-{rank}").start()
    mock.patch("pawl._options.path_of", lambda path: f"{path}-{rank}").start()
    must_raise(errors.Foreign, "all ranks save to one folder that all reach", lambda: opened(folder))


# ---- At the start ----


def rank_differs(rank: int, world: int, folder: str, how: str) -> None:
    model, optimizer = build(299 if how == "shape" and rank == 2 else 300)
    path, options = f"{folder}/run", {"every": 10}
    if rank == 2:
        if how == "folder":
            path = f"{folder}/other"
        if how == "every":
            options = {"every": 11}
        if how == "bad":
            options = {"every": 0}
        if how == "object":
            options["values"] = {"epoch": 1}  # type: ignore[assignment]
    say = {"folder": "rank 2 on the same machine", "every": "every is 11", "object": "values is a object",
           "shape": "weight: float32 (7, 299)", "bad": "every is 0"}
    must_raise(errors.Argument, say[how], lambda: Checkpointer(path, model=model, optimizer=optimizer,
                                                               **options))  # type: ignore[arg-type]
    td.barrier()
    assert not os.path.exists(f"{folder}/run") and not os.path.exists(f"{folder}/other"), "something was made"


def rank_state_differs(rank: int, world: int, folder: str) -> None:
    model, optimizer, ckpt = opened(folder)
    train(model, optimizer)
    if rank == 1:
        optimizer.state[model.bias].clear()
    ckpt.step()
    must_raise(errors.Unsupported, "bias/momentum_buffer", ckpt.save)
    td.barrier()
    ckpt.close()


def rank_first_group(rank: int, world: int, folder: str) -> None:
    model, optimizer, ckpt = opened(folder)
    ranks.put(folder, f"name-{rank}", ckpt._group.start)
    for step in (1, 2):
        train(model, optimizer)
        ckpt.step()
        assert ckpt.save(wait=True)
        ranks.put(folder, f"first-{rank}-{step}", "")
        ranks.await_file(folder, f"go-{step}")
    assert ckpt.status()["durable_step"] == 2
    ckpt.close()


def rank_second_group(rank: int, world: int, folder: str) -> None:
    model, optimizer = build()
    try:
        Checkpointer(f"{folder}/run", model=model, optimizer=optimizer)
    except errors.Busy as e:
        assert rank == 0 or "rank 0 of 3 could not open" in str(e), e
        return
    raise AssertionError("two groups write to one folder")


class GroupTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def told(self, name: str, world: int) -> str:
        told = {ranks.get(self.folder, f"{name}-{rank}") for rank in range(world)}
        self.assertEqual(len(told), 1, told)
        return told.pop()

    def stop(self, pauses: list[float], who: list[int], together: int = 0) -> None:
        world = len(pauses)
        group = ranks.Group(rank_stops, world, self.folder, pauses, together)
        try:
            for rank in range(world):
                ranks.await_file(self.folder, f"runs-{rank}")
            for rank in who:
                group.kill(rank, signal.SIGTERM)
        finally:
            codes = group.end()
        self.assertEqual(codes, [143] * world)
        step, saved = self.told("stopped", world).split()
        self.assertEqual(step, saved)
        ranks.run(rank_reads, 1, self.folder, int(step))

    def test_ranks_of_all_speeds_save_the_same_steps(self) -> None:
        ranks.run(rank_auto, 3, self.folder, [0.002, 0.0, 0.02])
        saved = self.told("saved", 3)
        self.assertGreaterEqual(saved.count(","), 1, saved)

    def test_ranks_that_count_different_steps_are_told(self) -> None:
        ranks.run(rank_counts_differently, 2, self.folder)

    def test_all_stop_at_one_step_whichever_was_told(self) -> None:
        for who in ([0], [2], [0, 1, 2]):
            with self.subTest(who=who):
                self.setUp()
                self.stop([0.003, 0.001, 0.01], who)

    def test_ranks_that_meet_every_fifth_step_stop_together(self) -> None:
        self.stop([0.0, 0.02, 0.0], [1], together=5)

    def test_told_to_stop_when_others_have_ended(self) -> None:
        ranks.run(rank_told_at_the_end, 3, self.folder)

    def test_rank_0_serves_until_the_slowest_has_ended(self) -> None:
        ranks.run(rank_zero_first, 3, self.folder)

    def test_a_save_on_one_rank_is_an_error_on_all_and_the_next_one_is_not(self) -> None:
        ranks.run(rank_saves_alone, 3, self.folder)

    def test_a_rank_killed_in_save_is_missed_and_the_step_before_is_whole(self) -> None:
        for victim in (2, 0):
            with self.subTest(victim=victim):
                self.setUp()
                codes = [ranks.KILLED if r == victim else 0 for r in range(3)]
                ranks.run(rank_dies_in_save, 3, self.folder, victim, wanted=codes)
                ranks.run(rank_resumes, 3, self.folder, 1, 0)

    def test_a_rank_whose_process_ended_is_missed_at_once_and_not_waited_for_again(self) -> None:
        for victim in (1, 0):
            with self.subTest(victim=victim):
                self.setUp()
                codes = [ranks.KILLED if r == victim else 0 for r in range(2)]
                ranks.run(rank_ends_unseen, 2, self.folder, victim, wanted=codes)

    def test_a_rank_that_fails_in_resume_stops_all_and_nothing_is_loaded(self) -> None:
        ranks.put(self.folder, "good-0", "")
        ranks.run(rank_begins, 3, self.folder)
        for victim in (1, 0):
            ranks.run(rank_fails_in_resume, 3, self.folder, victim)
        codes = [0, 0, ranks.KILLED]
        ranks.run(rank_dies_in_resume, 3, self.folder, 2, wanted=codes)
        ranks.run(rank_resumes, 3, self.folder, 1, 1)

    def test_a_rank_0_that_is_stopped_is_missed_as_one_that_is_gone(self) -> None:
        ranks.run(rank_zero_stops, 2, self.folder, wanted=[ranks.KILLED, 0])

    def test_without_the_store_of_rank_0_the_others_say_so_at_once(self) -> None:
        ranks.run(rank_without_store, 2, self.folder, "gone", wanted=[ranks.KILLED, 0])
        ranks.run(rank_without_store, 2, self.folder, "strange")

    def test_folders_that_only_have_one_name_are_refused(self) -> None:
        ranks.run(rank_elsewhere, 2, self.folder)

    def test_silence_counts_while_somebody_listens(self) -> None:
        """As when a machine is put to sleep, and all its processes with it."""
        link: Any = _link.Link.__new__(_link.Link)
        link.rank, link._seen, link._gone = 1, {}, {}
        link.has, link.get = lambda key: key == "beat/0", lambda key: "7 1"
        half = _link.LOST_S / 2
        for now, gone in ((0, False), (half, False), (half + 100, False), (2 * half + 100, False),
                          (3 * half + 100, True)):
            with mock.patch("pawl._link.time.monotonic", lambda now=now: 1000.0 + now):
                self.assertEqual(gone, bool(link.gone(0)), now)

    def test_other_numbers_of_ranks_take_up_the_run_one_after_another(self) -> None:
        ranks.run(rank_begins, 3, self.folder)
        for step, world in enumerate((2, 4, 1, 3, 3), 1):
            ranks.run(rank_resumes, world, self.folder, step, 1)

    def test_ranks_that_were_given_different_things_are_told_before_anything_is_made(self) -> None:
        for how in ("folder", "every", "object", "shape", "bad"):
            with self.subTest(how=how):
                ranks.run(rank_differs, 3, self.folder, how)

    def test_optimizer_state_on_some_ranks_only_is_refused_by_name(self) -> None:
        ranks.run(rank_state_differs, 3, self.folder)

    def test_a_second_group_on_the_folder_is_refused_and_the_first_goes_on(self) -> None:
        first = ranks.Group(rank_first_group, 2, self.folder)
        try:
            for rank in range(2):
                ranks.await_file(self.folder, f"first-{rank}-1")
            ranks.run(rank_second_group, 3, self.folder)
            for step in (1, 2):
                ranks.put(self.folder, f"go-{step}", "")
        finally:
            codes = first.end()
        self.assertEqual(codes, [0, 0])
        name = self.told("name", 2)
        ranks.run(rank_first_group_again, 2, self.folder, name)


def rank_first_group_again(rank: int, world: int, folder: str, name: str) -> None:
    _, _, ckpt = opened(folder)
    assert ckpt._group.start != name, "two starts have one name"
    assert ckpt.resume() == 2
    ckpt.close()


def rank_begins(rank: int, world: int, folder: str) -> None:
    model, optimizer, ckpt = opened(folder)
    train(model, optimizer)
    ckpt.step()
    ckpt.save()
    ckpt.close()
    ranks.put(folder, f"good-{rank}", ranks.digest(model, optimizer))


def rank_reads(rank: int, world: int, folder: str, step: int) -> None:
    """What was saved is what so many steps make."""
    model, optimizer, ckpt = opened(folder)
    assert ckpt.resume() == step
    text = ranks.digest(model, optimizer)
    again, its = build()
    for _ in range(step):
        train(again, its)
    assert ranks.digest(again, its) == text
    ckpt.close()


if __name__ == "__main__":
    ranks.warm()
    unittest.main()
