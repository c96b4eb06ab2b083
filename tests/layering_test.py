#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""That dependencies go one way, and that a forbidden edge is refused."""

import unittest

import build_files
import cpp_text
import junit
import layering

# (user, used): edges between files that must be refused.
FORBIDDEN = [
    # Nothing below the core looks up.
    ("ccl/base/log.cc", "ccl/communicator.h"),
    ("ccl/base/log.cc", "ccl/kernels/fold.h"),
    ("ccl/base/log.cc", "hwloc.h"),
    ("ccl/kernels/fold.cc", "transports/transport.h"),
    ("ccl/kernels/fold.cc", "algorithms/schedule.h"),
    # Algorithms and transports never meet, and know no core.
    ("algorithms/ring.cc", "transports/transport.h"),
    ("algorithms/ring.cc", "transports/shm/shm_transport.h"),
    ("algorithms/ring.cc", "ccl/executor/executor.h"),
    ("algorithms/interpreter.cc", "ccl/kernels/fold.h"),
    ("transports/transport.h", "algorithms/schedule.h"),
    ("transports/shm/shm_transport.cc", "algorithms/spec.h"),
    ("transports/shm/shm_transport.cc", "ccl/communicator.h"),
    # Transports never include each other, nor the interface one of them.
    ("transports/shm/shm_transport.cc", "transports/inproc/inproc.h"),
    ("transports/fabric/endpoint.h", "transports/shm/arena.h"),
    ("transports/transport.h", "transports/shm/arena.h"),
    ("transports/conformance/conformance.cc", "transports/shm/arena.h"),
    # Only transport_set names concrete transports.
    ("ccl/communicator.cc", "transports/shm/shm_transport.h"),
    ("ccl/executor/executor.cc", "transports/inproc/inproc.h"),
    ("ccl/capi.cc", "transports/shm/shm_transport.h"),
    # What's simulated is for tests.
    ("ccl/transport_set/transport_set.cc", "transports/sim/sim.h"),
    ("transports/shm/shm_transport.cc", "transports/sim/sim.h"),
    # The core doesn't know its own C API; users know nothing else.
    ("ccl/communicator.cc", "ccl/trnccl.h"),
    ("bindings/mpi/bench.cc", "ccl/communicator.h"),
    ("bindings/mpi/bench.cc", "algorithms/catalog.h"),
    ("bindings/torch/work.cc", "transports/transport.h"),
    ("bindings/torch/work.cc", "bindings/mpi/bench.h"),
    ("examples/hello.c", "ccl/communicator.h"),
    # Each outside library in its place.
    ("transports/shm/shm_transport.cc", "rdma/fabric.h"),
    ("ccl/topology.cc", "rdma/fabric.h"),
    ("transports/fabric/endpoint.cc", "nrt/nrt.h"),
    ("ccl/communicator.cc", "mpi.h"),
    ("tests/all_reduce.cc", "mpi.h"),
    ("ccl/communicator.cc", "torch/torch.h"),
    ("ccl/communicator.cc", "pybind11/pybind11.h"),
    ("algorithms/ring.cc", "openssl/hmac.h"),
    ("ccl/communicator.cc", "gtest/gtest.h"),
]

ALLOWED = [
    ("ccl/base/log.cc", "absl/status/status.h"),
    ("ccl/base/log.cc", "vector"),
    ("ccl/kernels/fold.cc", "hwy/highway.h"),
    ("algorithms/ring.cc", "algorithms/schedule.h"),
    ("algorithms/ring.cc", "ccl/base/types.h"),
    ("transports/shm/shm_transport.cc", "transports/transport.h"),
    ("transports/shm/shm_transport.cc", "transports/shm/arena.h"),
    ("transports/shm/conformance_test.cc",
     "transports/conformance/conformance.h"),
    ("transports/fabric/endpoint.cc", "rdma/fabric.h"),
    ("transports/neuron/device.cc", "nrt/nrt.h"),
    ("ccl/transport_set.cc", "transports/shm/shm_transport.h"),
    ("ccl/communicator.cc", "ccl/transport_set.h"),
    ("ccl/executor/executor.cc", "algorithms/schedule.h"),
    ("ccl/executor/executor.cc", "transports/transport.h"),
    ("ccl/bootstrap/secret.cc", "openssl/hmac.h"),
    ("ccl/topology.cc", "hwloc.h"),
    ("ccl/capi.cc", "ccl/communicator.h"),
    ("ccl/capi.cc", "ccl/trnccl.h"),
    ("ccl/trnccl_c_test.c", "ccl/trnccl.h"),
    ("bindings/mpi/bench.cc", "ccl/trnccl.h"),
    ("bindings/mpi/bench.cc", "mpi.h"),
    ("bindings/torch/work.cc", "torch/torch.h"),
    ("examples/hello.c", "mpi.h"),
    ("tests/all_reduce.cc", "transports/inproc/inproc.h"),
]

