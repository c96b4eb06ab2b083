#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Ranks meet on hosts as there are: bridges, several subnets, one family only.

A host is a network namespace of its own here; networks are bridges in another
one. It takes root, and skips without.
"""

import os
import sys
import tempfile
import time
import unittest

_HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(
    os.path.dirname(os.path.realpath(__file__)), "../../tests"))

import hosts  # noqa: E402
import junit  # noqa: E402

_MEET = os.path.join(_HERE, "meet")

setUpModule = hosts.skip_without_root


class HostsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.id_file = os.path.join(folder.name, "id")
        self.networks = hosts.Networks(self)

    def host(self, name):
        return hosts.Host(self, name)

    def meet(self, host, rank, ranks, interfaces="", family="any"):
        return host.start(self, _MEET, str(rank), str(ranks), self.id_file,
                          interfaces, family)

    def await_lines(self, host, script, count):
        deadline = time.monotonic() + hosts.TIMEOUT_S
        while len(host.sh(script).splitlines()) < count:
            self.assertLess(time.monotonic(), deadline, script)
            time.sleep(0.01)

    def await_listeners(self, host, count):
        self.await_lines(host, "ss -Hltn", count)

    def assert_meet(self, processes):
        ranks = " ".join(str(rank) for rank in range(len(processes)))
        outputs = [hosts.output_of(process) for process in processes]
        for output in outputs:
            self.assertIn("met " + ranks, output, outputs)
        return outputs[0]

    def test_bridge_for_containers_is_left_alone(self):
        one, two = self.host("a"), self.host("b")
        network = self.networks.add("lan")
        for index, host in enumerate([one, two]):
            host.bridge("docker0", "172.17.0.1/16")
            self.networks.join(network, host, "eth0",
                               "10.1.0.%d/24" % (index + 1))
        told = self.assert_meet(
            [self.meet(one, 0, 2), self.meet(two, 1, 2)])
        self.assertIn("10.1.0.1:", told)
        self.assertNotIn("172.17", told)

    def test_bridge_is_taken_where_it_is_named(self):
        one = self.host("a")
        one.bridge("docker0", "172.17.0.1/16")
        one.card("eth0", "10.1.0.1/24")
        told = self.assert_meet(
            [self.meet(one, rank, 2, "docker") for rank in range(2)])
        self.assertIn("172.17.0.1:", told)
        self.assertNotIn("10.1", told)

    def test_host_in_two_subnets_is_reached_from_both(self):
        both, first, second = self.host("ab"), self.host("a"), self.host("b")
        for index, host in [(1, first), (2, second)]:
            network = self.networks.add("lan%d" % index)
            self.networks.join(network, both, "eth%d" % index,
                               "10.%d.0.1/24" % index)
            self.networks.join(network, host, "eth0", "10.%d.0.2/24" % index)
        # The fourth to come is a child of the second, whom it reaches by
        # another subnet than that one reached the root.
        processes = [self.meet(both, rank, 5) for rank in range(3)]
        self.await_listeners(both, 6)
        processes.append(self.meet(second, 3, 5))
        self.await_listeners(second, 1)
        processes.append(self.meet(first, 4, 5))
        self.assert_meet(processes)

    def test_hosts_of_both_families_serve_those_of_one(self):
        network = self.networks.add("lan")
        dual, four, six = self.host("a"), self.host("b"), self.host("c")
        four.no_ipv6()
        self.networks.join(network, dual, "eth0", "10.1.0.1/24", "fd01::1/64")
        self.networks.join(network, four, "eth0", "10.1.0.2/24")
        self.networks.join(network, six, "eth0", "fd01::3/64")
        self.assert_meet([self.meet(dual, 0, 3), self.meet(four, 1, 3),
                          self.meet(six, 2, 3)])

    def test_families_that_do_not_meet_are_told_so(self):
        network = self.networks.add("lan")
        six, four = self.host("a"), self.host("b")
        four.no_ipv6()
        self.networks.join(network, six, "eth0", "fd01::1/64")
        self.networks.join(network, four, "eth0", "10.1.0.2/24")
        root = self.meet(six, 0, 2)
        output = hosts.output_of(self.meet(four, 1, 2))
        self.assertIn("rank 1 of 2", output)
        self.assertIn("no server at [fd01::1]:", output)
        root.kill()

    def test_ipv6_alone_is_enough(self):
        network = self.networks.add("lan")
        both = [self.host(name) for name in "ab"]
        for index, host in enumerate(both):
            self.networks.join(network, host, "eth0",
                               "fd01::%d/64" % (index + 1))
        told = self.assert_meet(
            [self.meet(host, rank, 2) for rank, host in enumerate(both)])
        self.assertIn("[fd01::1]:", told)

    def test_link_local_addresses_are_enough(self):
        network = self.networks.add("lan")
        both = [self.host(name) for name in "ab"]
        # So that one link has another number on each host.
        both[1].card("eth7")
        for host in both:
            self.networks.join(network, host, "eth0")
            self.await_lines(
                host, "ip -6 -o addr show dev eth0 scope link", 1)
        told = self.assert_meet(
            [self.meet(host, rank, 2) for rank, host in enumerate(both)])
        self.assertIn("[fe80::", told)

    def test_loopback_alone_is_enough_for_one_host(self):
        host = self.host("a")
        told = self.assert_meet(
            [self.meet(host, rank, 4) for rank in range(4)])
        self.assertIn("127.0.0.1:", told)

    def test_id_of_a_loopback_says_so_on_another_host(self):
        one, two = self.host("a"), self.host("b")
        root = self.meet(one, 0, 2)
        output = hosts.output_of(self.meet(two, 1, 2))
        self.assertIn("127.0.0.1:", output)
        self.assertIn("TRNCCL_SOCKET_IFNAME", output)
        root.kill()

    def test_one_of_twenty_interfaces_reaches_the_peer(self):
        many, peer = self.host("a"), self.host("b")
        network = self.networks.add("lan")
        for index in range(20):
            address = "10.%d.0.1/24" % index
            if index == 16:
                self.networks.join(network, many, "eth16", address)
            else:
                many.card("eth%d" % index, address)
        # Nobody there answers for the other subnets.
        self.networks.join(network, peer, "eth0", "10.16.0.2/24")
        peer.sh("ip route add default via 10.16.0.254")
        self.assert_meet([self.meet(many, 0, 2), self.meet(peer, 1, 2)])

    def test_names_select_among_twenty_interfaces(self):
        host = self.host("a")
        for index in range(20):
            host.card("eth%d" % index, "10.%d.0.1/24" % index)
        for names, taken, left in [("=eth1", "10.1.0.1:", "10.10.0.1:"),
                                   ("eth1", "10.10.0.1:", "10.2.0.1:"),
                                   ("^eth1,eth0", "10.2.0.1:", "10.1.0.1:"),
                                   ("=eth3,eth4", "10.4.0.1:", "10.0.0.1:")]:
            told = hosts.output_of(self.meet(host, 0, 1, names))
            self.assertIn(taken, told, names)
            self.assertNotIn(left, told, names)
            self.assertIn("met 0", told, names)

    def test_error_lists_every_interface_and_why_not(self):
        host = self.host("a")
        host.card("eth0", "10.1.0.1/24")
        host.card("ib0")
        host.sh("ip link add eth1 type veth peer name veth1")
        output = hosts.output_of(self.meet(host, 0, 1, "=ib0,eth1", "4"))
        for words in ["'=ib0,eth1'", "eth0 (left out by name)",
                      "eth1 (down)", "ib0 (no address of the wanted family)",
                      "lo (left out by name)"]:
            self.assertIn(words, output)

    def test_no_name_is_ever_looked_up(self):
        host = self.host("a")
        folder = os.path.join("/etc/netns", host.name)
        os.makedirs(folder)
        self.addCleanup(hosts.run, "rm", "-r", folder)
        for name in ["resolv.conf", "hosts"]:
            open(os.path.join(folder, name), "w").close()
        host.card("eth0", "10.1.0.1/24")
        self.assert_meet([self.meet(host, rank, 2) for rank in range(2)])
        used = hosts.run("nm", "-D", "--undefined-only", _MEET)
        for call in ["getaddrinfo", "gethostby", "getnameinfo", "res_query"]:
            self.assertNotIn(call, used)

    def test_absent_server_is_an_error_with_its_address(self):
        network = self.networks.add("lan")
        one, two = self.host("a"), self.host("b")
        self.networks.join(network, one, "eth0", "10.1.0.1/24")
        self.networks.join(network, two, "eth0", "10.1.0.2/24")
        root = self.meet(one, 0, 2)
        self.await_listeners(one, 1)
        root.kill()
        root.wait()
        output = hosts.output_of(self.meet(two, 1, 2))
        self.assertRegex(output, r"no server at 10\.1\.0\.1:\d+ .*refused")
        # Nor does its host answer any more.
        one.sh("ip link set eth0 down")
        output = hosts.output_of(self.meet(two, 1, 2))
        self.assertRegex(output, r"no server at 10\.1\.0\.1:\d+ ")


if __name__ == "__main__":
    junit.main()
