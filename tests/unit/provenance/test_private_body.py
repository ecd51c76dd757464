"""Private text is known again where it is sent, and the words of everyday are not."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.content.shingles import ASKED, WINDOW, WORDS, passages_kept, passages_sent
from guard.policy_files import load_policies
from tests.guards import guard_on
from tests.unit.provenance.agents import POLICY, Agent

SECRET = "the patient takes forty milligrams of the red pill every morning before work"
TO = "nobody@else.test"


@pytest.fixture
def agent(tmp_path, store):
    """Return an agent whose recalls are private."""
    text = POLICY.replace('item: "$.key"}', 'item: "$.key", private: true}', 1)
    text += (
        "  - {id: private, type: private_body, roles: [send], rungs: [unknown], effect: block}\n"
    )
    path = tmp_path / "policy.yaml"
    path.write_text(text, encoding="utf-8")
    return Agent(guard_on(store, load_policies([path])))


def found(verdict):
    """Return the evidence of the reason, None where there is none."""
    return next(
        (dict(r.evidence) for r in verdict.reasons if r.code == "private_in_body"),
        None,
    )


@pytest.mark.parametrize(
    "body",
    [
        f"Hello, {SECRET}. Bye",
        SECRET.upper(),
        f"note: {' '.join(SECRET.split()[2:11])}",
        base64.b64encode(SECRET.encode()).decode(),
        SECRET.encode().hex(),
    ],
    ids=["copied", "capitals", "a part", "base64", "hex"],
)
async def test_recalled_text_is_known_again_in_a_send(agent, body):
    """In the same session and in a later one; the reason names the call."""
    await agent.call("recall", {"key": "k"}, SECRET)

    for at in (agent, agent.in_session("later")):
        verdict = await at.call("send", {"to": TO, "body": body})
        assert verdict.action.label == "block"
        assert (found(verdict)["call"], found(verdict)["source"]) == (0, "recall")


async def test_a_code_is_a_passage_by_itself(agent):
    """A number needs no words around it."""
    await agent.call("recall", {"key": "k"}, "the code of the safe is 4921-77-X")

    assert found(await agent.call("send", {"to": TO, "body": "4921-77-x"})) is not None


async def test_to_whom_somebody_vouches_for_private_text_may_go(agent):
    """That is what it is kept for."""
    await agent.call("recall", {"key": "k"}, SECRET)
    await agent.say(f"Send it to {TO}")

    assert (await agent.call("send", {"to": TO, "body": SECRET})).action.label == "allow"


async def test_other_text_and_other_principals_are_no_matter(agent):
    """What was read elsewhere, by others, or never."""
    await agent.call("recall", {"key": "k"}, SECRET)
    await agent.call("read", {}, "the weather will be fine all over the country")

    for at, body in (
        (agent, "the weather will be fine all over the country"),
        (agent, "the patient takes a walk in the morning"),
        (agent.as_principal("bob"), SECRET),
    ):
        assert found(await at.call("send", {"to": TO, "body": body})) is None


WORD = st.text("abcdefgh", min_size=1, max_size=6)


@given(st.lists(WORD, max_size=30), st.lists(WORD, min_size=WORDS + WINDOW - 1, max_size=30))
def test_a_run_that_is_long_enough_is_always_found(before, shared):
    """Whatever stands before and after it, on either side."""
    kept = set(passages_kept(" ".join((*before, *shared, "end of what was read"))))
    sent = passages_sent([" ".join(("a letter that begins", *shared, *before))])

    assert kept & set(sent) or len(sent) == ASKED


@given(st.text(max_size=500))
def test_work_is_bounded_whatever_comes(text):
    """Nothing raises, and no more is asked than the bound."""
    assert len(passages_sent([text, text * 3])) <= ASKED
    list(passages_kept(text))
