#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Runs the harnesses by libFuzzer, each for its share of the time.

    tests/fuzz/run.py --seconds 600             all, 600 seconds in all
    tests/fuzz/run.py --seconds 60 shm_fuzz     one
    tests/fuzz/run.py --keep /tmp/grown         go on from what was found

Prints a line each: inputs run, edges covered, seconds, clean or not. What
breaks a harness is left in the folder of --keep. Exits with 1 then.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile

_HERE = os.path.dirname(os.path.realpath(__file__))
_TOP = os.path.dirname(os.path.dirname(_HERE))
_SUPPRESSED = "leak:libfabric.so\n"  # as transports/fabric/known_leaks.cc


def _harnesses():
    return sorted(f[:-len(".cc")] for f in os.listdir(_HERE)
                  if f.endswith("_fuzz.cc"))


def _bazel(options, *words):
    return ["bazel"] + options.startup + [words[0], "--config=fuzz"] + \
        options.build + list(words[1:])


def _build(options):
    labels = ["//tests/fuzz:" + name for name in options.harnesses]
    subprocess.run(_bazel(options, "build", *labels), cwd=_TOP, check=True)
    said = subprocess.run(_bazel(options, "info", "bazel-bin"), cwd=_TOP,
                          check=True, stdout=subprocess.PIPE, text=True)
    return said.stdout.strip()


def _run(name, binaries, options, seconds):
    """A harness's line, and whether it was clean."""
    kept = os.path.join(options.keep, name)
    os.makedirs(kept, exist_ok=True)
    seeds = os.path.join(_HERE, "corpus", name[:-len("_fuzz")])
    log = os.path.join(options.keep, name + ".log")
    suppressions = os.path.join(options.keep, "suppressions")
    with open(suppressions, "w", encoding="utf-8") as file:
        file.write(_SUPPRESSED)
    environment = dict(os.environ, LSAN_OPTIONS="suppressions=" + suppressions)
    command = [os.path.join(binaries, "tests", "fuzz", name),
               "-max_total_time=%d" % seconds, "-timeout=60", "-max_len=4096",
               "-rss_limit_mb=4096", "-print_final_stats=1",
               "-artifact_prefix=%s/%s-" % (options.keep, name), kept]
    if os.path.isdir(seeds):
        command.append(seeds)
    with open(log, "w", encoding="utf-8") as file:
        code = subprocess.run(command, stdout=file, stderr=file,
                              env=environment, check=False).returncode
    with open(log, encoding="utf-8", errors="replace") as file:
        text = file.read()
    runs = re.findall(r"stat::number_of_executed_units: (\d+)", text)
    edges = re.findall(r"cov: (\d+)", text)
    return "%-24s %9s inputs  %6s edges  %4d s  %s" % (
        name, runs[-1] if runs else "?", edges[-1] if edges else "?", seconds,
        "clean" if code == 0 else "BROKEN: see " + log), code == 0


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("harnesses", nargs="*", default=_harnesses())
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--keep", default=None)
    parser.add_argument("--startup", action="append", default=[],
                        help="an option of Bazel's before its command")
    parser.add_argument("--build", action="append", default=[],
                        help="an option of Bazel's build")
    options = parser.parse_args()
    options.keep = os.path.abspath(
        options.keep or tempfile.mkdtemp(prefix="trnccl-fuzz-"))
    os.makedirs(options.keep, exist_ok=True)
    binaries = _build(options)
    seconds = max(1, options.seconds // len(options.harnesses))
    all_clean = True
    for name in options.harnesses:
        line, clean = _run(name, binaries, options, seconds)
        print(line, flush=True)
        all_clean &= clean
    print("corpus, logs and findings are in", options.keep)
    return 0 if all_clean else 1


if __name__ == "__main__":
    sys.exit(main())
