# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""A root that ends while what it has broadcast is still on a slow network.

    bin/nodes -n 2 -p 1 --rate 20mbit .venv/bin/python leaver.py

The other rank comes late, and is to get all of it.
"""

import time

import torch
import torch.distributed as dist
import trnccl

trnccl.set_launch_environment()
dist.init_process_group("neuron")
# The first calls make connections.
dist.all_reduce(torch.ones(4))
expected = torch.arange(500_000, dtype=torch.float32)
tensor = expected.clone() if dist.get_rank() == 0 else torch.zeros(500_000)
if dist.get_rank() != 0:
    time.sleep(1)
dist.broadcast(tensor, 0)
if not tensor.equal(expected):
    raise SystemExit("rank %d: the data isn't the root's" % dist.get_rank())
dist.destroy_process_group()
