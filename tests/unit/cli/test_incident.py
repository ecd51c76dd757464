"""``guard incident …`` and ``guard memory trace --down | --up`` on a real Redis."""

import hashlib
import json
import re

import pytest

from tests.unit.extensions.propagation.test_incidents import POISON, spread
from tests.unit.provenance.agents import POLICY

PROPAGATION = "propagation: {events: 1000, versions: 100}\n"


@pytest.fixture
def poisoned(played):
    """Have three agents of the tenant share a poisoned item."""
    played(POLICY + PROPAGATION, spread)


def test_an_incident_from_its_opening_to_its_end(poisoned, run, tmp_path):
    """Open, scope, contain, repair, export, verify, undo, close: each does what it says."""
    opened = run("incident", "open", "--item", "rule", "--store", "facts", "--note", "told by mail")
    [name] = re.findall(r"inc-[0-9a-f]{12}", opened.output.splitlines()[-2])
    scope = json.loads(run("incident", "scope", name, "--json").output)
    assert scope["counts"]["confirmed"] == 2
    assert scope["root_cause"][0]["read_by_tool"] == "read"

    assert "step 1 contain done: 2 item" in run("incident", "contain", name).output
    assert "withhold" in run("incident", "repair", name).output
    shown = [run("incident", "scope", name, *more).output for more in ((), ("--texts",))]
    assert [POISON[:20] in text for text in shown] == [False, True]

    out, log = tmp_path / "evidence.json", tmp_path / "audit.jsonl"
    assert run("incident", "export", name, "--out", out, "--audit", log).exit_code == 0
    told = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    digests = [one["sha256"] for one in told if one.get("act") == "export"]
    assert digests == [hashlib.sha256(out.read_bytes()).hexdigest()]
    assert run("incident", "verify", out, tenant=False).exit_code == 0
    out.write_text(out.read_text("utf-8").replace("told by mail", "told by me"), "utf-8")
    assert run("incident", "verify", out, tenant=False).exit_code == 2

    steps = [("release", name, scope["roots"][0]), ("undo", name, 2), ("undo", name, 1)]
    steps += [("undo", name, 1), ("close", name), ("contain", name)]
    assert [run("incident", *step).exit_code for step in steps] == [0, 0, 0, 1, 0, 1]


def test_reach_is_shown_both_ways_without_an_incident(poisoned, run):
    """By value or by the key of an item, downwards and upwards."""
    down = json.loads(run("memory", "trace", "rule", "--store", "facts", "--down", "--json").output)
    up = json.loads(run("memory", "trace", "summary", "--store", "facts", "--up", "--json").output)

    assert down["counts"]["items"] == up["counts"]["items"] == 2
    assert down["roots"] != up["roots"]
    assert run("memory", "trace", "nobody@nowhere.test", "--down").exit_code == 1


def test_findings_are_listed_and_cleared(poisoned, run, tmp_path):
    """One look, the list, a calibration that allows nothing yet, and a cleared finding."""
    plain, policy = tmp_path / "plain.yaml", tmp_path / "watched.yaml"
    plain.write_text(POLICY + PROPAGATION, encoding="utf-8")
    detection = PROPAGATION.replace("}", ", detection: {effect: withhold}}")
    policy.write_text(POLICY + detection, encoding="utf-8")
    looked = run("memory", "watch", "-p", policy, "--once")
    assert "look poisoned" in looked.output
    assert "not withheld" in looked.output
    assert "only have people asked" in run("memory", "watch", "-p", policy, "--calibrate").output

    found = re.findall(r"[0-9a-f]{16}", run("memory", "findings").output)
    assert found
    assert run("memory", "findings", "--clear", found[0]).exit_code == 0
    left = re.findall(r"[0-9a-f]{16}", run("memory", "findings").output)
    assert len(left) < len(found), "another finding may name the same text"
    assert run("memory", "findings", "--clear", found[0]).exit_code == 1
    assert run("memory", "watch", "-p", plain, "--once").exit_code == 3
