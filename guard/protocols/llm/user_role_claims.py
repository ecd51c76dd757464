"""Values that a conversation has its user name: a claim of the agent.  Pure: no I/O.

Frameworks put retrieved text into messages of that role, so a value counts only if the prompt
reader attests it in the newest turn and the conversation before does not contain it.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from guard.core.json_values import strings_in
from guard.provenance.prompt_reader import read_prompt

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guard.core.model import Json

CLAIM_LIMIT: Final = 64
"""Values that one request may claim."""
_PLAIN: Final = frozenset({None, "text", "input_text"})
"""Types of the parts in which a user's words stand."""
LOOKED_UP: Final = 256
"""Values that are looked for in the rest of the conversation: each is a pass over it."""


def claimed_values(messages: Sequence[Json], *elsewhere: Json) -> tuple[str, ...]:
    """Return the values that the newest turn of the user attests.

    Args:
        messages: the conversation, oldest first, each with a ``role``.
        elsewhere: what else the model reads: instructions, which memory may stand in.
    """
    turns = [dict(message) for message in messages if isinstance(message, dict)]
    start = len(turns)
    while start > 0 and turns[start - 1].get("role") == "user":
        start -= 1
    said: list[str] = []
    others: list[str] = list(strings_in([*elsewhere, turns[:start]]))
    for turn in turns[start:]:
        for part in _parts(turn):
            if isinstance(part, str):
                said.append(part)
            else:
                others += strings_in(part)
    named = (value for text in said for value in read_prompt(text).attested)
    values = dict.fromkeys(islice(named, LOOKED_UP))
    if not values:
        return ()
    before = "\n".join(others).casefold()
    return tuple(v for v in values if _text_of(v) not in before)[:CLAIM_LIMIT]


def _parts(turn: dict[str, Json]) -> Iterator[Json]:
    """Yield the parts of a turn; the user's own words as texts."""
    content = turn.get("content", turn.get("parts"))
    for part in content if isinstance(content, list) else [content]:
        if not isinstance(part, dict):
            yield part
        elif part.get("type") in _PLAIN and isinstance(part.get("text"), str):
            yield part["text"]
            yield {key: value for key, value in part.items() if key != "text"}
        else:
            yield part


def _text_of(value: str) -> str:
    """Return a value as it would stand in a text."""
    return value.partition(":")[2].lstrip("/").casefold()
