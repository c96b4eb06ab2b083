#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Runs each example as a user does, for fewer steps, and holds it to its word.

They find the package that Bazel built as if it were installed: by its entry
point, at `import torch`.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib
import unittest

HERE = pathlib.Path(__file__).absolute().parent
TOP = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(TOP / "tests"))
import junit  # noqa: E402

TIMEOUT_S = 240


def install(folder):
    """What pip would note of the package, beside the package itself."""
    with open(TOP / "pyproject.toml", "rb") as file:
        project = tomllib.load(file)["project"]
    (folder / "trnccl").symlink_to(HERE.parent / "trnccl")
    noted = folder / f"trnccl-{project['version']}.dist-info"
    noted.mkdir()
    (noted / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: trnccl\n"
        f"Version: {project['version']}\n")
    lines = ["[torch.backends]"] + [
        f"{name} = {function}" for name, function in
        project["entry-points"]["torch.backends"].items()]
    (noted / "entry_points.txt").write_text("\n".join(lines) + "\n")


class Examples(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.output = pathlib.Path(folder.name)
        self.packages = self.output / "packages"
        self.packages.mkdir()
        install(self.packages)

    def run_ranks(self, ranks, script, *arguments):
        """Returns the exit code and all that was printed."""
        return self.run_program(
            [TOP / ".venv" / "bin" / "torchrun", "--nproc-per-node",
             str(ranks)], script, *arguments)

    def run_program(self, launcher, script, *arguments):
        done = subprocess.run(
            [*launcher, HERE / script, "--output", self.output, *arguments],
            env=dict(os.environ, PYTHONPATH=str(self.packages),
                     OMP_NUM_THREADS="1"),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=TIMEOUT_S, check=False)
        print(done.stdout, flush=True)
        return done.returncode, done.stdout

    def trains(self, ranks, script, *arguments):
        """It must succeed, with a progress bar; returns what it printed."""
        code, text = self.run_ranks(ranks, script, *arguments)
        self.assertEqual(code, 0)
        self.assertIn("100%", text)
        return text

    def trains_alike(self, ranks, script, *arguments, tolerance=1e-3):
        """Its losses must be those that it compares with."""
        text = self.trains(ranks, script, *arguments)
        found = re.search(r"differ by at most (\S+)", text)
        self.assertLessEqual(float(found.group(1)), tolerance)
        self.draws(script)

    def draws(self, script):
        picture = (self.output / script).with_suffix(".png").read_bytes()
        self.assertEqual(picture[:8], b"\x89PNG\r\n\x1a\n")

    def test_ddp_learns_digits(self):
        text = self.trains(2, "ddp_digits.py")
        percent = float(re.search(r"([\d.]+)% of 360 unseen", text).group(1))
        self.assertGreaterEqual(percent, 95)
        self.draws("ddp_digits.py")

    def test_a_job_that_misses_its_goal_fails(self):
        code, text = self.run_ranks(2, "ddp_digits.py", "--steps", "1")
        self.assertNotEqual(code, 0)
        self.assertIn("WRONG", text)

    def test_fsdp2_trains_as_one_process_does(self):
        self.trains_alike(2, "fsdp2_language_model.py", "--steps", "12")

    def test_fsdp2_trains_in_bfloat16_on_uneven_shares(self):
        self.trains_alike(3, "fsdp2_language_model.py", "--steps", "6",
                          "--bf16", "--no-registered", tolerance=3e-2)

    def test_tensor_parallel_trains_as_one_process_does(self):
        self.trains_alike(4, "tensor_parallel.py", "--steps", "6")
        self.trains_alike(2, "tensor_parallel.py", "--steps", "6")

    def test_a_checkpoint_resumes_on_another_number_of_ranks(self):
        folder = self.output / "checkpoint"
        self.trains(2, "checkpoint.py", "--steps", "12", "--save", folder)
        self.trains_alike(3, "checkpoint.py", "--resume", folder)

    def test_a_pipeline_trains_as_one_process_does(self):
        self.trains_alike(2, "pipeline.py", "--steps", "8")
        self.trains_alike(3, "pipeline.py", "--steps", "8", "--schedule",
                          "gpipe")

    def test_a_job_goes_on_after_a_rank_was_killed(self):
        for ranks, victim in ((4, 1), (2, 0)):
            code, text = self.run_program(
                [TOP / ".venv" / "bin" / "python"], "survive_a_loss.py",
                "--steps", "8", "--ranks", str(ranks), "--kill-rank",
                str(victim), "--at-step", "4")
            self.assertEqual(code, 0)
            noticed = re.findall(rf"lost rank {victim} at step 4, noticed",
                                 text)
            self.assertEqual(len(noticed), ranks - 1)
            self.assertIn(f"right: {ranks - 1} ranks end with the same", text)
            self.draws("survive_a_loss.py")


if __name__ == "__main__":
    junit.main()
