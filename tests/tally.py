# SPDX-License-Identifier: Apache-2.0
# Copyright (c) The trnccl Authors
"""Counts the test cases of finished `bazel test` runs.

    tally.py NAME=EVENTS.json:EXIT_CODE ... NAME=CASES.xml:EXIT_CODE ...

EVENTS.json is what --build_event_json_file wrote; CASES.xml is the report of
one test script that ran outside Bazel (tests/junit.py). Prints what failed, a
line a run, and last `N passed, N failed`; exits 1 unless all passed. Built to
err on the side of failing: a target that doesn't build, crashes, times out,
runs no case or reports nothing counts as one failed case, and so does a run
that ended with an error for which no case stands.
"""

import collections
import json
import sys
import urllib.parse
from xml.etree import ElementTree


class Tally:
    """The cases of one run: how many passed and were skipped, which failed."""

    def __init__(self):
        self.passed = 0
        self.skipped = 0
        self.failed = []

    def add_xml(self, label, text):
        """Adds the cases of one test.xml; returns how many ran or skipped."""
        cases = 0
        for case in ElementTree.fromstring(text).iter("testcase"):
            if case.get("status") == "notrun":
                continue
            cases += 1
            if case.find("failure") is not None or \
                    case.find("error") is not None:
                self.failed.append("%s %s.%s" % (
                    label, case.get("classname", ""), case.get("name")))
            elif case.get("result") == "skipped" or \
                    case.find("skipped") is not None:
                self.skipped += 1
            else:
                self.passed += 1
        return cases


def _read_uri(uri):
    with open(urllib.parse.unquote(urllib.parse.urlparse(uri).path),
              encoding="utf-8", errors="replace") as file:
        return file.read()


def _is_test(event):
    return event.get("configured", {}).get("targetKind", "").endswith(
        "_test rule")


def _collect(events):
    """Returns the test targets, and the last attempt of every (label, run)."""
    targets = set()
    results = collections.defaultdict(dict)
    for event in events:
        key = event.get("id", {})
        if "targetConfigured" in key and _is_test(event):
            targets.add(key["targetConfigured"]["label"])
        if "testResult" in key and "testResult" in event:
            which = key["testResult"]
            run = (which.get("run", 1), which.get("shard", 1))
            attempt = which.get("attempt", 1)
            # The last attempt counts.
            known = results[which["label"]].get(run, (0, None))
            results[which["label"]][run] = max(
                known, (attempt, event["testResult"]), key=lambda r: r[0])
    return targets, results


def _add_result(tally, label, result, read):
    status = result.get("status", "NO_STATUS")
    before = len(tally.failed)
    cases = 0
    xml = [output["uri"] for output in result.get("testActionOutput", [])
           if output.get("name") == "test.xml" and "uri" in output]
    try:
        for uri in xml:
            cases += tally.add_xml(label, read(uri))
    except (OSError, ElementTree.ParseError) as error:
        tally.failed.append("%s (unreadable test.xml: %s)" % (label, error))
    if status != "PASSED" and len(tally.failed) == before:
        tally.failed.append("%s (%s)" % (label, status))
    return cases


def tally_run(events, exit_code, read=_read_uri):
    """Counts one run from its build events and Bazel's exit code."""
    tally = Tally()
    targets, results = _collect(events)
    for label in sorted(targets | set(results)):
        if label not in results:
            tally.failed.append("%s (didn't build, or didn't run)" % label)
            continue
        before = len(tally.failed)
        cases = sum(_add_result(tally, label, result, read)
                    for _, result in results[label].values())
        if cases == 0 and len(tally.failed) == before:
            tally.failed.append("%s (ran no test case)" % label)
    if exit_code != 0 and not tally.failed:
        tally.failed.append("bazel exited with code %d" % exit_code)
    if tally.passed == 0 and not tally.failed:
        tally.failed.append("no test case ran")
    return tally


def tally_script(path, exit_code):
    """Counts one script's cases from its report and its exit code."""
    tally = Tally()
    try:
        with open(path, encoding="utf-8") as file:
            tally.add_xml("script", file.read())
    except (OSError, ElementTree.ParseError) as error:
        tally.failed.append("no report: %s" % error)
    if exit_code != 0 and not tally.failed:
        tally.failed.append("the script exited with code %d" % exit_code)
    if tally.passed == 0 and not tally.failed:
        tally.failed.append("no test case ran")
    return tally


def _tally_file(path, exit_code):
    if path.endswith(".xml"):
        return tally_script(path, exit_code)
    try:
        with open(path, encoding="utf-8") as file:
            events = [json.loads(line) for line in file if line.strip()]
    except (OSError, ValueError):
        events = []  # Bazel was stopped early; its exit code tells.
    return tally_run(events, exit_code)


def main(arguments):
    passed = failed = 0
    for argument in arguments:
        name, _, rest = argument.partition("=")
        path, _, exit_code = rest.rpartition(":")
        tally = _tally_file(path, int(exit_code))
        for label in tally.failed:
            print("FAILED in %s: %s" % (name, label))
        print("%-6s %d passed, %d failed%s" % (
            name + ":", tally.passed, len(tally.failed),
            ", %d skipped" % tally.skipped if tally.skipped else ""))
        passed += tally.passed
        failed += len(tally.failed)
    print("%d passed, %d failed" % (passed, failed))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
