"""Private text is known again where it is sent, and the words of everyday are not."""

import asyncio
import base64
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.values.shingles import ASKED, SENT_LIMIT, WINDOW, WORDS, sent_shingles, shingles_kept
from tests.guards import guard_on
from tests.unit.provenance.agents import POLICY, Agent, play

SECRET = "the patient takes forty milligrams of the red pill every morning before work"
TO = "nobody@else.test"
PRIVATE = POLICY.replace('item: "$.key"}', 'item: "$.key", private: true}', 1) + (
    "  - {id: private, type: private_body, roles: [send], rungs: [unknown], effect: block,\n"
    "     over_calls: 0.75}\n"
)


@pytest.fixture
def agent(policy_from, store):
    """Return an agent whose recalls are private."""
    return Agent(guard_on(store, policy_from(PRIVATE)))


HALVES = [word for word in SECRET.split() if len(word) > 3]
HOSTS = "https://a.else.test/in", "https://b.else.test/in"
NOTES = [
    "Carla prefers meetings in the afternoon because of the school run of her children",
    "The contract with the printer ends in March and costs 1200 a year, number 88-1203-4",
    "Reminder: the quarterly report goes to the board before the fifteenth of each month",
    "Our office in Lyon has moved to the third floor of the building beside the station",
]
LETTERS = [
    f"Dear team, thank you for the meeting about the {topic}. The report is ready and we "
    f"can talk in the afternoon of the {day}th. The office is open until six. Number {day}03."
    for day, topic in enumerate(["contract", "printer", "building", "board", "school"] * 4)
]
FINE = "the weather will be fine all over the country"
FILLED = " ".join(f"filler{n % 7} of page{n} and more" for n in range(250))
RECALLED = ("recall", {"key": "k"}, SECRET)


def sent(body, expected, **more):
    """Return the step in which a body is sent."""
    return "try", "send", {"to": TO, "body": body, **more}, expected


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
    known = sent(body, "block private_in_body 0 recall")
    await play(agent, [RECALLED, known, ("in", "later"), known])


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(
            [
                ("recall", {"key": "k"}, "the code of the safe is 4921-77-X"),
                sent("4921-77-x", "private_in_body"),
            ],
            id="a code is a passage by itself",
        ),
        pytest.param(
            [RECALLED, ("say", f"Send it to {TO}"), sent(SECRET, "allow")],
            id="private text may go to whom somebody vouches for",
        ),
        pytest.param(
            [
                RECALLED,
                ("read", {}, FINE),
                sent(FINE, "!private_in_body"),
                sent("the patient takes a walk in the morning", "!private_in_body"),
                ("as", "bob"),
                sent(SECRET, "!private_in_body"),
            ],
            id="other text and other principals are no matter",
        ),
        pytest.param(
            [RECALLED, sent(f"{FILLED} {SECRET}", "private_in_body")],
            id="words in front hide nothing",
        ),
        pytest.param(
            [sent("a word " * SENT_LIMIT, "too_large_to_inspect")],
            id="what is too long to be looked through is refused",
        ),
        pytest.param(
            [RECALLED, sent("x", "private_in_body", note=SECRET)],
            id="every argument but the receiver is looked through",
        ),
        pytest.param(
            [
                RECALLED,
                *(sent(word, "!private_in_pieces", to="one@else.test") for word in HALVES[:4]),
                *(sent(word, "!private_in_pieces", to="two@else.test") for word in HALVES[4:]),
                *(sent(word, "!private_in_pieces", to=HOSTS[0]) for word in HALVES[:4]),
                *(sent(word, "", to=HOSTS[1]) for word in HALVES[4:-1]),
                sent(HALVES[-1], "private_in_pieces", to=HOSTS[1]),
            ],
            id="each receiver is counted apart and hosts of one owner are one",
        ),
        pytest.param(
            [
                *(("recall", {"key": f"k{n}"}, note) for n, note in enumerate(NOTES)),
                *(sent(letter, "!private_in_pieces !private_in_body") for letter in LETTERS),
            ],
            id="honest letters share words and not sentences",
        ),
    ],
)
async def test_nothing_around_private_text_hides_it(agent, steps):
    """Neither many words nor another argument; to whom somebody vouches for it may go."""
    await play(agent, steps)


WORD = st.text("abcdefgh", min_size=1, max_size=6)


