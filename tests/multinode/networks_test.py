#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Jobs between nodes whose networks, settings or ranks aren't alike.

They end well, or with an error on every rank that says whose fault it is.
"""

import re

import over_nodes

FLAGS = "-n 1 -w 0 -c 1 -b 8 -e 1M -f 128"
SUM = over_nodes.benchmark("all_reduce") + " " + FLAGS


# Without MPI, which ends all ranks with the first, and then for mpirun's sake:
# each is to tell of its error.
ALONE = """export TORCHELASTIC_RUN_ID=none MASTER_PORT=7171
export RANK="$rank" WORLD_SIZE="$OMPI_COMM_WORLD_SIZE"
code=0
timeout 20 %s || code=$?
sleep 1
exit $code""" % SUM


def after(commands, program="exec " + SUM):
    """A program of the shell, after what makes ranks or nodes differ."""
    return ["sh", "-ec", "\n".join((
        'PATH="$PATH:/usr/sbin:/sbin"', 'rank="$OMPI_COMM_WORLD_RANK"',
        commands, program))]


class Networks(over_nodes.Case):

    def right(self, commands, *options):
        out, _ = self.nodes("-n", 2, *options, *after(commands))
        self.assertRegex(out, "# Out of bounds values +: 0 OK")

    def test_a_bridge_of_containers_is_passed_over(self):
        # The same address on both nodes: it leads nowhere.
        self.right("ip link add docker0 type bridge\n"
                   "ip address add 172.17.0.1/16 dev docker0\n"
                   "ip link set docker0 up")

    def test_a_node_may_have_addresses_of_a_family_that_others_lack(self):
        for rank in (0, 1):
            with self.subTest(rank):
                self.right('if [ "$rank" = %d ]; then ip -6 address add '
                           'fd77::1/64 dev eth0 nodad; fi' % rank)

    def test_ipv6_alone_will_do(self):
        self.right("true", "--ipv6")

    def test_several_networks_will_do(self):
        self.right("true", "--rails", 2)


class Refusals(over_nodes.Case):

    def all_ranks_say(self, ranks, commands, *patterns):
        """Each rank ends in seconds, with an error that has all patterns."""
        code, out, err = over_nodes.run(
            "-n", 2, "-p", ranks // 2, "--output", "rank",
            *after(commands, ALONE))
        self.assertNotIn(code, (0, 124), out + err)
        for rank in range(ranks):
            said = "\n".join(re.findall(r"^\[rank %d\] (.*)$" % rank, err,
                                        re.M))
            for pattern in patterns:
                self.assertRegex(said, pattern, "rank %d" % rank)

    def test_ranks_with_unlike_providers_are_told_of_each_other(self):
        self.all_ranks_say(
            4, 'if [ "$rank" = 2 ]; then '
            'export TRNCCL_FABRIC_PROVIDER="tcp;ofi_rxm"; fi',
            "TRNCCL_FABRIC_PROVIDER", "rank 0", "rank 2")

    def test_ranks_with_unlike_transports_are_told_of_each_other(self):
        self.all_ranks_say(
            4, 'if [ "$rank" = 3 ]; then export TRNCCL_TRANSPORT=fabric; fi',
            "TRNCCL_TRANSPORT", "rank 0", "rank 3")

    def test_a_provider_that_is_missing_on_a_node_is_named(self):
        self.all_ranks_say(
            2, 'if [ "$rank" = 1 ]; then export FI_PROVIDER=shm; fi', "rank 1")


if __name__ == "__main__":
    over_nodes.main()
