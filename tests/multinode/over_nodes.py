# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""What tests of jobs over several nodes share: bin/nodes, and its output.

    class Sums(over_nodes.Case):
        def test_add(self):
            out, err = self.nodes("-n", 2, "-p", 2, "PROGRAM")

Nodes and all that runs in them end with the run, whatever happens.
"""

import os
import subprocess
import sys
import unittest

# Not where links lead: what Bazel built stands beside the link.
HERE = os.path.dirname(os.path.abspath(sys.argv[0]))
TOP = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.realpath(__file__))))
BUILT = os.path.dirname(os.path.dirname(HERE))
PYTHON = os.path.join(TOP, ".venv/bin/python")
TIMEOUT_S = 240

sys.path.insert(0, os.path.join(TOP, "tests"))
import junit  # noqa: E402

NAMESPACES = subprocess.run(
    ["unshare", "--net", "--pid", "--fork", "true"],
    stderr=subprocess.DEVNULL, check=False).returncode == 0
PACKAGES = [os.path.join(BUILT, "bindings/torch"), HERE]

main = junit.main


def benchmark(name):
    return os.path.join(BUILT, "bindings/mpi", name + "_perf")


def environment(variables):
    return dict(os.environ,
                NODES_RELAY=os.path.join(BUILT, "tests/nodes/relay"),
                PYTHONPATH=":".join(PACKAGES), OMP_NUM_THREADS="1",
                # Open MPI gives ranks a second to die, several times.
                OMPI_MCA_odls_base_sigkill_timeout="0", **variables)


def run(*arguments, **variables):
    """Runs bin/nodes; exit code, standard output and error."""
    done = subprocess.run(
        [sys.executable, os.path.join(TOP, "tests/nodes/nodes.py"),
         *map(str, arguments)], env=environment(variables), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=TIMEOUT_S,
        check=False)
    return done.returncode, done.stdout, done.stderr


@unittest.skipUnless(NAMESPACES, "needs root and leave to make namespaces")
class Case(unittest.TestCase):

    def nodes(self, *arguments, code=0, **variables):
        """Runs to that exit code; standard output and error."""
        found, out, err = run(*arguments, **variables)
        self.assertEqual(found, code, out + err)
        return out, err
