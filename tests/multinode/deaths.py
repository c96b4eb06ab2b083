# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""A job over several nodes that loses a rank: what the others are told.

    bin/nodes -n 2 -p 2 .venv/bin/python deaths.py HOW VICTIM NOTES_FOLDER

Each rank is a child of what the launcher starts, so that the launcher doesn't
end the job with it. HOW says what ranks are at when the victim is killed:
small, large, mixed, asynchronous, idle or grouping. Each survivor checks that
its error names the victim and came in time.
"""

import datetime
import os
import random
import signal
import subprocess
import sys
import time

import torch
import torch.distributed as dist
import trnccl

# How long a survivor may not know that a rank of another node has died, and
# what a busy machine adds.
_NOTICE_S = 3.0
_SLACK_S = 3.0


def _small():
    tensor = torch.ones(16)
    while True:
        dist.all_reduce(tensor)
        tensor.fill_(1)


def _large():
    tensor = torch.ones(1 << 20)
    while True:
        dist.all_reduce(tensor)
        tensor.fill_(1)


def _asynchronous():
    tensors = [torch.ones(1 << 12) for _ in range(4)]
    while True:
        for work in [dist.all_reduce(each, async_op=True) for each in tensors]:
            work.wait()
        for each in tensors:
            each.fill_(1)


def _idle():
    dist.barrier()
    time.sleep(_NOTICE_S)
    dist.barrier()


def _grouping():
    """The victim hasn't come when it dies."""
    if dist.get_rank() == int(sys.argv[2]):
        time.sleep(2 * _NOTICE_S)
    dist.new_group()


def _mixed():
    size, rank = dist.get_world_size(), dist.get_rank()
    part, whole = torch.ones(1000), torch.ones(1000 * size)
    while True:
        dist.all_gather_into_tensor(whole, part)
        dist.reduce_scatter_tensor(part, whole)
        dist.broadcast(whole, 0)
        dist.all_to_all_single(torch.empty_like(whole), whole)
        works = dist.batch_isend_irecv([
            dist.P2POp(dist.isend, part, (rank + 1) % size),
            dist.P2POp(dist.irecv, whole[:1000], (rank - 1) % size)])
        for work in works:
            work.wait()
        part.fill_(1)


_HOWS = {"small": _small, "large": _large, "asynchronous": _asynchronous,
         "idle": _idle, "grouping": _grouping, "mixed": _mixed}


def _rank_main(how, victim, notes):
    torch.set_num_threads(1)
    trnccl.set_launch_environment()
    dist.init_process_group("neuron",
                            timeout=datetime.timedelta(seconds=60))
    rank = dist.get_rank()
    dist.barrier()
    print("running", flush=True)
    try:
        _HOWS[how]()
    except dist.DistBackendError as error:
        _judge(rank, victim, notes, str(error))
    else:
        sys.exit(f"rank {rank}: no error though rank {victim} died")
    try:
        dist.barrier()
    except dist.DistBackendError as error:
        assert f"origin: rank {victim}" in str(error), error
    else:
        sys.exit(f"rank {rank}: a call after the failure succeeded")
    dist.destroy_process_group()


def _judge(rank, victim, notes, text):
    with open(os.path.join(notes, "killed"), encoding="ascii") as file:
        late_s = time.time() - float(file.read())
    print(f"rank {rank}: after {late_s:.2f} s: {text.splitlines()[0]}",
          file=sys.stderr, flush=True)
    limit_s = _NOTICE_S + _SLACK_S
    if f"origin: rank {victim}" not in text or "pid" not in text:
        sys.exit(f"rank {rank} doesn't name rank {victim}: {text}")
    if late_s > limit_s:
        sys.exit(f"rank {rank} learned of it after {late_s:.1f} s")


def main():
    how, victim, notes = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    if len(sys.argv) > 4:
        _rank_main(how, victim, notes)
        return
    rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("RANK")))
    child = subprocess.Popen([sys.executable, *sys.argv, "rank"],
                             stdout=subprocess.PIPE, text=True)
    running = child.stdout.readline()
    if rank == victim:
        seed = random.randrange(1 << 32)
        print(f"seed {seed}", file=sys.stderr, flush=True)
        time.sleep(random.Random(seed).uniform(0, 0.3))
        # What it holds, it must find first.
        path = os.path.join(notes, "killed")
        with open(path + ".part", "w", encoding="ascii") as file:
            file.write(repr(time.time()))
        os.rename(path + ".part", path)
        child.send_signal(signal.SIGKILL)
        child.wait()
        return
    try:
        code = child.wait(timeout=40)
    except subprocess.TimeoutExpired:
        child.kill()
        sys.exit(f"rank {rank} hangs")
    if not running or code != 0:
        sys.exit(code or 1)


if __name__ == "__main__":
    main()
