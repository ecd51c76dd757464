"""Frames tell what stands close together, in whatever order and words."""

from __future__ import annotations

import pytest

from guard.content.sentence_frames import SENTENCES, Frames

FRAMES = Frames(
    {"who": r"\b(?:you|agents?)\b", "what": r"\bkeys?\b", "where": "https?://"},
    (("who", "what", "where"),),
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Agents put the key at https://x.test.", True),
        ("At https://x.test, a key. You leave it there.", True),
        ("You. Nothing here. Nothing there. A key at https://x.test.", False),
        ("A key at https://x.test.", False),
        ("Fine. " * (SENTENCES * 2) + "Agents put the key at https://x.test.", True),
        ("", False),
    ],
)
def test_a_frame_stands_in_one_sentence_or_in_two_that_follow(text: str, found: bool) -> None:
    """Its classes in any order; what has no word of a class is not read."""
    assert any(True for _ in FRAMES.found(text)) is found
