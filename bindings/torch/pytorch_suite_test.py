#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""PyTorch's own tests of torch.distributed, which the wheel brings.

They run on this backend under its name, where those that ask for another by
name skip, and in Gloo's place, where c10d is handed this one whenever it would
make Gloo. The ranks of one start run many tests, one after the other.

A choice of all kinds of calls is the usual run; PYTORCH_SUITE=all runs every
test, and PYTORCH_SUITE=PATTERN those whose names contain it.
"""

import testing  # First: it finds Python and the package.

import faulthandler
import json
import os
import sys
import tempfile
import time
import unittest

import torch
import torch.distributed.distributed_c10d as c10d
import torch.multiprocessing as mp

OURS, GLOOS = "neuron", "gloo"

_CHOICE = {
    (OURS, 3): (
        "test_DistributedDataParallelCPU", "test_all_gather_full_group",
        "test_all_reduce_full_group_max", "test_all_reduce_sum_complex",
        "test_get_backend", "test_reduce_sum_twice",
        "test_scatter_full_group"),
    (GLOOS, 4): (
        "test_accumulate_gradients_no_sync_allreduce_with_then_hook",
        "test_all_gather_coalesced_with_empty", "test_all_reduce_sum_async",
        "test_barrier_timeout_full_group", "test_batch_isend_irecv_gloo_tags",
        "test_broadcast_full_group", "test_destroy_full_group",
        "test_gather_object_subgroup", "test_get_future",
        "test_isend_torch_profiler",
        "test_monitored_barrier_gloo_rank_0_timeout",
        "test_new_subgroups_with_group_param", "test_reduce_full_group_min",
        "test_scatter_checks", "test_send_recv_any_source_torch_profiler",
        "test_send_recv_with_tag", "test_sparse_all_reduce_sum",
        "test_static_graph_api_cpu"),
}
# What skips by so many ranks is tried by more.
_SIZES = (3, 4, 8)
# Tests that don't ask what a backend does.
_EXCEPTIONS = {
    "test_ddp_logging_data_cpu": (
        "PyTorch reads Gloo's number of threads out of whatever has its name"),
}

# Beyond this, a test hangs. Some wait for timeouts of 20 s.
_LIMIT_S = 240


class _AnyBackend(type):

    def __instancecheck__(cls, group):
        return isinstance(group, torch._C._distributed_c10d.Backend)


def _take_gloos_place():
    """c10d makes a ProcessGroupGloo, and asks later whether it is one."""
    plugin = c10d.Backend._plugins["NEURON"]

    class InGloosPlace(metaclass=_AnyBackend):

        def __new__(cls, store, rank, size, timeout):
            options = c10d._DistributedBackendOptions()
            options.store, options.timeout = store, timeout
            options.group_rank, options.group_size = rank, size
            options.group_id = ""
            options.global_ranks_in_group = list(range(size))
            return plugin.creator_fn(options, None)

    os.environ["TRNCCL_AS_GLOO"] = "1"
    c10d.ProcessGroupGloo = InGloosPlace


def _suite(place, size):
    """PyTorch's tests, which read much from the environment."""
    if "TEMP_DIR" not in os.environ:
        os.environ["TEMP_DIR"] = tempfile.mkdtemp()
    os.environ.update(BACKEND=place, WORLD_SIZE=str(size),
                      MASTER_ADDR="127.0.0.1", INIT_METHOD="env://")
    from torch.testing._internal.common_distributed import DistTestCases
    for feature in ("ddp", "subgroup"):
        DistTestCases.backend_feature[feature] |= {OURS}
    from torch.testing._internal.distributed import distributed_test

    class Suite(distributed_test.TestDistBackend,
                distributed_test.DistributedTest._DistTestBase):
        pass

    return Suite


