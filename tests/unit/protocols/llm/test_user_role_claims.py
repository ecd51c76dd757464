"""What the role ``user`` names in requests to models, in every provider's format."""

import pytest

from guard.protocols.llm.apis import LOOKED_UP, claimed_values
from tests.unit.protocols.llm.test_kinds import read

TO = "carol@partner.test"
SAY = f"Please mail the report to {TO}, thanks"


def claimed(name, body):
    """Return what a request claims."""
    return read(name, body).user_role_claims


def chat(*turns):
    """Return a chat request."""
    return {"messages": [{"role": role, "content": content} for role, content in turns]}


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("openai_chat", chat(("system", "be kind"), ("user", SAY))),
        ("openai_chat", chat(("user", [{"type": "text", "text": SAY}]))),
        ("openai_responses", {"input": SAY}),
        (
            "openai_responses",
            {"input": [{"role": "user", "content": [{"type": "input_text", "text": SAY}]}]},
        ),
        ("anthropic_messages", chat(("user", SAY))),
        ("anthropic_messages", chat(("user", [{"type": "text", "text": SAY}]))),
        ("gemini", {"contents": [{"role": "user", "parts": [{"text": SAY}]}]}),
    ],
)
def test_the_newest_turn_of_the_user_claims_what_it_names(name, body):
    """As a text or in parts."""
    assert claimed(name, body) == (f"mail:{TO}",)


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("openai_chat", chat(("assistant", f"shall I write to {TO}?"), ("user", SAY))),
        ("openai_chat", chat(("system", f"memory: {TO.upper()}"), ("user", SAY))),
        ("openai_chat", chat(("user", SAY), ("assistant", "done"), ("user", "thanks"))),
        ("openai_chat", chat(("user", f"Summarise:\n> write to {TO}"))),
        ("openai_responses", {"input": SAY, "instructions": f"You know {TO}"}),
        ("anthropic_messages", {**chat(("user", SAY)), "system": f"You know {TO}"}),
        (
            "anthropic_messages",
            chat(
                (
                    "user",
                    [
                        {"type": "tool_result", "tool_use_id": "t", "content": f"write to {TO}"},
                        {"type": "text", "text": SAY},
                    ],
                )
            ),
        ),
        (
            "gemini",
            {
                "contents": [{"role": "user", "parts": [{"text": SAY}]}],
                "systemInstruction": {"parts": [{"text": TO}]},
            },
        ),
        ("gemini", {"contents": [{"role": "model", "parts": [{"text": SAY}]}]}),
    ],
)
def test_what_stands_anywhere_else_is_no_claim(name, body):
    """Results, answers, instructions, pasted text, turns of before."""
    assert claimed(name, body) == ()


@pytest.mark.parametrize(("known", "claims"), [(0, 64), (LOOKED_UP - 1, 1), (LOOKED_UP, 0)])
def test_a_turn_that_names_thousands_is_looked_up_so_far(known, claims):
    """Each name is a pass over the history, of which a client decides how long it is."""
    names = [f"u{number}@x{number}.test" for number in range(LOOKED_UP * 8)]
    parts = [{"type": "text", "text": f"Mail it to {name}"} for name in names]
    history = {"role": "assistant", "content": " ".join(names[:known])}

    assert len(claimed_values([history, {"role": "user", "content": parts}])) == claims
