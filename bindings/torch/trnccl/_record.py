# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""The calls of the process, as PyTorch's flight recorder dumps them."""

import os

from trnccl import _backend


def dump_flight_record(file: str | os.PathLike[str] | None = None) -> bytes:
    """The last calls of all groups of this process, as a Python pickle.

    With `file`, it's written there too. Give each rank a file that ends with
    its number, and PyTorch's analyser takes them all:

        trnccl.dump_flight_record(f"/tmp/job/rank_{dist.get_rank()}")
        python -m torch.distributed.flight_recorder.fr_trace /tmp/job

    How many calls are kept is PyTorch's setting TORCH_FR_BUFFER_SIZE (2000).
    With TORCH_FR_DUMP_TEMP_FILE=/tmp/job/rank_ in the environment, each rank
    writes its own as soon as a call fails.

    Raises:
        OSError: the file can't be written.
    """
    dump = _backend.extension().dump_flight_record()
    if file is not None:
        with open(file, "wb") as target:
            target.write(dump)
    return dump
