#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""What srun, mpirun and Kubernetes say becomes what init_process_group reads.
"""

import unittest

import testing

from trnccl import _launch

SLURM = {"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "7", "SLURM_LOCALID": "1",
         "SLURM_STEP_TASKS_PER_NODE": "2(x3),1", "SLURM_NODEID": "2",
         "SLURM_STEP_NODELIST": "trn[003-004,9],head",
         "SLURM_JOB_ID": "1234567", "SLURM_NTASKS": "64"}
MPIRUN = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2",
          "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}


class LaunchEnvironment(unittest.TestCase):

    def test_is_left_alone_under_torchrun(self):
        self.assertEqual(_launch.find({}), {})
        self.assertEqual(_launch.find({"RANK": "0", **SLURM}), {})

    def test_needs_nothing_more_under_srun(self):
        self.assertEqual(_launch.find(SLURM), {
            "RANK": "5", "WORLD_SIZE": "7", "LOCAL_RANK": "1",
            "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "trn003",
            "MASTER_PORT": "24567"})

    def test_needs_nothing_more_under_mpirun_on_one_machine(self):
        self.assertEqual(_launch.find(MPIRUN), {
            "RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1",
            "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "29500"})

    def test_keeps_what_is_set(self):
        found = _launch.find({**SLURM, "MASTER_ADDR": "head",
                              "MASTER_PORT": "1234"})
        self.assertFalse({"MASTER_ADDR", "MASTER_PORT"} & set(found))

    def test_asks_for_the_address_that_mpirun_does_not_tell(self):
        several = {**MPIRUN, "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}
        with self.assertRaisesRegex(RuntimeError, "-x MASTER_ADDR=HOST"):
            _launch.find(several)
        found = _launch.find({**several, "MASTER_ADDR": "head"})
        self.assertEqual(found["LOCAL_WORLD_SIZE"], "1")

    def test_takes_the_index_of_a_kubernetes_job_that_says_its_size(self):
        job = {"JOB_COMPLETION_INDEX": "3", "MASTER_ADDR": "job-0.job"}
        self.assertEqual(_launch.find(job), {})
        self.assertEqual(_launch.find({**job, "WORLD_SIZE": "4"}), {
            "RANK": "3", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
            "MASTER_PORT": "29500"})

    def test_finds_the_first_host_of_slurms_lists(self):
        for hosts, first in (("trn1", "trn1"), ("head,trn[1-2]", "head"),
                             ("trn[001-004,7],head", "trn001"),
                             ("queue-dy-trn1-[1-2]", "queue-dy-trn1-1"),
                             ("rack[1-2]n[01-03]x,b", "rack1n01x"),
                             ("trn[1", "trn1"), ("", "")):
            self.assertEqual(_launch.first_host(hosts), first)


if __name__ == "__main__":
    testing.main()