def _run_one(suite, rank, name, folder):
    """The outcome: "passed", or why it's skipped. Raises if it fails."""
    from torch.testing._internal.common_distributed import TEST_SKIPS
    skips = {skip.exit_code: skip.message for skip in TEST_SKIPS.values()}
    if getattr(getattr(suite, name), "__unittest_skip__", False):
        return getattr(suite, name).__unittest_skip_why__
    here, there = mp.Pipe()
    try:
        suite._run(rank, name, os.path.join(folder, name), there)
    except SystemExit as end:
        if end.code == 0:
            return "passed"
        if end.code in skips:
            return skips[end.code]
        error = here.recv() if here.poll() else f"it exits with {end.code}"
        raise AssertionError(f"rank {rank}: {error}") from end
    finally:
        if c10d.is_initialized():
            c10d.destroy_process_group()
    raise AssertionError("PyTorch's runner has changed: it didn't exit")


def _rank(rank, size, place, names, folder):
    torch.set_num_threads(1)
    os.environ["TEMP_DIR"] = folder
    if place == GLOOS:
        _take_gloos_place()
    suite = _suite(place, size)
    for name in names:
        faulthandler.dump_traceback_later(_LIMIT_S, exit=True)
        began = time.monotonic()
        outcome = _run_one(suite, rank, name, folder)
        if rank == 0:
            with open(os.path.join(folder, "outcomes"), "a") as file:
                file.write(json.dumps(
                    [name, outcome, time.monotonic() - began]) + "\n")
    faulthandler.cancel_dump_traceback_later()


def run(place, size, names):
    """The outcome of each: "passed", why it was skipped, or its error."""
    outcomes, left = {}, list(names)
    while left:
        with tempfile.TemporaryDirectory() as folder:
            for part in ("barrier", "test_dir", "init_dir"):
                os.mkdir(os.path.join(folder, part))
            error = None
            try:
                mp.start_processes(_rank, (size, place, left, folder), size,
                                   start_method="forkserver")
            except Exception as raised:  # of whatever kind a rank ends by
                error = str(raised)
            with open(os.path.join(folder, "outcomes"), "a+") as file:
                file.seek(0)
                done = file.read().splitlines()
        for line in done:
            name, outcome, seconds = json.loads(line)
            outcomes[name] = outcome
            print(f"{seconds:6.1f} s  {name}: {outcome}", flush=True)
        left = left[len(done):]
        if left and error is not None:
            print(f"          {left[0]}: FAILED", flush=True)
            outcomes[left[0]] = "failed: " + error
            left = left[1:]
    return outcomes


def _names_of(place):
    return unittest.TestLoader().getTestCaseNames(_suite(place, _SIZES[0]))


def _every_name(place):
    """Asked in a process of its own: PyTorch reads the place when imported."""
    with mp.get_context("forkserver").Pool(1) as pool:
        return pool.apply(_names_of, (place,))


class PytorchSuite(unittest.TestCase):

    def check(self, place, size, names):
        outcomes = run(place, size, names)
        for name, outcome in outcomes.items():
            with self.subTest(place=place, size=size, name=name):
                self.assertFalse(outcome.startswith("failed"), outcome)
        return outcomes

    @unittest.skipIf("PYTORCH_SUITE" in os.environ, "others are asked for")
    def test_the_choice_passes(self):
        for (place, size), names in _CHOICE.items():
            outcomes = self.check(place, size, names)
            skipped = [n for n in names if outcomes[n] != "passed"]
            self.assertFalse(skipped)

    @unittest.skipUnless("PYTORCH_SUITE" in os.environ, "takes long")
    def test_all_pass(self):
        pattern = os.environ["PYTORCH_SUITE"].removeprefix("all")
        for place in (OURS, GLOOS):
            names = [name for name in _every_name(place)
                     if pattern in name and name not in _EXCEPTIONS]
            for size in _SIZES:
                outcomes = self.check(place, size, names)
                names = [n for n in names if "world" in outcomes[n]]


if __name__ == "__main__":
    testing.main()
