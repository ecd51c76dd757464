"""A source of findings, and a fact that rules can read, is one new file."""

import json
import sys

import pytest

import guard.detectors as package
from guard.core.errors import GuardError
from guard.core.ports import DecisionRecord
from guard.core.trajectory import FEATURES_13
from guard.detectors import DetectorResources, create_detectors, discover_detectors
from guard.replay.described_calls import DescribedCall, judge
from guard.replay.explanation import explained
from guard.telemetry.audit_log import AuditLogFile


class Model:
    """A model that every detector can be created with."""

    name, digest, features = "prefix-13", "", FEATURES_13

    def score(self, row):
        del row
        return 0.0


RESOURCES = DetectorResources(models={"prefix-13": Model()})


DROPPED = """
from guard.core.model import Finding
from guard.detectors import DetectorPlugin

class Dropped(DetectorPlugin):
    name = "dropped"
    codes = frozenset({"seen"})

    @classmethod
    def create(cls, resources):
        return cls()

    def inspect(self, call, snapshot):
        return (Finding(self.name, "seen"),)
"""


@pytest.fixture
def drop(tmp_path, monkeypatch):
    """Put modules into the detector package for one test."""
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    before = set(sys.modules)

    def write(name, text):
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")

    yield write
    for name in set(sys.modules) - before:
        if name.startswith("guard.detectors."):
            del sys.modules[name]
            vars(package).pop(name.rpartition(".")[2], None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n", "exactly one detector"),
        (DROPPED.replace('name = "dropped"', ""), "exactly one detector with a name"),
        (DROPPED.replace('codes = frozenset({"seen"})', ""), "exactly one detector with a name"),
        (DROPPED + DROPPED.replace("Dropped", "Second"), "exactly one detector"),
        (DROPPED.replace('"dropped"', '"prefix_classifier"'), "two detectors are called"),
        ("def broken(:\n", r"cannot be imported \(SyntaxError\)"),
    ],
)
def test_a_module_that_is_no_detector_stops_the_start(drop, text, message):
    """A detector that went missing in silence would be a hole."""
    drop("faulty_detector", text)
    with pytest.raises(GuardError, match=message):
        discover_detectors()


FACT = """
from guard.core.model import Finding
from guard.detectors import DetectorPlugin

class Length(DetectorPlugin):
    name = "length"
    codes = frozenset({"length"})
    facts = {"body_length": "how many characters the body has"}

    @classmethod
    def create(cls, resources):
        return cls()

    def inspect(self, call, snapshot):
        length = len(call.call.arguments["body"])
        return (Finding(self.name, "length", facts={"body_length": length}),)
"""
POLICY = """version: 1
name: dropped-in
tools:
  - {match: [mail_send], role: send, destinations: ["$.to"]}
rules:
  - {id: allow, type: tool, effect: allow}
  - {id: long, type: expression, effect: block, when: "facts.body_length > 10"}
"""


def described(body, **fields):
    """Return a described call."""
    call = {"tool": "mail_send", "arguments": {"to": "a@example.com", "body": body}}
    return DescribedCall.model_validate_json(json.dumps({"call": call, **fields}))


def test_a_fact_dropped_in_as_one_file_is_read_described_explained_and_recorded(
    drop, policy_from, tmp_path
):
    """The rule reads it, a described call can state it, explanation and audit show it."""
    drop("length_of_body", FACT)
    policy, detectors = policy_from(POLICY), create_detectors(RESOURCES)

    short, long = (judge(policy, detectors, described("x" * size)) for size in (10, 11))
    stated = judge(policy, detectors, described("x", facts={"body_length": 99}))

    assert "length" in policy.needs.detectors
    assert [one.verdict.action.label for one in (short, long, stated)] == [
        "allow",
        "block",
        "block",
    ]
    assert explained(policy, long)["facts"]["body_length"] == 11
    log = AuditLogFile(tmp_path / "audit.jsonl", key=b"k")
    log.decision(DecisionRecord(stated.call.classified, stated.verdict, 0.001, {}))
    [line] = (tmp_path / "audit.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["facts"]["body_length"] == 99


def test_a_fact_that_cannot_be_found_blocks(drop, policy_from):
    """The detector raises, or says nothing: in both cases nothing is released."""
    drop("length_of_body", FACT)
    policy, detectors = policy_from(POLICY), create_detectors(RESOURCES)
    nothing = described("").model_copy(
        update={"call": described("").call.model_copy(update={"arguments": {"to": "a@b.example"}})}
    )

    raised = judge(policy, detectors, nothing).verdict
    silent = judge(policy, (), described("x")).verdict

    assert (raised.action.label, silent.action.label) == ("block", "block")
    assert raised.errors
    assert silent.errors