# What tests may do and the code beside them may not.
ALLOWED_IN_TESTS = [
    ("ccl/executor/executor_test.cc", "transports/inproc/inproc.h"),
    ("algorithms/ring_test.cc", "gtest/gtest.h"),
]
FORBIDDEN_IN_TESTS = [
    ("algorithms/ring_test.cc", "transports/inproc/inproc.h"),
    ("transports/shm/shm_test.cc", "transports/inproc/inproc.h"),
    ("transports/shm/shm_test.cc", "algorithms/schedule.h"),
]


class Edges(unittest.TestCase):

    def test_forbidden_edges_are_refused(self):
        for user, used in FORBIDDEN:
            self.assertTrue(layering.refusal(user, used), (user, used))

    def test_allowed_edges_are_not(self):
        for user, used in ALLOWED:
            self.assertIsNone(layering.refusal(user, used), (user, used))

    def test_tests_may_use_more_but_not_everything(self):
        for user, used in ALLOWED_IN_TESTS:
            self.assertTrue(layering.refusal(user, used), (user, used))
            self.assertIsNone(layering.refusal(user, used, True))
        for user, used in FORBIDDEN_IN_TESTS:
            self.assertTrue(layering.refusal(user, used, True), (user, used))

    def test_includes_are_found_and_comments_are_not(self):
        text = ('#include <rdma/fabric.h>\n// #include "mpi.h"\n'
                '  #  include "ccl/a.h"\n/*\n#include "b.h"\n*/\n')
        self.assertEqual(list(cpp_text.includes(text)),
                         [(1, "rdma/fabric.h"), (3, "ccl/a.h")])


class Files(unittest.TestCase):
    """Whole files and BUILD texts, as the tree's are read."""

    def check(self, texts):
        targets = []
        for path, text in texts.items():
            if path.endswith("BUILD"):
                targets += build_files.parse(path[:-len("/BUILD")], text)
        return layering.check(texts, targets)

    def test_a_forbidden_include_is_refused_with_its_line(self):
        found = self.check({"algorithms/ring.cc": "// Ring.\n"
                            '#include "transports/transport.h"\n'})
        self.assertEqual(found, [
            "algorithms/ring.cc:2: includes transports/transport.h: "
            "algorithms may not use interface"])

    def test_a_forbidden_dep_is_refused(self):
        for package, dep in [
                ("algorithms", "//transports:transport"),
                ("ccl/executor", "//transports/shm"),
                ("transports/shm", "//transports/inproc:inproc"),
                ("transports/shm", "@libfabric"),
                ("bindings/mpi", "//ccl:communicator"),
                ("ccl/base", "//ccl:api"),
        ]:
            text = 'cc_library(name = "x", deps = ["%s"])' % dep
            self.assertEqual(len(self.check({package + "/BUILD": text})), 1,
                             (package, dep))

    def test_only_transport_set_of_its_package_names_transports(self):
        text = 'cc_library(name = "%s", deps = ["//transports/shm"])'
        self.assertEqual(self.check({"ccl/BUILD": text % "transport_set"}),
                         [])
        self.assertEqual(len(self.check({"ccl/BUILD": text % "tuner"})), 1)

    def test_an_edge_that_is_named_in_build_is_let_through(self):
        tuner = ('cc_library(name = "tuner", hdrs = ["tuner.h"],'
                 ' visibility = ["//bindings/cli:__pkg__"])')
        plan = ('cc_binary(name = "%s", srcs = ["plan.cc"],'
                ' deps = ["//ccl:tuner"])')
        include = '#include "ccl/tuner.h"\n'
        self.assertEqual(self.check({
            "ccl/BUILD": tuner, "bindings/cli/BUILD": plan % "trnccl",
            "bindings/cli/plan.cc": include}), [])
        self.assertEqual(len(self.check({
            "ccl/BUILD": tuner, "bindings/mpi/BUILD": plan % "bench",
            "bindings/mpi/plan.cc": include})), 2)

    def test_build_files_are_read_through_loops_and_macros(self):
        text = ('load("//x:y.bzl", "macro")\n'
                '[cc_library(name = n, deps = %s) for n in ["a", "b"]]\n'
                'macro(name = "c", deps = %s)\n')
        deps = '["//transports/shm"]'
        choice = 'select({"x": %s, "//conditions:default": []})' % deps
        for d in (deps, choice):
            found = self.check({"algorithms/BUILD": text % (d, d)})
            self.assertEqual(len(found), 3, found)

    def test_only_test_targets_get_what_tests_may_use(self):
        include = '#include "gtest/gtest.h"\n'
        test = 'cc_test(name = "t", srcs = ["t.cc"])'
        library = 'cc_library(name = "t", srcs = ["t.cc"])'
        self.assertEqual(
            self.check({"ccl/BUILD": test, "ccl/t.cc": include}), [])
        self.assertEqual(len(
            self.check({"ccl/BUILD": library, "ccl/t.cc": include})), 1)


class Tree(unittest.TestCase):

    def test_no_edge_of_the_tree_is_forbidden(self):
        top = build_files.root()
        texts = {p: build_files.read(top, p) for p in build_files.files(top)
                 if p.endswith((".h", ".cc", ".c"))}
        self.assertIn("ccl/base/types.h", texts)
        found = layering.check(texts, build_files.targets(top))
        self.assertEqual(found, [], "\n" + "\n".join(found))


if __name__ == "__main__":
    junit.main()
