#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""torch.distributed over several nodes: every call and kind of group, what they
cost, and whole jobs of training.

Most bodies are those of bindings/torch, here with ranks on several nodes. They
run by turns, since PyTorch takes seconds to start.
"""

import os
import re
import tempfile

import over_nodes

CALLS = """
messages_test:both_ranks_may_send_first
messages_test:batches_may_be_in_any_order
messages_test:progress_needs_no_waiter
messages_test:tags_choose_messages
messages_test:lengths_and_types_must_fit
messages_test:a_late_message_can_be_waited_for_again
types_test:averages_truncate_and_are_exact
types_test:premultiplied_sums_use_each_ranks_factor
types_test:gradients_are_divided_as_fsdp_does
types_test:every_type_travels
types_test:every_pair_has_its_meaning_or_is_refused
layouts_test:every_operation_takes_every_layout
layouts_test:calls_in_place_are_right
work_test:every_call_can_be_awaited_in_every_way
node_groups:default_group_comes_and_goes
"""
# The first counts the groups that a rank has made before.
GROUPS = """
groups_test:of_members
groups_test:meshes
groups_test:unsorted
groups_test:subgroups
groups_test:split
groups_test:merge
groups_test:shrink
messages_test:patterns_of_many_ranks_complete
messages_test:large_batches_complete
messages_test:any_source_names_its_source
messages_test:objects_travel
node_groups:every_operation
node_groups:random_calls
node_groups:groups_come_and_go
node_groups:many_live_groups
"""
EXAMPLES = os.path.join(over_nodes.BUILT, "bindings/torch/examples")


class Groups(over_nodes.Case):

    def bodies(self, options, names):
        out, _ = self.nodes(*options.split(), over_nodes.PYTHON,
                            os.path.join(over_nodes.HERE, "ranks.py"),
                            *names.split(), PROPERTY_CASES="500")
        self.assertEqual(re.findall(r"^(\w+:\w+): [\d.]+ s$", out, re.M),
                         names.split())

    def test_every_call_is_right_between_two_nodes(self):
        self.bodies("-n 2 -p 1", CALLS)

    def test_groups_lie_across_nodes_and_inside_them(self):
        self.bodies("-n 2 -p 2", GROUPS)

    def test_four_nodes_of_one_rank(self):
        self.bodies("-n 4 -p 1", "node_groups:every_operation "
                    "node_groups:random_calls messages_test:objects_travel "
                    "messages_test:any_source_names_its_source")

    def test_four_nodes_of_two_ranks_under_torchrun(self):
        self.bodies("-n 4 -p 2 --torchrun",
                    "node_groups:every_type messages_test:objects_travel")

    def test_lossy_and_delayed_links_change_no_result(self):
        self.bodies("-n 3 -p 1 --loss 0.5% --delay 1ms",
                    "node_groups:every_type messages_test:objects_travel")

    def test_who_waits_for_a_slow_network_leaves_the_processor_alone(self):
        self.bodies("-n 2 -p 1 --rate 1mbit",
                    "network:waiting_costs_no_processor")

    def test_short_calls_over_slow_links_take_a_message_a_round(self):
        self.bodies("-n 8 -p 1 --delay 2ms", "network:messages_of_8_ranks")


class Training(over_nodes.Case):

    def train(self, options, script, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            return self.nodes(*options.split(), "--torchrun", "--bytes",
                              os.path.join(EXAMPLES, script), "--output",
                              folder, *arguments)

    def test_fsdp2_over_nodes_trains_as_one_process_does(self):
        for options in ("-n 2 -p 1", "-n 4 -p 1"):
            with self.subTest(options):
                out, err = self.train(options, "fsdp2_language_model.py",
                                      "--steps", "6")
                found = re.search(r"right: .* differ by at most (\S+)", out)
                self.assertIsNotNone(found, out + err)
                self.assertLessEqual(float(found.group(1)), 1e-3)
                # Each node had its part.
                sent = re.findall(r"^# node\d +eth0 +(\d+)", err, re.M)
                self.assertEqual(len(sent), int(options[3]))
                for each in sent:
                    self.assertGreater(int(each), 1 << 20)

    def test_ddp_over_nodes_learns_digits(self):
        out, _ = self.train("-n 2 -p 2", "ddp_digits.py")
        self.assertRegex(out, r"right: [\d.]+% of 360 unseen digits")


if __name__ == "__main__":
    over_nodes.main()
