# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""What the tests of the backend share: ranks, values, comparisons.

Imported first of all, it turns to the Python of .venv, which has the PyTorch
that the backend is built for, and finds the package that Bazel built.

    import testing

    def adds(rank, size):
        tensor = testing.values(rank, (5,))
        dist.all_reduce(tensor)
        testing.check_equal(tensor, testing.total(size, (5,)), "sum")

    class Sums(testing.RanksTest):
        def test_adds(self):
            self.check(adds, sizes=(2, 3))
"""

import datetime
import math
import os
import pathlib
import sys
import tempfile
import traceback
import unittest
import warnings

_PYTHON = (pathlib.Path(__file__).resolve().parents[2] / ".venv" / "bin" /
           "python")
if pathlib.Path(sys.prefix) != _PYTHON.parents[1]:
    os.execv(_PYTHON, [str(_PYTHON), *sys.argv])
# Not where links lead: the package that's built stands beside the link.
sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402
import trnccl  # noqa: E402,F401

# Of old names, quantized tensors and the like, which users still have.
warnings.simplefilter("ignore")

# What users may call the backend.
NAMES = ("neuron", "trnccl", "cpu:neuron")
TIMEOUT = datetime.timedelta(seconds=60)

# Types that sums are exact in, given values(), and those that only travel.
REDUCED = (torch.float32, torch.float64, torch.bfloat16, torch.float16,
           torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8,
           torch.uint16, torch.uint32, torch.uint64, torch.complex64,
           torch.complex128)
MOVED = REDUCED + (torch.bool, torch.complex32, torch.float8_e4m3fn,
                   torch.float8_e5m2, torch.float8_e4m3fnuz,
                   torch.float8_e5m2fnuz)

# Values lie between -limit and limit, so that sums of 8 ranks are exact.
_LIMITS = {torch.bfloat16: 31, torch.float16: 127, torch.int8: 15,
           torch.uint8: 31, torch.complex32: 127, torch.float8_e4m3fn: 2,
           torch.float8_e5m2: 1, torch.float8_e4m3fnuz: 2,
           torch.float8_e5m2fnuz: 1, torch.int16: 4095, torch.uint16: 8191}


def _scattered(rank, count, salt):
    """A number below 2^31 for each position that no other pattern has."""
    x = torch.arange(count) * 0x9E3779B1 + rank * 0x85EBCA77 + salt
    for factor in (0x2C1B3C6D, 0x297A2D39):
        x = ((x ^ (x >> 15)) & 0x7FFFFFFF) * factor
    return (x >> 13) & 0x7FFFFFFF


def values(rank, shape, dtype=torch.float32):
    """Whole numbers that depend on rank and position: no two parts look alike.

    Their sums over 8 ranks are exact in `dtype`.
    """
    count = math.prod(shape)
    if dtype.is_complex:
        part = torch.float64 if dtype == torch.complex128 else torch.float32
        limit = _LIMITS.get(dtype, 1 << 20)
        parts = [_scattered(rank, count, salt) % (2 * limit + 1) - limit
                 for salt in (1, 2)]
        return torch.complex(*[p.to(part) for p in parts]).reshape(shape).to(
            dtype)
    numbers = _scattered(rank, count, 1)
    if dtype == torch.bool:
        return (numbers % 2 == 1).reshape(shape)
    limit = _LIMITS.get(dtype, 1 << 20)
    if dtype.is_signed:
        numbers = numbers % (2 * limit + 1) - limit
    else:
        numbers = numbers % (limit + 1)
    return numbers.reshape(shape).to(dtype)


def wide(tensor):
    """The same numbers in the type that reference results are computed in."""
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor.long()


def total(ranks, shape, dtype=torch.float32):
    """The sum of values() of ranks, or of that many ranks."""
    ranks = range(ranks) if isinstance(ranks, int) else ranks
    return sum(wide(values(r, shape, dtype)) for r in ranks)


def _bytes_of(tensor):
    plain = tensor.detach().resolve_conj().resolve_neg()
    if plain.dtype == torch.bool:
        plain = plain.view(torch.uint8)  # a copy would make 1 of a stored 2
    return plain.clone(memory_format=torch.contiguous_format).reshape(
        -1).view(torch.uint8)


def check_equal(found, wanted, what):
    """Bit for bit, once `wanted` is of the type of what was found."""
    assert found.shape == wanted.shape, (what, found.shape, wanted.shape)
    wanted = wanted.to(found.dtype)
    differ = (_bytes_of(found) != _bytes_of(wanted)).reshape(
        -1, found.dtype.itemsize).any(1)
    if differ.any():
        first = int(differ.nonzero()[0])
        raise AssertionError(
            f"{what}: {int(differ.sum())} of {found.numel()} elements differ, "
            f"first number {first}: found {found.flatten()[first]}, "
            f"wanted {wanted.flatten()[first]}")


def check_refused(kind, call, *words):
    """The call raises `kind`, with each of the words in its text."""
    try:
        call()
    except kind as error:
        for word in words:
            assert word in str(error), f"{word!r} isn't in: {error}"
        return str(error)
    raise AssertionError(f"not refused; awaited {kind} with {words}")


def _rank(rank, bodies, settings, folder):
    torch.set_num_threads(1)
    os.environ.update(settings["environment"])
    size = settings["size"]
    store = dist.FileStore(os.path.join(folder, "store"), size)
    dist.init_process_group(settings["backend"], store=store, rank=rank,
                            world_size=size, timeout=settings["timeout"])
    for body in bodies:
        try:
            body(rank, size, *settings["arguments"])
        except BaseException:
            print(f"rank {rank} of {size} in {body.__name__}:\n"
                  f"{traceback.format_exc()}", file=sys.stderr, flush=True)
            raise
    dist.destroy_process_group()


def run_ranks(*bodies, size, **settings):
    """Runs body(rank, size, *arguments) of each in turn, in `size` processes.

    They make one group, of which all bodies are members. An error in one rank
    ends them all. `environment` is set in the ranks before they make it.
    """
    settings = {"size": size, "backend": "neuron", "timeout": TIMEOUT,
                "environment": {}, "arguments": (), **settings}
    with tempfile.TemporaryDirectory() as folder:
        # The fork server imports PyTorch once for all ranks of the file.
        mp.start_processes(_rank, (bodies, settings, folder), size,
                           start_method="forkserver")


class RanksTest(unittest.TestCase):
    """A test whose promises hold between ranks."""

    def check(self, *bodies, sizes=(2,), **settings):
        for size in sizes:
            with self.subTest(size=size):
                run_ranks(*bodies, size=size, **settings)


def main():
    """Runs the file's tests, and tells Bazel of each case."""
    sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "tests"))
    import junit
    junit.main()
