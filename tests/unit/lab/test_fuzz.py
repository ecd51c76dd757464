"""The fuzzer: it finds what it is there to find, and the parsers stand three thousand inputs."""

import pytest

from guard.core.errors import MessageError
from lab.fuzz import (
    SHOWN,
    TARGETS,
    DisagreementError,
    Target,
    fuzz,
    run_json,
    run_sse,
    run_url,
)
from lab.fuzz_inputs import Mutator


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_three_thousand_broken_inputs_per_parser(name):
    """No crash, no hang, nothing read otherwise than by who reads it next; and both ways occur."""
    outcome = fuzz(TARGETS[name], 3000, seed=20)

    assert outcome.failures == []
    assert outcome.inputs == 3000
    assert outcome.accepted > 300


@pytest.mark.parametrize("error", [ValueError("crash"), DisagreementError("otherwise")])
def test_a_crash_and_a_disagreement_are_failures(error):
    """A refusal is not; a few failures are enough."""

    def run(data):
        raise error

    def refuse(data):
        raise MessageError("bad_json", "no")

    assert len(fuzz(Target("t", Mutator.body, run), 100, 1).failures) == SHOWN
    assert fuzz(Target("t", Mutator.body, refuse), 100, 1).failures == []


def test_a_parser_that_lets_a_call_through_unseen_is_found(monkeypatch):
    """The oracle is the SDK: blind the guard, and the very first plain call is a disagreement."""
    monkeypatch.setattr("lab.fuzz._guard_calls", lambda body: ())

    assert fuzz(TARGETS["mcp"], 200, 1).failures


@pytest.mark.parametrize(
    ("name", "data", "run"),
    [
        ("parse_json", b'{"a": 1}', run_json),
        ("read_event", [b"data: x\n\n"], run_sse),
        ("canonical_host", "http://example.com/", run_url),
    ],
)
def test_another_reading_is_found(monkeypatch, name, data, run):
    """Each target compares, and does not only run."""
    monkeypatch.setattr(f"lab.fuzz.{name}", lambda *_, **__: ("other", "other"))

    with pytest.raises(DisagreementError):
        run(data)
