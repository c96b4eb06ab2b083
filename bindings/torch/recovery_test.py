#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Ranks that are lost: by SIGKILL, by exit, by an exception of their own. The
others go on or end by themselves; no process stays."""

import datetime
import gc
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # NumPy's threads aren't ours.
import testing  # noqa: E402 (it turns to the Python of .venv)
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.distributed.distributed_c10d as c10d  # noqa: E402
import trnccl  # noqa: E402

# After it a process counts as one that hangs.
_PATIENCE_S = 60
_KILLED = -signal.SIGKILL
# This file, as a program that torchrun starts or that is a rank, and its
# processes' mark.
_TORCHRUN = "--under-torchrun"
_RANK = "--rank"
_MARK = "RECOVERY_TEST_OF"
_STEPS = 8
_SOON = datetime.timedelta(seconds=1)


def check_sum(group, ranks, what):
    """An all-reduce over the group's members gives the sum of theirs."""
    ours = testing.values(_rank, (5000,))
    dist.all_reduce(ours, group=group)
    testing.check_equal(ours, testing.total(ranks, (5000,)), what)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def notice(group, lost):
    """Calls of the group fail, soon, and name the rank; returns the error."""
    began = time.monotonic()
    try:
        while True:
            dist.all_reduce(torch.ones(5000), group=group)
    except dist.DistBackendError as error:
        assert f"origin: rank {lost} " in str(error), error
        assert time.monotonic() - began < _PATIENCE_S / 2, error
        return error


def shrinks(rank, size, victim):
    """The world, to those who are left; whoever is lost."""
    left = [r for r in range(size) if r != victim]
    dist.barrier()
    if rank == victim:
        die()
    lost = trnccl.lost_ranks(notice(None, victim))
    assert lost == [victim], lost
    dist.shrink_group(lost)
    assert dist.get_world_size() == size - 1
    assert dist.get_rank() == left.index(rank)
    check_sum(None, left, "the others")
    objects = [None] * len(left)
    dist.all_gather_object(objects, rank)
    assert objects == left
    check_sum(dist.new_group(), left, "a new group of theirs")


def misses_a_member(rank, size, victim):
    """Who waits for others to make a group learns that one is lost."""
    dist.barrier()
    if rank == victim:
        time.sleep(1)
        die()
    began = time.monotonic()
    error = testing.check_refused(
        dist.DistBackendError, dist.new_group,
        "a member that is gone", f"origin: rank {victim}")
    assert time.monotonic() - began < 4, error
    left = [r for r in range(size) if r != victim]
    # Those who live make groups without it, whether the world is shrunk or not.
    check_sum(dist.new_group(left), left, "a group of the others")
    dist.shrink_group(trnccl.lost_ranks(notice(None, victim)))
    check_sum(dist.new_group(), left, "a group after shrinking")


def misses_a_member_late(rank, size):
    """Who comes when the others have given up, and ended, blames the lost."""
    del size
    dist.barrier()
    if rank == 1:
        time.sleep(1)
        die()
    if rank == 2:
        time.sleep(4)
    testing.check_refused(dist.DistBackendError, dist.new_group,
                          "a member that is gone", "origin: rank 1")


def misses_one_that_left(rank, size):
    """Who has destroyed all its groups makes no more."""
    del size
    dist.barrier()
    if rank == 1:
        dist.destroy_process_group()
        time.sleep(8)
        return
    began = time.monotonic()
    error = testing.check_refused(
        dist.DistBackendError, dist.new_group, "a member that is gone",
        "has destroyed its communicator", "origin: rank 1")
    assert time.monotonic() - began < 6, error


def shrinks_twice(rank, size):
    left = list(range(size))
    for victim in (1, 2):
        dist.barrier()
        if rank == victim:
            die()
        dist.shrink_group(
            trnccl.lost_ranks(notice(None, left.index(victim))))
        left.remove(victim)
        check_sum(None, left, f"without {victim}")


