"""The rule type ``content``."""

from dataclasses import replace

import pytest

from guard.core.policy import Action
from guard.detectors import DetectorResources
from guard.detectors.secrets import Secrets
from guard.policy.rules.content import LIMIT

TOKEN = "ghp_0a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R"


@pytest.fixture
def looked_at(situation):
    """Return a builder of situations with what the detector of secrets finds."""
    detector = Secrets.create(DetectorResources())

    def build(arguments):
        made = situation(arguments=arguments)
        return replace(made, findings=tuple(detector.inspect(made.call, made.snapshot)))

    return build


@pytest.mark.parametrize(
    "arguments",
    [
        {"body": f"the key is {TOKEN}"},
        {"deep": [{"list": ["x", TOKEN]}]},
        {"api_key": "Zx81mQ02nV73bT64"},
        {"body": TOKEN.encode().hex()},
    ],
)
def test_it_applies_to_what_stands_anywhere_in_the_arguments(rule, looked_at, arguments):
    """At any depth, in any coding, or told by its name."""
    reason = rule("content", finds=["secret_found"]).match(looked_at(arguments))

    assert reason.code == "secret_found"
    assert TOKEN not in f"{reason.detail}{reason.evidence}"


@pytest.mark.parametrize("effect", ["ask", "redact"])
def test_what_is_too_large_to_search_is_a_reason_and_never_redacted(rule, situation, effect):
    """A limit must not be a way out, and nobody knows what would be left."""
    huge = situation(arguments={"body": "a " * LIMIT + TOKEN})
    reason = rule("content", finds=["secret_found"], effect=effect).match(huge)

    assert reason.code == "too_large_to_inspect"
    assert reason.action is (Action.ASK if effect == "ask" else Action.BLOCK)
