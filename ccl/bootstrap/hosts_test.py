#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Ranks meet on hosts as there are: bridges, several subnets, one family only.

A host is a network namespace of its own here; networks are bridges in another
one. It takes root, and skips without.
"""

import os
import subprocess
import sys
import tempfile
import time
import unittest

_HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(
    os.path.dirname(os.path.realpath(__file__)), "../../tests"))

import junit  # noqa: E402

_MEET = os.path.join(_HERE, "meet")
_PREFIX = "trn-meet-%d-" % os.getpid()
_TIMEOUT_S = 60


def _run(*words):
    done = subprocess.run(words, capture_output=True, text=True,
                          timeout=_TIMEOUT_S)
    if done.returncode != 0:
        raise RuntimeError("%s: %s" % (" ".join(words), done.stderr.strip()))
    return done.stdout


def setUpModule():
    name = _PREFIX + "probe"
    try:
        _run("ip", "netns", "add", name)
    except (OSError, RuntimeError) as error:
        raise unittest.SkipTest(
            "needs root and network namespaces: %s" % error)
    _run("ip", "netns", "del", name)


class _Namespace:
    """With loopback up, and no waiting for duplicates of IPv6 addresses."""

    def __init__(self, test, name):
        self.name = _PREFIX + name
        _run("ip", "netns", "add", self.name)
        test.addCleanup(_run, "ip", "netns", "del", self.name)
        self.sh("echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad;"
                "ip link set lo up")

    def sh(self, script):
        return _run("ip", "netns", "exec", self.name, "sh", "-ec", script)


class _Host(_Namespace):
    def no_ipv6(self):
        self.sh("for f in all default; do"
                " echo 1 > /proc/sys/net/ipv6/conf/$f/disable_ipv6; done")

    def bridge(self, name, address):
        self.sh("ip link add {0} type bridge; ip link set {0} up;"
                # A bridge runs once it has a port.
                "ip link add veth-{0} type veth peer name vp-{0};"
                "ip link set veth-{0} master {0} up; ip link set vp-{0} up;"
                "ip addr add {1} dev {0}".format(name, address))

    def card(self, name, *addresses):
        """An interface that leads nowhere."""
        self.sh("ip link add {0} type veth peer name veth-{0};"
                "ip link set {0} up; ip link set veth-{0} up".format(name))
        for address in addresses:
            self.sh("ip addr add %s dev %s" % (address, name))

    def meet(self, test, rank, ranks, interfaces="", family="any"):
        process = subprocess.Popen(
            ["ip", "netns", "exec", self.name, _MEET, str(rank), str(ranks),
             test.id_file, interfaces, family],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

        def stop():
            process.kill()
            process.wait()
            process.stdout.close()

        test.addCleanup(stop)
        return process


class _Networks(_Namespace):
    """Bridges, a network each."""

    def __init__(self, test):
        super().__init__(test, "net")
        self._cables = 0

    def add(self, network):
        self.sh("ip link add {0} type bridge; ip link set {0} up".format(
            network))
        return network

    def join(self, network, host, interface, *addresses):
        self._cables += 1
        port = "port%d" % self._cables
        self.sh("ip link add {0} type veth peer name {1} netns {2};"
                "ip link set {0} master {3} up".format(
                    port, interface, host.name, network))
        host.sh("ip link set %s up" % interface)
        for address in addresses:
            host.sh("ip addr add %s dev %s" % (address, interface))


class HostsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.id_file = os.path.join(folder.name, "id")
        self.networks = _Networks(self)

    def host(self, name):
        return _Host(self, name)

    def output_of(self, process):
        return process.communicate(timeout=_TIMEOUT_S)[0]

    def await_lines(self, host, script, count):
        deadline = time.monotonic() + _TIMEOUT_S
        while len(host.sh(script).splitlines()) < count:
            self.assertLess(time.monotonic(), deadline, script)
            time.sleep(0.01)

    def await_listeners(self, host, count):
        self.await_lines(host, "ss -Hltn", count)

    def assert_meet(self, processes):
        ranks = " ".join(str(rank) for rank in range(len(processes)))
        outputs = [self.output_of(process) for process in processes]
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
            [one.meet(self, 0, 2), two.meet(self, 1, 2)])
        self.assertIn("10.1.0.1:", told)
        self.assertNotIn("172.17", told)

    def test_bridge_is_taken_where_it_is_named(self):
        one = self.host("a")
        one.bridge("docker0", "172.17.0.1/16")
        one.card("eth0", "10.1.0.1/24")
        told = self.assert_meet(
            [one.meet(self, rank, 2, "docker") for rank in range(2)])
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
        processes = [both.meet(self, rank, 5) for rank in range(3)]
        self.await_listeners(both, 6)
        processes.append(second.meet(self, 3, 5))
        self.await_listeners(second, 1)
        processes.append(first.meet(self, 4, 5))
        self.assert_meet(processes)

    def test_hosts_of_both_families_serve_those_of_one(self):
        network = self.networks.add("lan")
        dual, four, six = self.host("a"), self.host("b"), self.host("c")
        four.no_ipv6()
        self.networks.join(network, dual, "eth0", "10.1.0.1/24", "fd01::1/64")
        self.networks.join(network, four, "eth0", "10.1.0.2/24")
        self.networks.join(network, six, "eth0", "fd01::3/64")
        self.assert_meet([dual.meet(self, 0, 3), four.meet(self, 1, 3),
                          six.meet(self, 2, 3)])

    def test_families_that_do_not_meet_are_told_so(self):
        network = self.networks.add("lan")
        six, four = self.host("a"), self.host("b")
        four.no_ipv6()
        self.networks.join(network, six, "eth0", "fd01::1/64")
        self.networks.join(network, four, "eth0", "10.1.0.2/24")
        root = six.meet(self, 0, 2)
        output = self.output_of(four.meet(self, 1, 2))
        self.assertIn("rank 1 of 2", output)
        self.assertIn("no server at [fd01::1]:", output)
        root.kill()

    def test_ipv6_alone_is_enough(self):
        network = self.networks.add("lan")
        hosts = [self.host(name) for name in "ab"]
        for index, host in enumerate(hosts):
            self.networks.join(network, host, "eth0",
                               "fd01::%d/64" % (index + 1))
        told = self.assert_meet(
            [host.meet(self, rank, 2) for rank, host in enumerate(hosts)])
        self.assertIn("[fd01::1]:", told)

    def test_link_local_addresses_are_enough(self):
        network = self.networks.add("lan")
        hosts = [self.host(name) for name in "ab"]
        # So that one link has another number on each host.
        hosts[1].card("eth7")
        for host in hosts:
            self.networks.join(network, host, "eth0")
            self.await_lines(
                host, "ip -6 -o addr show dev eth0 scope link", 1)
        told = self.assert_meet(
            [host.meet(self, rank, 2) for rank, host in enumerate(hosts)])
        self.assertIn("[fe80::", told)

    def test_loopback_alone_is_enough_for_one_host(self):
        host = self.host("a")
        told = self.assert_meet(
            [host.meet(self, rank, 4) for rank in range(4)])
        self.assertIn("127.0.0.1:", told)

    def test_id_of_a_loopback_says_so_on_another_host(self):
        one, two = self.host("a"), self.host("b")
        root = one.meet(self, 0, 2)
        output = self.output_of(two.meet(self, 1, 2))
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
        self.assert_meet([many.meet(self, 0, 2), peer.meet(self, 1, 2)])

    def test_names_select_among_twenty_interfaces(self):
        host = self.host("a")
        for index in range(20):
            host.card("eth%d" % index, "10.%d.0.1/24" % index)
        for names, taken, left in [("=eth1", "10.1.0.1:", "10.10.0.1:"),
                                   ("eth1", "10.10.0.1:", "10.2.0.1:"),
                                   ("^eth1,eth0", "10.2.0.1:", "10.1.0.1:"),
                                   ("=eth3,eth4", "10.4.0.1:", "10.0.0.1:")]:
            told = self.output_of(host.meet(self, 0, 1, names))
            self.assertIn(taken, told, names)
            self.assertNotIn(left, told, names)
            self.assertIn("met 0", told, names)

    def test_error_lists_every_interface_and_why_not(self):
        host = self.host("a")
        host.card("eth0", "10.1.0.1/24")
        host.card("ib0")
        host.sh("ip link add eth1 type veth peer name veth1")
        output = self.output_of(host.meet(self, 0, 1, "=ib0,eth1", "4"))
        for words in ["'=ib0,eth1'", "eth0 (left out by name)",
                      "eth1 (down)", "ib0 (no address of the wanted family)",
                      "lo (left out by name)"]:
            self.assertIn(words, output)

    def test_no_name_is_ever_looked_up(self):
        folder = os.path.join("/etc/netns", _PREFIX + "a")
        os.makedirs(folder)
        self.addCleanup(_run, "rm", "-r", folder)
        for name in ["resolv.conf", "hosts"]:
            open(os.path.join(folder, name), "w").close()
        host = self.host("a")
        host.card("eth0", "10.1.0.1/24")
        self.assert_meet([host.meet(self, rank, 2) for rank in range(2)])
        used = _run("nm", "-D", "--undefined-only", _MEET)
        for call in ["getaddrinfo", "gethostby", "getnameinfo", "res_query"]:
            self.assertNotIn(call, used)

    def test_absent_server_is_an_error_with_its_address(self):
        network = self.networks.add("lan")
        one, two = self.host("a"), self.host("b")
        self.networks.join(network, one, "eth0", "10.1.0.1/24")
        self.networks.join(network, two, "eth0", "10.1.0.2/24")
        root = one.meet(self, 0, 2)
        self.await_listeners(one, 1)
        root.kill()
        root.wait()
        output = self.output_of(two.meet(self, 1, 2))
        self.assertRegex(output, r"no server at 10\.1\.0\.1:\d+ .*refused")
        # Nor does its host answer any more.
        one.sh("ip link set eth0 down")
        output = self.output_of(two.meet(self, 1, 2))
        self.assertRegex(output, r"no server at 10\.1\.0\.1:\d+ ")


if __name__ == "__main__":
    junit.main()
