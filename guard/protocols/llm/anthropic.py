"""Anthropic Messages: events of a stream and the text in place of a refused call.  Pure: no I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from guard.core.errors import MessageError
from guard.protocols.llm.model_answers import expect_list, expect_text, render_event
from guard.protocols.llm.table import CODE, ApiTable, load_table, reject_unknown_members
from guard.protocols.llm.table_answers import IndexedAnswer, OpenCall, PastCalls
from guard.protocols.llm.table_requests import TableApi

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from guard.core.model import Json
    from guard.protocols.llm.model_answers import AnswerEvent, Piece
    from guard.protocols.llm.table import EventFields
    from guard.protocols.llm.table_answers import Slot
    from guard.protocols.messages import Message

TABLE: Final = load_table("anthropic")
_CALLS_FOLLOW: Final = "tool_use"
"""Reason for the end of a message with calls."""


class MessagesAnswer(IndexedAnswer):
    """Reader of a message, which is a list of blocks."""

    table: ClassVar[ApiTable] = TABLE

    def __init__(self, past: PastCalls | None = None) -> None:
        super().__init__(past)
        self._classes: dict[Slot, str] = {}
        """Class of each block that has started."""

    def on_event(self, document: dict[str, Json], event: AnswerEvent) -> Sequence[Piece] | None:
        """Read an event, whose members are all known."""
        reject_unknown_members(document, self.table.members["event"], "an event")
        return super().on_event(document, event)

    def on_open(self, document: dict[str, Json], fields: EventFields, name: str) -> None:
        """Start the message, which must be empty."""
        del fields, name
        message = document.get("message")
        if not isinstance(message, dict) or message.get("content") or self._classes:
            raise MessageError(CODE, "a message must start empty, once")
        reject_unknown_members(message, self.table.members["answer"], "a message")

    def on_start(self, document: dict[str, Json], fields: EventFields, name: str) -> None:
        """Start a block."""
        del fields, name
        slot, block = self.slot(document), document.get("content_block")
        if not isinstance(block, dict) or slot in self._classes:
            raise MessageError(CODE, "a content block must be an object and start once")
        kind = self.call_kind(block)
        self._classes[slot] = self.table.units["blocks"].classes[block["type"]]
        if kind is not None:
            self.start(slot, block, kind)

    def on_append(self, document: dict[str, Json], fields: EventFields, name: str) -> None:
        """Add a delta to its block."""
        del fields, name
        slot, delta = self.slot(document), document.get("delta")
        given = self._classes.get(slot)
        if not isinstance(delta, dict) or given is None:
            raise MessageError(CODE, "a delta must be an object of a block that has started")
        member = self.table.deltas.get(str(delta.get("type")))
        if member is None:
            raise MessageError(CODE, f"deltas of type `{str(delta.get('type'))[:40]}` are not known")
        if (given == "call" and slot[0] not in self.waiting) or (
            given != "inert" and (given == "call") != bool(member)
        ):
            raise MessageError(CODE, "a delta does not fit its block")
        if given == "call":
            self.open[slot].append(expect_text(delta.get(member), member))

    def on_finish(self, document: dict[str, Json], fields: EventFields, name: str) -> None:
        """End a block."""
        del fields, name
        self.waiting.discard(self.slot(document)[0])

    def on_close(self, document: dict[str, Json], fields: EventFields, name: str) -> list[bytes]:
        """Return the event with the reason for the end, true to the calls that were released."""
        del fields
        if self.open:
            raise MessageError(CODE, "a message ended inside a tool call")
        raw, delta = self.release(), document.get("delta")
        if not isinstance(delta, dict):
            raise MessageError(CODE, "the delta of a message must be an object")
        if self.released or not self.refused or delta.get("stop_reason") != _CALLS_FOLLOW:
            return [raw]
        changed = {**document, "delta": {**delta, "stop_reason": "end_turn"}}
        return [render_event(changed, name)]

    def on_pass(self, document: dict[str, Json], fields: EventFields, name: str) -> None:
        """Pass an event without a block."""

    def assemble(self, call: OpenCall) -> dict[str, Json]:
        """Return the block with the input of its start or of its deltas."""
        text, start = call.text(), call.unit.get("input")
        if text and start:
            raise MessageError("bad_call", "a tool call has its input twice")
        return {**call.unit, "input": text or start}

    def replacement(self, document: dict[str, Json], notice: str) -> list[bytes]:
        """Return the events of a block of text."""
        events: tuple[tuple[str, dict[str, Json]], ...] = (
            ("content_block_start", {"content_block": {"type": "text", "text": ""}}),
            ("content_block_delta", {"delta": {"type": "text_delta", "text": notice}}),
            ("content_block_stop", {}),
        )
        index = document["index"]
        return [render_event({"type": t, "index": index, **members}, t) for t, members in events]

    def units(self, document: dict[str, Json]) -> Iterator[tuple[Slot, dict[str, Json]]]:
        """Yield the blocks."""
        if self.has_units(document):
            reject_unknown_members(document, self.table.members["answer"], "a message")
            for index, block in enumerate(expect_list(document["content"], "content")):
                yield (index,), block

    def replace(self, document: dict[str, Json], refused: Mapping[Slot, str], calls: int) -> None:
        """Put blocks of text in place of the refused calls."""
        for (index,), notice in refused.items():
            document["content"][index] = {"type": "text", "text": notice}
        if len(refused) == calls and document.get("stop_reason") == _CALLS_FOLLOW:
            document["stop_reason"] = "end_turn"


class AnthropicMessagesProtocol(TableApi):
    """``POST …/v1/messages``."""

    name: ClassVar[str] = TABLE.name
    table: ClassVar[ApiTable] = TABLE

    def answer_reader(self, message: Message) -> MessagesAnswer:
        """Return the reader of a message."""
        return MessagesAnswer(message.parsed)
