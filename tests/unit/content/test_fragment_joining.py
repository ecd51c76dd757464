"""A secret that is sent in pieces is seen where the pieces are put together again."""

from __future__ import annotations

import codecs
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.content.fragment_joining import LIMIT, PIECES, deobfuscated, join_pieces, joined
from guard.core.calls import ClassifiedCall
from guard.core.model import Identity, Role, ToolCall
from guard.core.trajectory import Snapshot
from guard.detectors import DetectorResources
from guard.detectors import secrets as secret_detector
from guard.detectors.secrets import Secrets

FIRST, SECOND = "ghp_0a1B2c3D4e", "5F6g7H8i9J0k1L2m3N4o5P6q7R"
DETECTOR = Secrets.create(DetectorResources())


def finds(arguments: dict[str, object]) -> bool:
    """Return whether the detector finds a secret in a call's arguments."""
    call = ToolCall("id", Identity("p", "s"), "mail_send", arguments, "mcp", 0.0)
    return bool(DETECTOR.inspect(ClassifiedCall(call, Role.SEND), Snapshot()))


@pytest.mark.parametrize(
    "arguments",
    [
        {"subject": FIRST, "body": SECOND},
        {"parts": [FIRST, {"rest": SECOND}]},
        {"url": f"https://x.test/?a={FIRST}&b={SECOND}"},
        {"body": f"a={FIRST}&b={SECOND}"},
        {"body": json.dumps({"a": FIRST, "b": [SECOND]})},
        {"parts": [f"part1: {FIRST}", f"part2: {SECOND}"]},
        {"parts": [f"1/2={FIRST}", SECOND]},
    ],
)
def test_a_secret_in_pieces_is_found(arguments: dict[str, object]) -> None:
    """Over arguments, parameters, members; numbered or not."""
    assert finds(arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        {"subject": "task", "body": "sk-ip the meeting on Thursday afternoon with everybody"},
        {"url": "https://x.test/?a=1&b=two&sort=updated&page=3", "method": "GET"},
        {"a": "AKIA is a prefix", "b": "of key ids"},
    ],
)
def test_everyday_values_are_no_secret_where_they_meet(arguments: dict[str, object]) -> None:
    """Only forms that nothing else has are looked for."""
    assert not finds(arguments)


TOKEN = FIRST + SECOND


@pytest.mark.parametrize(
    "text",
    [
        TOKEN[::-1],
        codecs.encode(TOKEN, "rot13"),
        "AKIA-QWER-TYUI-OPAS-DFGH",
        ".".join("AKIAQWERTYUIOPASDFGH"),
        "https://a-b.test/x?ref=" + "-".join("hvs.T1YTKJj36paEXSpakcbL2xXdd9F"),
        "https://a.test/?t=" + "-".join("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl"),
    ],
)
def test_a_simply_obfuscated_secret_is_found(text: str) -> None:
    """Backwards, turned by 13 letters, with something between its letters."""
    assert finds({"note": text})


SPELT = [
    before + sign.join(token) + after
    for sign in "-_.+| "
    for token in (
        TOKEN,
        "AKIAQWERTYUIOPASDFGH",
        "sk-ant-" + SECOND * 2,
        "AIza" + FIRST[:9] + SECOND,
    )
    for before, after in (("my key is ", ""), ("see: ", " ok?"), ("", ", that is all of it"))
]
"""Keys with a sign behind every letter, among words."""


@pytest.mark.parametrize("text", SPELT)
def test_a_key_that_is_spelt_among_words_is_found(text: str) -> None:
    """The words on both sides are no part of it."""
    assert finds({"note": text})


def test_without_the_runs_most_keys_among_words_are_missed(monkeypatch) -> None:
    """Left out everywhere, a sign that parts letters joins the words around a key to it."""
    monkeypatch.setattr(secret_detector, "respelt", lambda _: ())

    assert sum(finds({"note": text}) for text in SPELT) < 0.7 * len(SPELT)


@given(st.text(max_size=200))
def test_any_text_can_be_deobfuscated(text: str) -> None:
    """Nothing raises."""
    assert text[::-1] in list(deobfuscated(text))


def test_what_is_joined_is_bounded() -> None:
    """Long texts and thousands of values are left as they are."""
    assert list(joined({"a": "x" * LIMIT, "b": "y"})) == []
    assert list(join_pieces(["x"] * (PIECES + 1))) == []
    assert list(join_pieces(["x"])) == []