def shrinks_by_two(rank, size):
    """Lost at once: each of the others may have been told of either."""
    del size
    dist.barrier()
    if rank in (1, 4):
        die()
    try:
        while True:
            dist.all_reduce(torch.ones(5000))
    except dist.DistBackendError as error:
        lost = trnccl.lost_ranks(error, patience=_SOON)
    assert lost == [1, 4], lost
    dist.shrink_group(lost)
    check_sum(None, [0, 2, 3], "the others")


def misses_nobody(rank, size):
    """A call that failed for another reason has lost none, nor has a group of
    the same name that the store knew before."""
    store = c10d._get_default_store()
    error = dist.DistBackendError(f"{rank} of its own")
    for absent in (None, 2, None):
        if rank != absent:
            lost = trnccl.lost_ranks(error, patience=_SOON)
            assert lost == [r for r in range(size) if r == absent], lost
        dist.barrier()
        dist.destroy_process_group()
        dist.init_process_group("neuron", store=store, rank=rank,
                                world_size=size, timeout=testing.TIMEOUT)


def keeps_other_groups(rank, size):
    """A group that the victim isn't in knows nothing of it."""
    del size
    trio = dist.new_group([0, 1, 3])
    pair = dist.new_group([0, 3])
    alone = dist.new_group([2])
    dist.barrier()
    if rank == 1:
        die()
    if rank == 2:
        check_sum(alone, [2], "alone")
        notice(None, 1)
        check_sum(alone, [2], "alone, still")
        return
    notice(trio, 1)
    check_sum(pair, [0, 3], "beside a group that failed")
    small = dist.shrink_group([1], group=trio)
    check_sum(small, [0, 3], "shrunken")
    check_sum(pair, [0, 3], "beside a group that shrank")
    notice(None, 1)
    check_sum(small, [0, 3], "beside a world that failed")


def shrinks_amid_a_call(rank, size):
    """With SHRINK_ABORT, calls under way end at once."""
    del size
    pair = dist.new_group([0, 1])
    if rank == 0:
        never = dist.irecv(torch.ones(3), src=1, group=pair)
        small = dist.shrink_group([1], pair, c10d.SHRINK_ABORT)
        assert small.size() == 1
        testing.check_refused(dist.DistBackendError, never.wait, "abort")
        check_sum(small, [0], "alone")
    dist.barrier()


def takes_in_newcomers(rank, size):
    """Two work, a third joins, one of the old dies, and another comes."""
    del size
    store, state = _store(), [{"step": 7}]
    if rank >= 2:
        if rank == 3:  # It comes when the group is of two again.
            store.wait(["lost"])
        trnccl.join_group(store)
        state = [None]
    else:
        check_sum(None, [0, 1], "before")
        trnccl.grow_group(store)
        assert dist.get_rank() == rank
    if rank < 3:
        assert dist.get_world_size() == 3
        assert dist.get_backend() == "neuron"
        check_sum(None, [0, 1, 2], "with a newcomer")
        pair = dist.new_group([1, 2])
        if rank > 0:
            check_sum(pair, [1, 2], "a new group")
        dist.broadcast_object_list(state, src=0)
        assert state == [{"step": 7}], state
        dist.barrier()
        if rank == 1:
            die()
        lost = trnccl.lost_ranks(notice(None, 1))
        dist.shrink_group(lost)
        store.set("lost", "1")
        trnccl.grow_group(store)
    assert dist.get_rank() == {0: 0, 2: 1, 3: 2}[rank]
    check_sum(None, [0, 2, 3], "after a loss")
    check_timeout()


def check_timeout():
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert backend.options._timeout == testing.TIMEOUT


def misses_newcomers(rank, size):
    """Who comes in vain is told, and so is who waits in vain."""
    del size
    store = _store()
    if rank == 1:
        testing.check_refused(
            dist.DistBackendError,
            lambda: trnccl.join_group(store, _SOON), "no group")
        store.set("gave up", "1")
    else:
        store.wait(["gave up"])
        testing.check_refused(
            dist.DistBackendError,
            lambda: trnccl.grow_group(store, patience=_SOON), "0 of 1")
        check_sum(None, [0], "as it was")


