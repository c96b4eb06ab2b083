# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""What each rank of a PyTorch job over several nodes runs: bodies of tests.

    bin/nodes -n 2 -p 2 .venv/bin/python ranks.py messages_test:objects_travel

Each MODULE:FUNCTION is called as function(rank, size), in one group of all
ranks, by turns. PYTHONPATH has the modules and the package. The first error
ends the job.
"""

import importlib
import os
import sys
import time
import traceback

import testing
import torch
import torch.distributed as dist
import trnccl


def main():
    torch.set_num_threads(1)
    trnccl.set_launch_environment()
    dist.init_process_group("neuron", timeout=testing.TIMEOUT)
    rank, size = dist.get_rank(), dist.get_world_size()
    for name in sys.argv[1:]:
        module, _, function = name.partition(":")
        body = getattr(importlib.import_module(module), function)
        start = time.monotonic()
        try:
            body(rank, size)
        except BaseException:
            print(f"rank {rank} of {size} in {name}:\n"
                  f"{traceback.format_exc()}", file=sys.stderr, flush=True)
            os._exit(1)  # The others are to see it fail, not leave in order.
        if rank == 0:
            print(f"{name}: {time.monotonic() - start:.1f} s", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
