"""The rule type ``content``."""

import pytest

from guard.rules.content import LIMIT

TOKEN = "ghp_0a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R"


@pytest.mark.parametrize(
    "arguments",
    [
        {"body": f"the key is {TOKEN}"},
        {"deep": [{"list": ["x", TOKEN]}]},
        {"api_key": "Zx81mQ02nV73bT64"},
        {"body": TOKEN.encode().hex()},
    ],
)
def test_it_applies_to_what_stands_anywhere_in_the_arguments(rule, situation, arguments):
    """At any depth, in any coding, or told by its name."""
    reason = rule("content", finds=["secret_found"]).match(situation(arguments=arguments))

    assert reason.code == "secret_found"
    assert TOKEN not in f"{reason.detail}{reason.evidence}"


def test_it_says_nothing_of_what_it_is_not_asked_for(rule, situation):
    """A policy that looks for accounts does not mind commands."""
    looked = situation(arguments={"command": "rm -rf /srv"})

    assert rule("content", finds=["account_found"]).match(looked) is None
    assert rule("content", finds=["dangerous_command"]).match(looked) is not None


def test_plain_arguments_are_left_alone(rule, situation):
    """Nothing found, nothing said."""
    everything = ["secret_found", "account_found", "sensitive_path", "injection_text"]

    plain = situation(arguments={"to": "a@example.com", "body": "see you at ten"})
    assert rule("content", finds=everything).match(plain) is None


def test_what_is_too_large_to_search_is_a_reason(rule, situation):
    """A limit must not be a way out."""
    huge = situation(arguments={"body": "a " * LIMIT + TOKEN})

    assert rule("content", finds=["secret_found"]).match(huge).code == "too_large_to_inspect"
