"""Text that others wrote, made safe for a terminal."""

from __future__ import annotations


def plain(text: str) -> str:
    """Return the text with everything escaped that could move the cursor or hide text."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )
