# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Steps of training, ours and Gloo's in turn, and what communication costs.

Two figures, since neither says all:
- exposed: a step's time beyond that of the same step without communication,
  that is, what training waits for. DDP's step without it has a hook that leaves
  gradients as they are; FSDP2's runs on a backend that copies a rank's own part
  to where the others' belong.
- busy: how long calls were under way, from the profiler's trace. It holds what
  computing hides, and waiting for the other rank too.
"""

import dataclasses
import os
from collections.abc import Callable

import models
import overlap
import torch
import torch.distributed as dist
from figures import Spread, spread_of
from ranks import GLOO, NOTHING, OURS, Ranks
from stopwatch import Stopwatch, Timed, ratio, take_turns
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, record_function

Step = Callable[[], None]

_BLOCK_S = 0.2
_TRACED_STEPS = 5
# Several all-reduces a step, so that there's something to overlap.
_BUCKET_MB = 1


@dataclasses.dataclass(frozen=True)
class Backend:
    """What one backend's steps took."""
    step_us: Spread
    exposed_us: Spread
    busy_us: float   # of a step
    hidden: float    # the share of `busy_us` that backward passes hide
    trace: str       # the file


@dataclasses.dataclass(frozen=True)
class Training:
    """One way of training, on both backends."""
    name: str
    without_us: Spread  # a step without communication
    ours: Backend
    gloo: Backend
    speedup: Spread  # of whole steps
    busy_ratio: float  # ours : Gloo's
    exposed_ratio: float


def measure(ranks: Ranks, rounds: int, folder: str) -> list[Training]:
    """DDP's and FSDP2's steps; traces go to the folder."""
    if ranks.rank == 0:
        os.makedirs(folder, exist_ok=True)
    return [_measure("DDP", _ddp_step, ranks, rounds, folder),
            _measure("FSDP2", _fsdp_step, ranks, rounds, folder)]


def _ddp_step(ranks: Ranks, backend: str) -> Step:
    task = models.classifier(ranks.rank)
    # DDP can't do without futures, which the backend NOTHING lacks.
    silent = backend == NOTHING
    model = DistributedDataParallel(
        task.model, process_group=ranks.group(OURS if silent else backend),
        bucket_cap_mb=_BUCKET_MB)
    if silent:
        model.register_comm_hook(None, _leave)
    return _step(task, model)


def _leave(_: None, bucket: dist.GradBucket
           ) -> torch.futures.Future[torch.Tensor]:
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def _fsdp_step(ranks: Ranks, backend: str) -> Step:
    task = models.language_model(ranks.rank)
    mesh = DeviceMesh.from_group(ranks.group(backend), "cpu")
    for module in [*task.layers, task.model]:
        fully_shard(module, mesh=mesh)
    # The next layer's parameters come while this one computes.
    task.model._set_unshard_async_op(True)
    return _step(task, task.model)


def _step(task: models.Task, model: nn.Module) -> Step:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        loss = task.loss(model)
        with record_function(overlap.BACKWARD):
            loss.backward()
        optimizer.step()
    return step


def _measure(name: str, make_step: Callable[[Ranks, str], Step],
             ranks: Ranks, rounds: int, folder: str) -> Training:
    steps = {backend: make_step(ranks, backend)
             for backend in (OURS, GLOO, NOTHING)}
    watches = {backend: Stopwatch(ranks, Timed(step), _BLOCK_S)
               for backend, step in steps.items()}
    take_turns(list(watches.values()), rounds)
    ours, gloo = [
        _of_backend(watches[backend], watches[NOTHING],
                    *_trace(ranks, backend, steps[backend],
                            os.path.join(folder, "%s-%s.json" % (
                                name.lower(), backend))))
        for backend in (OURS, GLOO)]
    return Training(
        name, watches[NOTHING].time_us(), ours, gloo,
        speedup=ratio(watches[GLOO], watches[OURS]),
        busy_ratio=ours.busy_us / gloo.busy_us,
        exposed_ratio=ours.exposed_us.median / gloo.exposed_us.median)


def _trace(ranks: Ranks, backend: str, step: Step,
           path: str) -> tuple[overlap.Communication, str]:
    """Of some steps on rank 0; other ranks only take part."""
    ranks.meet()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(_TRACED_STEPS):
            step()
    if ranks.rank != 0:
        return overlap.Communication(1, 0), path
    profiler.export_chrome_trace(path)
    return overlap.read(path, backend), path


def _of_backend(watch: Stopwatch, without: Stopwatch,
                communication: overlap.Communication, path: str) -> Backend:
    exposed = spread_of((one - other) * 1e6 for one, other in
                        zip(watch.seconds, without.seconds))
    return Backend(watch.time_us(), exposed,
                   communication.busy_us / _TRACED_STEPS,
                   communication.hidden, path)
