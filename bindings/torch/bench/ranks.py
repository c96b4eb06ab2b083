# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""The processes of a job, and the groups that are measured."""

import os
import warnings
from typing import Any

import machine
import torch
import torch.distributed as dist

# The names that users still write.
warnings.filterwarnings("ignore", ".* is deprecated", FutureWarning)

OURS, GLOO, NOTHING = "neuron", "gloo", "fake"


class Ranks:
    """All ranks, with a group of each backend.

    What ranks agree on goes by Gloo, so that no fault of ours can hide itself.
    """

    def __init__(self, bind: bool = True):
        # Registers the backend; not above, so that --help needs it not.
        import trnccl
        trnccl.set_launch_environment()
        if "RANK" not in os.environ:
            raise SystemExit("start it by torchrun --nproc-per-node 2 ...")
        self.bound = bind and _bind()
        torch.set_num_threads(1)
        dist.init_process_group(OURS)
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()
        self._groups = {OURS: dist.group.WORLD,
                        GLOO: dist.new_group(backend=GLOO)}

    def group(self, backend: str) -> dist.ProcessGroup:
        """The group of OURS, GLOO or NOTHING, which does nothing at all."""
        if backend == NOTHING and backend not in self._groups:
            # Importing it registers it.
            import torch.testing._internal.distributed.fake_pg  # noqa: F401
            self._groups[backend] = dist.new_group(backend=backend)
        return self._groups[backend]

    def meet(self) -> None:
        """All ranks leave within a microsecond or two of each other."""
        dist.barrier(group=self._groups[OURS])

    def most(self, value: float) -> float:
        """The largest of all ranks' values."""
        largest = torch.tensor([value], dtype=torch.float64)
        dist.all_reduce(largest, op=dist.ReduceOp.MAX,
                        group=self._groups[GLOO])
        return largest.item()

    def total(self, value: int) -> int:
        """The sum of all ranks' values."""
        all_values = torch.tensor([value])
        dist.all_reduce(all_values, group=self._groups[GLOO])
        return int(all_values.item())

    def collect(self, value: Any) -> list[Any]:
        """All ranks' values, which may be anything that pickle takes."""
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value, group=self._groups[GLOO])
        return values

    def say(self, text: str = "") -> None:
        """Printed once, not by each rank."""
        if self.rank == 0:
            print(text, flush=True)

    def placement(self) -> str:
        """For people: how ranks lie on cores."""
        if self.bound:
            return "%d ranks, each bound to a core of its own" % self.size
        return "%d ranks, not bound to cores" % self.size

    def close(self) -> None:
        """All groups end, on all ranks."""
        self._groups.clear()
        dist.destroy_process_group()


def _bind() -> bool:
    """Gives this rank a core, if there are enough for all of this machine.

    Before groups are made, so that threads of any backend keep to it too.
    """
    cpus = machine.cpus_of_cores()
    if int(os.environ["LOCAL_WORLD_SIZE"]) > len(cpus):
        return False
    os.sched_setaffinity(0, {cpus[int(os.environ["LOCAL_RANK"])]})
    return True
