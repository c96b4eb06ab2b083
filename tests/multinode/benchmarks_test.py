#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Every benchmark over several nodes: under mpirun and torchrun, over slow,
delayed and lossy links, by each of libfabric's providers. All results are
checked; no time is judged.
"""

import re

import over_nodes

NAMES = ("all_gather", "all_reduce", "alltoall", "alltoallv", "barrier",
         "broadcast", "gather", "reduce", "reduce_scatter", "scatter",
         "sendrecv")
# Reductions, messages of any lengths, and messages by themselves.
LIKELY = ("all_reduce", "alltoallv", "sendrecv")
QUICK = "-n 1 -w 0 -c 1 "
EVERY_KIND = QUICK + "-b 4 -e 1K -f 16 -d all -o all -r all"
# Short messages and long ones, which wait for the receiver's word.
SIZES = QUICK + "-b 8 -e 2M -f 64"
FEW_SIZES = QUICK + "-b 8 -e 128K -f 128 -d int32"
ENDED = r"# Collective test concluded: (\w+)_perf"
RIGHT = r"# Out of bounds values +: 0 OK"


def series(names, flags):
    """One after the other, which mpirun allows for no programs of MPI."""
    lines = ["MASTER_PORT=$((MASTER_PORT + 2))\n%s %s" % (
        over_nodes.benchmark(name), flags) for name in names]
    return ["sh", "-ec", "\n".join(lines)]


class Benchmarks(over_nodes.Case):

    def torchrun(self, options, names=NAMES, flags=SIZES, **variables):
        out, _ = self.nodes(*options.split(), "--torchrun",
                            *series(names, flags), **variables)
        self.judge(out, names)

    def mpirun(self, options, names=NAMES, flags=SIZES, **variables):
        for name in names:
            with self.subTest(name):
                out, _ = self.nodes(*options.split(),
                                    over_nodes.benchmark(name),
                                    *flags.split(), **variables)
                self.judge(out, [name])

    def judge(self, out, names):
        """Each came to its end, and nothing was wrong."""
        self.assertEqual(re.findall(ENDED, out), list(names), out)
        self.assertEqual(len(re.findall(RIGHT, out)), len(names), out)

    def test_every_type_and_operator_is_exact(self):
        self.mpirun("-n 2 -p 1", flags=EVERY_KIND)

    def test_mpirun_starts_ranks_on_2_and_4_nodes(self):
        for options in ("-n 2 -p 2", "-n 4 -p 1", "-n 4 -p 2"):
            self.mpirun(options, ("all_reduce", "alltoallv"))

    def test_torchrun_starts_ranks_on_2_and_4_nodes(self):
        for options in ("-n 2 -p 2", "-n 4 -p 2"):
            with self.subTest(options):
                self.torchrun(options)

    def test_lossy_slow_and_delayed_links_change_no_result(self):
        for link in ("--loss 0.5%", "--delay 2ms", "--rate 100mbit"):
            with self.subTest(link):
                self.torchrun("-n 3 -p 1 " + link, flags=FEW_SIZES)

    def test_every_provider_serves(self):
        for provider in ("net", "tcp;ofi_rxm", "udp;ofi_rxd"):
            with self.subTest(provider):
                self.mpirun("-n 2 -p 2", LIKELY,
                            TRNCCL_FABRIC_PROVIDER=provider)

    def test_long_messages_may_be_written(self):
        self.mpirun("-n 2 -p 2", LIKELY, TRNCCL_FABRIC_PROTOCOL="write")


if __name__ == "__main__":
    over_nodes.main()