def is_missed_by_a_barrier(rank, size):
    """Ranks that died or never come, by name; not those that wait."""
    del size
    store = _store()
    dist.barrier()
    if rank == 1:
        die()
    if rank == 2:
        store.wait(["over"])
        return
    began = time.monotonic()

    def barrier(timeout):
        testing.check_refused(
            dist.DistBackendError,
            lambda: dist.monitored_barrier(timeout=timeout,
                                           wait_all_ranks=True),
            "Ranks 1, 2 failed to pass", "the group has failed",
            "origin: rank 1 ", "; rank 2 (host ",
            "its last call: barrier #1, over")

    barrier(testing.TIMEOUT)
    assert time.monotonic() - began < _PATIENCE_S / 2
    notice(None, 1)
    barrier(_SOON)
    store.add("barriers", 1)
    if rank == 0:
        while store.add("barriers", 0) < 2:
            pass
        store.set("over", "1")


def is_missed_by_a_barrier_as_rank_0(rank, size):
    del size
    store = _store()
    dist.barrier()
    if rank == 0:
        store.wait(["over"])
        return
    testing.check_refused(
        dist.DistBackendError,
        lambda: dist.monitored_barrier(timeout=_SOON),
        "no answer within", "rank 0 (host ", "its last call: barrier #1, over")
    store.set("over", "1")


def is_missed_by_a_barrier_at_once(rank, size):
    del size
    dist.barrier()
    if rank == 1:
        die()
    began = time.monotonic()
    testing.check_refused(
        dist.DistBackendError,
        lambda: dist.monitored_barrier(timeout=testing.TIMEOUT),
        "Rank 1 failed to pass", "origin: rank 1 ")
    # Less than stragglers get that live.
    assert time.monotonic() - began < 1.9


def exits(rank, size):
    """By sys.exit(), with groups left as they are."""
    del size
    dist.new_group()
    dist.barrier()
    if rank == 1:
        sys.exit(7)
    notice(None, 1)


def raises(rank, size):
    del size
    dist.new_group()
    dist.barrier()
    if rank == 1:
        sys.stderr = open(os.devnull, "w", encoding="ascii")
        raise KeyError("one rank's own")
    notice(None, 1)


def runs_another_program(rank, size):
    """By exec, which ends a rank without a word."""
    del size
    dist.barrier()
    if rank == 1:
        os.execv("/bin/true", ["/bin/true"])
    notice(None, 1)


def ends_groups_out_of_order(rank, size):
    """Each rank in an order of its own, calls of others under way."""
    groups = [dist.new_group() for _ in range(4)]
    works = [dist.all_reduce(torch.ones(5000), group=group, async_op=True)
             for group in groups]
    for work in works:
        work.wait()
    for i in range(len(groups)):
        dist.destroy_process_group(groups[(i + rank) % len(groups)])
        check_sum(None, size, "the world, meanwhile")


def leaves(rank, size):
    """As a program that ends amid its work."""
    groups = [dist.new_group() for _ in range(3)]
    check_sum(groups[1], size, "before")
    _kept.append(dist.irecv(torch.ones(3), (rank + 1) % size, groups[0]))


def under_torchrun(folder):
    """Adds up until all steps are made; rank 1 dies amid the first round."""
    # Nobody but itself ends a rank that's told of the loss.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    dist.init_process_group("neuron", timeout=testing.TIMEOUT)
    rank = dist.get_rank()
    first_round = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    saved = folder / "checkpoint.pt"
    state = {"step": 0, "sum": torch.zeros(3)}
    if not first_round:
        state = torch.load(saved)
    begun = state["step"]
    while state["step"] < _STEPS:
        if first_round and rank == 1 and state["step"] == _STEPS // 2:
            die()
        mine = torch.full((3,), float(rank + 1))
        try:
            dist.all_reduce(mine)
        except dist.DistBackendError as error:
            (folder / f"error_{rank}").write_text(str(error))
            raise
        state = {"step": state["step"] + 1, "sum": state["sum"] + mine}
        if rank == 0:
            torch.save(state, folder / "unfinished")
            os.replace(folder / "unfinished", saved)
    (folder / f"done_{rank}").write_text(f"{begun}; {state['sum'].tolist()}")
    dist.destroy_process_group()