@given(st.lists(WORD, max_size=30), st.lists(WORD, min_size=WORDS + WINDOW - 1, max_size=30))
def test_a_run_that_is_long_enough_is_always_found(before, shared):
    """Whatever stands before and after it, on either side."""
    kept = set(shingles_kept(" ".join((*before, *shared, "end of what was read"))))
    sent = sent_shingles([" ".join(("a letter that begins", *shared, *before))], pieces=False)

    assert kept & set(sent.passages)
    assert sent.complete


@given(st.text(max_size=500))
def test_work_is_bounded_whatever_comes(text):
    """Nothing raises, and no more is asked than the bound."""
    sent = sent_shingles([text, text * 3], pieces=True)
    assert max(len(sent.passages), len(sent.pieces)) <= ASKED
    list(shingles_kept(text))


CODE = "the number of the account is DE44-5001-0517-5407-3249-31"


WORDS_OF_IT = SECRET.split()
SPLITS = (
    (SECRET, WORDS_OF_IT),
    (CODE, ["DE4450", "0105", "175407", "32493", "1"]),
    (SECRET, [" ".join(WORDS_OF_IT[n : n + 2]) for n in range(0, len(WORDS_OF_IT), 2)]),
)
FORMS = (
    str,
    "regarding your order, {} as agreed, kind regards".format,
    lambda piece: base64.b64encode(f"note: {piece} end".encode()).decode(),
    lambda piece: f"note: {piece} end".encode().hex(),
    lambda piece: f"https://a.test/x?q={piece.replace(' ', '+')}&lang=en",
)


def drawn(seed):
    """Return a text, its pieces in some order, and how each is written."""
    draw = random.Random(seed)
    text, pieces = SPLITS[seed % 3]
    return text, [draw.choice(FORMS)(piece) for piece in draw.sample(pieces, len(pieces))]


async def told(agent, pieces):
    """Send pieces, each in a call of a new session; return the reason codes that there were."""
    codes = set()
    for number, piece in enumerate(pieces):
        verdict = await agent.in_session(f"s{number}").call("send", {"to": TO, "body": piece})
        codes.update(reason.code for reason in verdict.reasons)
    return codes


@pytest.mark.parametrize("seed", range(6))
async def test_private_text_in_pieces_over_calls_adds_up(agent, seed):
    """Words of a sentence or parts of a code, in any order, coding and session."""
    text, pieces = drawn(seed)
    await agent.call("recall", {"key": "k"}, text)

    codes = await told(agent, pieces)

    assert "private_in_pieces" in codes
    assert "private_in_body" not in codes


async def test_without_the_option_pieces_pass(store, policy_from):
    """Switched off, none of the same attempts is seen."""
    off = Agent(guard_on(store, policy_from(PRIVATE.replace("     over_calls: 0.75}", "     }"))))
    for seed in range(4):
        private, pieces = drawn(seed)
        await off.call("recall", {"key": f"k{seed}"}, private)

        assert "private_in_pieces" not in await told(off, pieces)


async def test_parallel_pieces_see_each_other(agent):
    """They are counted when they are asked for."""
    await agent.call("recall", {"key": "k"}, SECRET)

    sends = [agent.call("send", {"to": TO, "body": word}) for word in SECRET.split()]
    codes = {r.code for verdict in await asyncio.gather(*sends) for r in verdict.reasons}

    assert "private_in_pieces" in codes


async def test_a_refused_piece_stays_counted(agent):
    """So the same call, asked for again, is refused again."""
    await agent.call("recall", {"key": "k"}, SECRET)
    words = SECRET.split()
    await told(agent, words)

    assert "private_in_pieces" in await told(agent, [words[-1]])


@pytest.mark.parametrize(
    "secret",
    [
        "ghp_0a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R",
        "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",
        "password=Kr7tzP2wq9Lm",
    ],
    ids=["token", "long key", "password"],
)
async def test_a_secret_that_any_tool_returned_is_private(agent, secret):
    """In halves over two calls, though no mapping says that the tool's text is private."""
    await agent.call("read", {"id": 1}, f"here it is: {secret} bye")
    half = len(secret) // 2

    assert "private_in_pieces" not in await told(agent, [secret[:half]])
    assert "private_in_pieces" in await told(agent, [secret[half:]])
