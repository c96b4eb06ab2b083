#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Jobs over libfabric on hosts as there are: it's left to nobody's luck which
network interface and which address family they use.

It takes root, and skips without.
"""

import os
import re
import sys
import tempfile
import unittest

_HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(
    os.path.dirname(os.path.realpath(__file__)), ".."))

import hosts  # noqa: E402
import junit  # noqa: E402

_SUM = os.path.join(_HERE, "sum")

setUpModule = hosts.skip_without_root


class NetworksTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.id_file = os.path.join(folder.name, "id")
        self.networks = hosts.Networks(self)

    def two_hosts(self, *addresses_of_each, leads_nowhere=()):
        """On one network by eth1. Before it they have a bridge for containers
        and a card that leads nowhere, which are alike on both."""
        network = self.networks.add("lan")
        pair = []
        for name, addresses in zip("ab", addresses_of_each):
            host = hosts.Host(self, name)
            host.bridge("docker0", "172.17.0.1/16")
            host.card("eth0", *leads_nowhere)
            self.networks.join(network, host, "eth1", *addresses)
            pair.append(host)
        return pair

    def outputs(self, places, **variables):
        """Of a rank on each of the hosts."""
        processes = [
            host.start(self, _SUM, str(rank), str(len(places)), self.id_file,
                       TRNCCL_HOST_ID=host.name, TRNCCL_LOG_LEVEL="info",
                       TRNCCL_BOOTSTRAP_TIMEOUT_MS="20s", **variables)
            for rank, host in enumerate(places)]
        return [hosts.output_of(process) for process in processes]

    def assert_works(self, places, adapter, **variables):
        for output in self.outputs(places, **variables):
            self.assertIn("sums are right", output)
            # One port serves the communicators that are split off as well.
            self.assertEqual(
                re.findall(r"provider (\S+) of \S+ on ([\w, ]+);", output),
                [(variables.get("TRNCCL_FABRIC_PROVIDER", "net"), adapter)],
                output)

    def test_network_that_reaches_the_peer_is_taken(self):
        pair = self.two_hosts(["10.1.0.1/24"], ["10.1.0.2/24"],
                              leads_nowhere=["10.5.0.1/24"])
        for provider in ["net", "tcp;ofi_rxm", "udp;ofi_rxd"]:
            with self.subTest(provider):
                os.path.exists(self.id_file) and os.remove(self.id_file)
                self.assert_works(pair, "eth1",
                                  TRNCCL_FABRIC_PROVIDER=provider)

    def test_ranks_learn_it_from_others_of_their_host(self):
        one, two = self.two_hosts(["10.1.0.1/24"], ["10.1.0.2/24"],
                                  leads_nowhere=["10.5.0.1/24"])
        self.assert_works([one, one, one, two, two, two], "eth1")

    def test_named_interface_is_taken(self):
        pair = self.two_hosts(["10.1.0.1/24"], ["10.1.0.2/24"])
        network = self.networks.add("other")
        for index, host in enumerate(pair):
            self.networks.join(network, host, "ib0",
                               "10.9.0.%d/24" % (index + 1))
        self.assert_works(pair, "ib0", TRNCCL_SOCKET_IFNAME="=ib0")

    def test_named_adapter_is_taken_whatever_else_is_named(self):
        pair = self.two_hosts(["10.1.0.1/24"], ["10.1.0.2/24"])
        network = self.networks.add("other")
        for index, host in enumerate(pair):
            self.networks.join(network, host, "ib0",
                               "10.9.0.%d/24" % (index + 1))
        self.assert_works(pair, "ib0", TRNCCL_SOCKET_IFNAME="=eth1",
                          TRNCCL_FABRIC_ADAPTERS="ib0")

    def test_ipv6_alone_is_enough(self):
        pair = self.two_hosts(["fd01::1/64"], ["fd01::2/64"])
        self.assert_works(pair, "eth1")

    def test_family_is_one_that_all_hosts_have(self):
        one, two = self.two_hosts(["10.1.0.1/24", "fd01::1/64"],
                                  ["10.1.0.2/24", "fd01::2/64"])
        six = hosts.Host(self, "c")
        self.networks.join("lan", six, "eth1", "fd01::3/64")
        self.assert_works([one, two, six], "eth1")

    def test_family_that_is_set_is_taken(self):
        pair = self.two_hosts(["10.1.0.1/24", "fd01::1/64"],
                              ["10.1.0.2/24", "fd01::2/64"])
        for host in pair:
            host.sh("ip addr del $(ip -o -4 addr show dev eth1 |"
                    " awk '{print $4}') dev eth1")
            host.sh("ip addr add 10.77.0.1/24 dev eth1")
        self.assert_works(pair, "eth1", TRNCCL_SOCKET_FAMILY="ipv6")


if __name__ == "__main__":
    junit.main()