def as_rank(name, rank, size, port):
    """A rank that is a program of its own, and destroys no group."""
    begin(int(rank), int(size), int(port))
    globals()[name](int(rank), int(size))


def held():
    """How many this process holds of what groups need."""
    links = []
    for link in pathlib.Path("/proc/self/fd").iterdir():
        try:
            links.append(os.readlink(link))
        except OSError:
            pass  # That which reads the folder.
    maps = pathlib.Path("/proc/self/maps").read_text(encoding="utf-8")
    kinds = ("socket:", "memfd:", "pidfd")
    return {"mappings": maps.count("memfd:trnccl"),
            "threads": len(os.listdir("/proc/self/task")),
            **{kind: sum(kind in link for link in links) for kind in kinds}}


def shared_files():
    return [name for name in os.listdir("/dev/shm") if "trnccl" in name]


def marked_processes(mark):
    """Those whose environment has it, as (pid, command)."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (process / "environ").read_bytes():
                found.append((process.name,
                              (process / "cmdline").read_bytes()))
        except OSError:
            pass  # It has ended.
    return found


_rank = -1
_port = -1
_kept = []


def _store():
    return dist.TCPStore("127.0.0.1", _port, is_master=False)


def begin(rank, size, port):
    """Makes the default group of `size` ranks, if this is one of them."""
    global _rank, _port
    _rank, _port = rank, port
    torch.set_num_threads(1)
    if rank < size:
        dist.init_process_group("neuron", rank=rank, world_size=size,
                                timeout=testing.TIMEOUT, store=_store())


def _run(body, rank, size, port, arguments):
    begin(rank, _MEMBERS.get(body, size), port)
    body(rank, size, *arguments)
    if dist.is_initialized():
        dist.destroy_process_group()
    gc.collect()
    left = held()
    # This, and the one that drives asynchronous calls.
    assert left["threads"] <= 2, left
    del left["threads"]
    assert not any(left.values()), left


# Of how many ranks the group is at first, where that's not all.
_MEMBERS = {takes_in_newcomers: 2, misses_newcomers: 1}


class Losses(testing.RanksTest):

    def run_body(self, body, size, codes, arguments=()):
        """The ranks must end by themselves; `codes` are those other than 0."""
        store = dist.TCPStore("127.0.0.1", 0, is_master=True,
                              wait_for_workers=False)
        context = multiprocessing.get_context("forkserver")
        ranks = [context.Process(
            target=_run, args=(body, rank, size, store.port, arguments))
            for rank in range(size)]
        for process in ranks:
            process.start()
        until = time.monotonic() + _PATIENCE_S
        for process in ranks:
            process.join(max(0, until - time.monotonic()))
        found = [process.exitcode for process in ranks]
        for process in ranks:
            process.kill()
        self.assertEqual(found, [codes.get(r, 0) for r in range(size)])
        self.assertEqual(shared_files(), [])

    def run_programs(self, body, size, codes):
        store = dist.TCPStore("127.0.0.1", 0, is_master=True,
                              wait_for_workers=False)
        mark = f"{body.__name__}_{os.getpid()}"
        ranks = [subprocess.Popen(
            [sys.executable, __file__, _RANK, body.__name__, str(rank),
             str(size), str(store.port)], env={**os.environ, _MARK: mark})
            for rank in range(size)]
        until = time.monotonic() + _PATIENCE_S
        try:
            found = [process.wait(max(0, until - time.monotonic()))
                     for process in ranks]
        finally:
            for process in ranks:
                process.kill()
        self.assertEqual(found, [codes.get(r, 0) for r in range(size)])
        self.assertEqual(marked_processes(f"{_MARK}={mark}"), [])
        self.assertEqual(shared_files(), [])

    def test_a_killed_rank_is_left_out_by_the_others(self):
        for size, victims in ((3, (0, 1)), (4, (1, 3))):
            for victim in victims:
                with self.subTest(size=size, victim=victim):
                    self.run_body(shrinks, size, {victim: _KILLED}, (victim,))

    def test_making_a_group_ends_when_a_member_is_lost(self):
        for victim in (0, 2):
            with self.subTest(victim=victim):
                self.run_body(misses_a_member, 3, {victim: _KILLED}, (victim,))
        self.run_body(misses_a_member_late, 3, {1: _KILLED})
        self.run_body(misses_one_that_left, 3, {})

    def test_one_is_lost_after_another(self):
        self.run_body(shrinks_twice, 4, {1: _KILLED, 2: _KILLED})

    def test_several_are_lost_at_once(self):
        self.run_body(shrinks_by_two, 5, {1: _KILLED, 4: _KILLED})

    def test_none_is_lost_when_all_come(self):
        self.run_body(misses_nobody, 3, {})

    def test_other_groups_go_on(self):
        self.run_body(keeps_other_groups, 4, {1: _KILLED})

    def test_calls_under_way_are_aborted_on_request(self):
        self.run_body(shrinks_amid_a_call, 2, {})

    def test_monitored_barriers_name_the_missing(self):
        self.run_body(is_missed_by_a_barrier, 4, {1: _KILLED})
        self.run_body(is_missed_by_a_barrier_at_once, 3, {1: _KILLED})
        self.run_body(is_missed_by_a_barrier_as_rank_0, 2, {})

    def test_newcomers_join(self):
        self.run_body(takes_in_newcomers, 4, {1: _KILLED})
        self.run_body(misses_newcomers, 2, {})

    def test_all_end_when_one_exits(self):
        self.run_body(exits, 3, {1: 7})

    def test_all_end_when_one_raises(self):
        self.run_body(raises, 3, {1: 1})

    def test_all_end_when_one_runs_another_program(self):
        self.run_body(runs_another_program, 3, {})

    def test_programs_end_with_groups_that_live(self):
        for body, codes in ((leaves, {}), (exits, {1: 7}), (raises, {1: 1}),
                            (runs_another_program, {})):
            with self.subTest(body=body.__name__):
                self.run_programs(body, 3, codes)

    def test_groups_end_in_any_order(self):
        self.run_body(ends_groups_out_of_order, 3, {})

    def test_torchrun_restarts_a_job_that_lost_a_rank(self):
        size = 3
        with tempfile.TemporaryDirectory() as name:
            done = subprocess.run(
                [sys.executable, "-m", "torch.distributed.run", "--standalone",
                 "--max-restarts=1", f"--nproc-per-node={size}", __file__,
                 _TORCHRUN, name], timeout=2 * _PATIENCE_S, check=False,
                env={**os.environ, "OMP_NUM_THREADS": "1", _MARK: name,
                     "PYTHONPATH": os.path.dirname(os.path.abspath(__file__))})
            self.assertEqual(marked_processes(f"{_MARK}={name}"), [])
            self.assertEqual(done.returncode, 0)
            folder = pathlib.Path(name)
            for rank in (0, 2):
                error = (folder / f"error_{rank}").read_text()
                self.assertIn("origin: rank 1 ", error)
            for rank in range(size):
                begun, total = (folder / f"done_{rank}").read_text().split("; ")
                self.assertGreater(int(begun), 0)
                self.assertEqual(total, str([_STEPS * 6.0] * 3))


if __name__ == "__main__":
    if _TORCHRUN in sys.argv:
        under_torchrun(pathlib.Path(sys.argv[-1]))
    elif _RANK in sys.argv:
        as_rank(*sys.argv[2:])
    else:
        testing.main()
