"""Gemini ``generateContent``: the text in place of a refused call.  Pure: no I/O.

A function call comes whole in one part, so each event of a stream is judged by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from guard.core.errors import MessageError
from guard.protocols.llm.model_answers import Held, expect_list, render_event
from guard.protocols.llm.table import CODE, ApiTable, load_table, reject_unknown_members
from guard.protocols.llm.table_answers import TableAnswer
from guard.protocols.llm.table_requests import TableApi

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from guard.core.model import Json
    from guard.protocols.llm.model_answers import AnswerEvent, Piece
    from guard.protocols.llm.table_answers import OpenCall, Slot
    from guard.protocols.messages import Message

TABLE: Final = load_table("gemini")


class GeminiAnswer(TableAnswer):
    """Reader of a generation, which is a list of candidates with parts."""

    table: ClassVar[ApiTable] = TABLE
    sign: ClassVar[bytes] = b"\n"
    """An empty line: the google-genai client takes a comment for data."""

    def on_event(self, document: dict[str, Json], event: AnswerEvent) -> Sequence[Piece]:
        """Read an event, which is a whole generation."""
        raw = self.release()
        calls, settle = self.whole([document])
        name = "" if event.name == "message" else event.name

        def settled(notices: Sequence[str | None]) -> bytes:
            changed = settle(notices)
            return raw if changed is None else render_event(changed[0], name)

        return [Held(calls, settled)]

    def rewrite(
        self,
        events: Sequence[AnswerEvent],
        calls: Mapping[Slot, OpenCall],
        refused: Mapping[Slot, str],
    ) -> list[bytes]:
        """Return nothing: calls are never held beyond their event."""
        del events, calls, refused
        return []

    def units(self, document: dict[str, Json]) -> Iterator[tuple[Slot, dict[str, Json]]]:
        """Yield the parts."""
        members = self.table.members
        reject_unknown_members(document, members["answer"], "an answer")
        candidates = document["candidates"] if self.has_units(document) else []
        for number, candidate in enumerate(expect_list(candidates, "candidates")):
            reject_unknown_members(candidate, members["candidate"], "a candidate")
            content = candidate.get("content") or {}
            if not isinstance(content, dict):
                raise MessageError(CODE, "the content of a candidate must be an object")
            reject_unknown_members(content, members["content"], "a content")
            for place, part in enumerate(expect_list(content.get("parts"), "parts")):
                yield (number, place), part

    def replace(self, document: dict[str, Json], refused: Mapping[Slot, str], calls: int) -> None:
        """Put parts of text in place of the refused calls."""
        del calls
        for (number, place), notice in refused.items():
            candidate = document["candidates"][number]
            candidate["content"]["parts"][place] = {"text": notice}
            # Probabilities name the tokens, and so the arguments.
            candidate.pop("logprobsResult", None)


class GeminiProtocol(TableApi):
    """``POST …:generateContent`` and ``…:streamGenerateContent``."""

    name: ClassVar[str] = TABLE.name
    table: ClassVar[ApiTable] = TABLE

    def answer_reader(self, message: Message) -> GeminiAnswer:
        """Return the reader of a generation."""
        return GeminiAnswer(message.parsed)
