#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Trains on after a rank was killed: the others go on without it.

    python survive_a_loss.py --ranks 4 --kill-rank 1 --at-step 20

It starts its ranks itself, and keeps the store that they meet by: torchrun
would end them all with the first. They train a model by DDP. Before the given
step one kills itself by SIGKILL. The call that the others are in tells them.
They shrink the group, take weights and optimizer from the lowest rank that is
left, and repeat the step with larger shares of its batch. So the losses must be
those that one process sees, and all ranks' weights the same.
"""

import argparse
import copy
import os
import signal
import threading
import time
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import tqdm
import trnccl
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import common
import language

# In the store: when the rank died, by the clock that all processes here share.
DIED_AT = "died_at"


class Job:
    """One rank's training, whoever the others are."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._model = language.build_model(options.seed)
        self._wrap()
        self.losses: list[float] = []
        # What a rank that's left starts the lost step from again.
        self._before = self._state()

    def train(self, doomed: bool) -> None:
        """Makes the steps that are missing; raises when a rank is lost."""

        def step(number: int) -> float:
            self._before = self._state()
            if doomed and number == self._options.at_step:
                dist.group.WORLD.get_group_store().set(
                    DIED_AT, str(time.monotonic()))
                os.kill(os.getpid(), signal.SIGKILL)
            self.losses.append(self._trainer.step(number))
            return self.losses[-1]

        common.run(step, range(len(self.losses), self._options.steps),
                   f"DDP, {dist.get_world_size()} ranks")

    def recover(self) -> None:
        """Goes back to where rank 0 of the new group began the lost step."""
        states = [self._before]
        dist.broadcast_object_list(states, src=0)
        # A new model: the hooks of the old group's DDP are on the old one.
        self._model = language.build_model(self._options.seed)
        self._model.load_state_dict(states[0]["model"])
        self._wrap()
        self._trainer.optimizer.load_state_dict(states[0]["optimizer"])
        self.losses = states[0]["losses"]

    def weights(self) -> torch.Tensor:
        return nn.utils.parameters_to_vector(
            self._model.parameters()).detach()

    def _wrap(self) -> None:
        self._trainer = language.Trainer(
            DistributedDataParallel(self._model), self._options,
            language.Share(dist.get_rank(), dist.get_world_size()))

    def _state(self) -> dict[str, Any]:
        return copy.deepcopy(
            {"model": self._model.state_dict(),
             "optimizer": self._trainer.optimizer.state_dict(),
             "losses": self.losses})


def shrink(rank: int, step: int, error: dist.DistBackendError) -> None:
    """Makes the default group one without the rank that was lost."""
    noticed_at = time.monotonic()
    lost = trnccl.lost_ranks(error)
    if not lost:
        raise error
    died_at = float(dist.group.WORLD.get_group_store().get(DIED_AT))
    print(f"rank {rank}: lost rank {lost[0]} at step {step}, noticed within "
          f"{1000 * (noticed_at - died_at):.0f} ms", flush=True)
    dist.shrink_group(lost)


def check(job: Job, options: argparse.Namespace) -> None:
    """By all ranks that are left; rank 0 says what it sees."""
    lowest, highest = job.weights(), job.weights()
    dist.all_reduce(lowest, dist.ReduceOp.MIN)
    dist.all_reduce(highest, dist.ReduceOp.MAX)
    if dist.get_rank() == 0:
        common.check(torch.equal(lowest, highest),
                     f"{dist.get_world_size()} ranks end with the same weights")
        alone = language.Trainer(language.build_model(options.seed), options)
        language.compare(job.losses,
                         f"DDP, a rank lost after step {options.at_step}",
                         alone, options.output / "survive_a_loss.png")


def run_rank(rank: int, port: int, options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    # Its own would be one of all processes, which a killed one can't give back.
    tqdm.tqdm.set_lock(threading.RLock())
    dist.init_process_group(
        options.backend, rank=rank, world_size=options.ranks,
        store=dist.TCPStore("127.0.0.1", port, is_master=False))
    try:
        job = Job(options)
        try:
            job.train(doomed=rank == options.kill_rank)
        except dist.DistBackendError as error:
            shrink(rank, len(job.losses), error)
            job.recover()
            job.train(doomed=False)
        check(job, options)
        dist.barrier()  # Others wait here for what rank 0 does alone.
    finally:
        dist.destroy_process_group()


def parse() -> argparse.Namespace:
    parser = language.parser(__doc__, steps=40)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--kill-rank", type=int, default=1)
    parser.add_argument("--at-step", type=int, default=20)
    options = parser.parse_args()
    if options.ranks < 2 or not 0 <= options.kill_rank < options.ranks:
        parser.error("--kill-rank must be one of at least two --ranks")
    if not 0 <= options.at_step < options.steps:
        parser.error("--at-step must be one of --steps, counted from 0")
    return options


def main() -> None:
    options = parse()
    store = dist.TCPStore("127.0.0.1", 0, is_master=True,
                          wait_for_workers=False)
    context = mp.get_context("spawn")
    ranks = [context.Process(target=run_rank, args=(rank, store.port, options))
             for rank in range(options.ranks)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    wanted = [-signal.SIGKILL if rank == options.kill_rank else 0
              for rank in range(options.ranks)]
    codes = [process.exitcode for process in ranks]
    common.check(codes == wanted, f"exit codes {codes}")


if __name__ == "__main__":
    main()
