#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Messages between two ranks: any order, pattern, size, tag and batch."""

import testing  # First: it chooses the Python.

import datetime
import itertools
import random
import time

import torch
import torch.distributed as dist

from testing import check_equal, check_refused, total, values


def _wait(works):
    for work in works:
        work.wait()


def _until(condition, what, seconds=20):
    """Polls: nothing else is done to make it true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what


def both_ranks_may_send_first(rank, size):
    del size
    peer = 1 - rank
    for count in (0, 2, 2048, 300_000, 16 << 20):
        mine, wanted = values(rank, (count,)), values(peer, (count,))
        for receive_first in (False, True, rank == 0):
            found = torch.empty(count)
            calls = [lambda: dist.isend(mine, peer),
                     lambda: dist.irecv(found, peer)]
            _wait([call() for call in (calls[::-1] if receive_first else
                                       calls)])
            check_equal(found, wanted, count)
    # Small messages need no receive to be there.
    for i in range(50):
        dist.send(values(rank + 10 * i, (100,)), peer)
    for i in range(50):
        found = torch.empty(100)
        dist.recv(found, peer)
        check_equal(found, values(peer + 10 * i, (100,)), i)


def batches_may_be_in_any_order(rank, size):
    del size
    peer = 1 - rank
    orders = list(itertools.permutations(range(4)))
    for count in (3, 50_000):
        for i, order in enumerate(orders):
            found = [torch.empty(count) for _ in range(2)]
            ops = [dist.P2POp(dist.isend, values(rank + 20 * tag, (count,)),
                              peer, tag=tag) for tag in (0, 1)]
            ops += [dist.P2POp(dist.irecv, found[tag], peer, tag=tag)
                    for tag in (0, 1)]
            mine = order if rank == 0 else orders[(i * 7 + 3) % len(orders)]
            _wait(dist.batch_isend_irecv([ops[k] for k in mine]))
            for tag in (0, 1):
                check_equal(found[tag], values(peer + 20 * tag, (count,)), i)


def progress_needs_no_waiter(rank, size):
    del size
    peer = 1 - rank
    for count in (4, 1 << 20):
        sent, found = values(rank, (count,)), torch.empty(count)
        works = [dist.irecv(found, peer), dist.isend(sent, peer)]
        _until(lambda: all(w.is_completed() for w in works), "no progress")
        check_equal(found, values(peer, (count,)), count)
    # A receive that nobody serves yet holds up nothing of its batch.
    found = [torch.zeros(5), torch.zeros(5)]
    if rank == 0:
        works = dist.batch_isend_irecv([
            dist.P2POp(dist.irecv, found[0], peer, tag=1),
            dist.P2POp(dist.irecv, found[1], peer, tag=2)])
        _until(lambda: found[1][4] != 0, "held up by its batch")
        assert not works[0].is_completed() and not found[0].any()
        dist.barrier()
        _wait(works)
        check_equal(found[0], values(8, (5,)), "the late one")
    else:
        dist.send(values(9, (5,)), peer, tag=2)
        dist.barrier()
        dist.send(values(8, (5,)), peer, tag=1)


def patterns_of_many_ranks_complete(rank, size):
    """Ring, growing distance, and some ranks alone, first thing in a group."""
    for members in (list(range(size)), [size - 1, 0, 1]):
        group = dist.new_group(members, sort_ranks=False)
        if rank not in members:
            continue
        me = members.index(rank)
        pairs = [(a, b) for a, b in ((0, 1), (1, 0)) if me in (a, b)]
        found = torch.empty(6)
        if pairs:
            _wait(dist.batch_isend_irecv([
                dist.P2POp(dist.isend, values(me, (6,)), group=group,
                           group_peer=1 - me),
                dist.P2POp(dist.irecv, found, group=group, group_peer=1 - me)]))
            check_equal(found, values(1 - me, (6,)), "two of the group")
        for distance in range(1, len(members)):
            to = (me + distance) % len(members)
            source = (me - distance) % len(members)
            for count in (7, 20_000):
                found = torch.empty(count)
                _wait(dist.batch_isend_irecv([
                    dist.P2POp(dist.irecv, found, group=group,
                               group_peer=source),
                    dist.P2POp(dist.isend, values(me, (count,)), group=group,
                               group_peer=to)]))
                check_equal(found, values(source, (count,)), distance)


def large_batches_complete(rank, size):
    """1,000 messages between random pairs, posted in random order."""
    choice = random.Random(11)
    plan = [(choice.randrange(size), choice.randrange(size),
             choice.choice((0, 1, 40, 3000))) for _ in range(1000)]
    ops, checks = [], []
    for tag, (source, target, count) in enumerate(plan):
        if source == rank:
            ops.append(dist.P2POp(dist.isend, values(tag, (count,)), target,
                                  tag=tag))
        if target == rank:
            found = torch.empty(count)
            ops.append(dist.P2POp(dist.irecv, found, source, tag=tag))
            checks.append((found, tag, count))
    random.Random(rank).shuffle(ops)
    _wait(dist.batch_isend_irecv(ops))
    for found, tag, count in checks:
        check_equal(found, values(tag, (count,)), tag)


def any_source_names_its_source(rank, size):
    members = [2, 0, 1]
    group = dist.new_group(members, sort_ranks=False)
    for g, root in ((None, 0), (group, 2)):
        for count in (3, 30_000):
            if rank != root and (g is None or rank in members):
                dist.send(values(rank, (count,)), root, group=g, tag=count)
            if rank != root:
                continue
            senders = set(members if g else range(size)) - {root}
            while senders:
                found = torch.empty(count)
                source = dist.recv(found, group=g, tag=count)
                check_equal(found, values(source, (count,)), source)
                senders.remove(source)
    dist.barrier()


def tags_choose_messages(rank, size):
    del size
    if rank == 0:
        for tag in (3, 1, 2):
            dist.send(values(tag, (4,)), 1, tag=tag)
            dist.all_reduce(torch.zeros(1))
    else:
        works = {}
        for tag in (1, 2, 3):
            found = torch.empty(4)
            works[tag] = dist.irecv(found, 0, tag=tag), found
            # Collectives don't order with messages.
            dist.all_reduce(torch.zeros(1))
        for tag, (work, found) in works.items():
            work.wait()
            check_equal(found, values(tag, (4,)), tag)
    check_refused(ValueError, lambda: dist.send(torch.ones(1), 1 - rank,
                                                tag=-1), "tag")


def lengths_and_types_must_fit(rank, size):
    """Else both are told, and neither process nor group is lost."""
    del size
    peer = 1 - rank
    for small, large in ((3, 5), (10, 100_000), (40_000, 100_000)):
        kept = torch.full((small,), 7.0)
        if rank == 0:
            work = dist.isend(values(0, (large,)), peer, tag=1)
            text = check_refused(ValueError, work.wait) if large > 4096 else ""
        else:
            text = check_refused(ValueError, lambda: dist.recv(
                kept, peer, tag=1))
            check_equal(kept, torch.full((small,), 7.0), "refused")
        assert not text or (f"{large * 4} bytes" in text and
                            f"{small * 4} bytes" in text), text
        dist.barrier()
        # The rest of a tensor that's longer would be garbage.
        if rank == 0:
            dist.send(values(0, (small,)), peer, tag=2)
        else:
            check_refused(ValueError, lambda: dist.recv(
                torch.empty(large), peer, tag=2), str(small), str(large),
                "rank 0")
        dist.barrier()
    if rank == 0:
        work = dist.isend(torch.ones(4, dtype=torch.int32), peer)
    else:
        check_refused(ValueError, lambda: dist.recv(torch.ones(4), peer),
                      "int32", "float32")
    dist.barrier()


def objects_travel(rank, size):
    following, before = (rank + 1) % size, (rank - 1) % size
    mine = [{"rank": rank}, "x" * (rank * 5000), None]
    found = [None] * 3
    if rank % 2 == 0:
        dist.send_object_list(mine, following)
        dist.recv_object_list(found, before)
    else:
        dist.recv_object_list(found, before)
        dist.send_object_list(mine, following)
    assert found == [{"rank": before}, "x" * (before * 5000), None]
    lists = [None] * size if rank == 1 else None
    dist.gather_object(mine, lists, dst=1)
    assert rank != 1 or [len(m[1]) for m in lists] == [
        5000 * r for r in range(size)]
    part = [None]
    dist.scatter_object_list(part, [{r: r} for r in range(size)], src=0)
    assert part == [{rank: rank}]
    shared = [mine if rank == 0 else None]
    dist.broadcast_object_list(shared, src=0)
    assert shared[0][0] == {"rank": 0}


def a_late_message_can_be_waited_for_again(rank, size):
    del size
    found = torch.empty(3)
    if rank == 0:
        work = dist.irecv(found, 1, tag=4)
        for _ in range(3):
            check_refused(RuntimeError, lambda: work.wait(
                datetime.timedelta(milliseconds=20)), "20 ms", "rank 0")
        dist.barrier()
        work.wait()
        check_equal(found, values(1, (3,)), "late")
    else:
        dist.barrier()
        dist.send(values(1, (3,)), 0, tag=4)


def groups_still_work(rank, size):
    tensor = values(rank, (9,))
    dist.all_reduce(tensor)
    check_equal(tensor, total(size, (9,)), "afterwards")


class Messages(testing.RanksTest):

    def test_two_ranks_exchange_in_any_order(self):
        self.check(both_ranks_may_send_first, batches_may_be_in_any_order,
                   progress_needs_no_waiter, tags_choose_messages,
                   a_late_message_can_be_waited_for_again,
                   lengths_and_types_must_fit, groups_still_work)

    def test_many_ranks_exchange_in_any_pattern(self):
        self.check(patterns_of_many_ranks_complete, large_batches_complete,
                   any_source_names_its_source, objects_travel,
                   groups_still_work, sizes=(3, 4))


if __name__ == "__main__":
    testing.main()
