#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Jobs over several nodes that lose a rank or a node: what the others learn.

Ranks of PyTorch (deaths.py), and a small campaign of faults drawn by seeds
(tests/faults/README.md), each of which can be tried again alone.
"""

import os
import tempfile

import over_nodes

CAMPAIGN = os.path.join(over_nodes.BUILT, "tests/faults/campaign/campaign")


class Deaths(over_nodes.Case):

    def lose(self, nodes, ranks_per_node, how, victim):
        with tempfile.TemporaryDirectory() as notes:
            self.nodes("-n", nodes, "-p", ranks_per_node, over_nodes.PYTHON,
                       os.path.join(over_nodes.HERE, "deaths.py"), how, victim,
                       notes)

    def test_a_rank_that_is_killed_is_named_to_all(self):
        for nodes, ranks_per_node, hows in (
                (2, 1, ("small", "large")),
                (2, 2, ("asynchronous", "mixed", "grouping")),
                (3, 1, ("idle", "small"))):
            for how in hows:
                victim = nodes * ranks_per_node - 1
                with self.subTest(nodes=nodes, how=how, victim=victim):
                    self.lose(nodes, ranks_per_node, how, victim)


class Leavers(over_nodes.Case):

    def test_what_a_rank_has_sent_arrives_though_it_ends(self):
        for slice_bytes in ("64K", "512K"):
            with self.subTest(slice_bytes):
                self.nodes("-n", 2, "-p", 1, "--rate", "20mbit", "env",
                           "TRNCCL_FABRIC_SLICE_BYTES=" + slice_bytes,
                           over_nodes.PYTHON,
                           os.path.join(over_nodes.HERE, "leaver.py"))


class Campaign(over_nodes.Case):

    def campaign(self, nodes, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            out, _ = self.nodes("-n", nodes, "--output", "raw", CAMPAIGN,
                                "--meet", folder, *arguments)
        self.assertIn(" 0 failed", out)
        print(out)

    def test_killed_ranks_are_named_in_every_phase(self):
        self.campaign(2, "--kinds", "kill", "--faults", 21)

    # Both met libfabric as it dropped a connection in use.
    def test_survivors_that_first_connect_then_lose_nothing(self):
        for seed in (780009, 780029):
            self.campaign(2, "--kinds", "kill", "--faults", 1, "--seed", seed)

    def test_ranks_that_stop_or_never_call_are_named_at_the_deadline(self):
        self.campaign(2, "--kinds", "stop,starve", "--faults", 5,
                      "--phases", "all_reduce,send_receive,mixed,idle,barrier")

    def test_a_node_that_is_cut_off_is_noticed_within_the_heartbeat(self):
        self.campaign(2, "--kinds", "cut", "--faults", 4, "--phases",
                      "all_reduce,mixed,idle,engine")


if __name__ == "__main__":
    over_nodes.main()
