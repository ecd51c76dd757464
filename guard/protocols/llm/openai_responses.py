"""OpenAI Responses: events of a stream and the text in place of a refused call.  Pure: no I/O."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final

from guard.core.errors import MessageError
from guard.protocols.llm.model_answers import APPROVAL, Held, expect_list, expect_text, render_event
from guard.protocols.llm.model_requests import hosted
from guard.protocols.llm.table import CODE, ApiTable, dig, load_table
from guard.protocols.llm.table_answers import IndexedAnswer, OpenCall
from guard.protocols.llm.table_requests import TableApi
from guard.protocols.messages import Echo

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from guard.core.model import Json
    from guard.protocols.llm.model_answers import Piece
    from guard.protocols.llm.table import EventFields
    from guard.protocols.llm.table_answers import Slot
    from guard.protocols.messages import Message

TABLE: Final = load_table("openai_responses")


class ResponsesAnswer(IndexedAnswer):
    """Reader of a response, which is a list of items; some events repeat the response so far."""

    table: ClassVar[ApiTable] = TABLE

    def on_start(self, document: dict[str, Json], fields: EventFields, name: str) -> None:
        """Start an item."""
        del fields, name
        slot, item = self.slot(document), _item(document)
        kind = self.call_kind(item, is_complete=False)
        if slot in self.open:
            raise MessageError(CODE, "an item started twice")
        if kind is not None:
            self.start(slot, item, kind)

    def on_finish(self, document: dict[str, Json], fields: EventFields, name: str) -> None:
        """End an item, which the event contains as a whole."""
        del fields, name
        slot, item = self.slot(document), _item(document)
        kind, call = self.call_kind(item), self.open.get(slot)
        if call is not None and (kind != call.kind or call.final is not None):
            raise MessageError(CODE, "an item has two types or ended twice")
        if kind is not None:
            call = call or self.start(slot, item, kind)
            call.final = item
            self.waiting.discard(slot[0])

    def _incomplete(self, document: dict[str, Json]) -> OpenCall:
        call = self.open.get(self.slot(document))
        if call is None or call.final is not None:
            raise MessageError(CODE, "arguments of a call that has not started or has ended")
        return call

    def on_append(self, document: dict[str, Json], fields: EventFields, name: str) -> None:
        """Add a fragment to the arguments of a call."""
        del name
        text = expect_text(document.get(fields.member), fields.member)
        self._incomplete(document).append(text, self.part(document))

    def on_compare(self, document: dict[str, Json], fields: EventFields, name: str) -> None:
        """Compare the arguments of a call with their fragments."""
        del name
        text = expect_text(document.get(fields.member), fields.member)
        if self._incomplete(document).text(self.part(document)) != text:
            raise MessageError(CODE, "a call has two different arguments")

    def on_pass(
        self, document: dict[str, Json], fields: EventFields, name: str
    ) -> Sequence[Piece] | None:
        """Pass an event; judge the calls of a response that it repeats."""
        del fields
        if "item" in document:
            raise MessageError(CODE, "an event of this type has no item")
        if "response" not in document:
            return None
        if self.open or not isinstance(document["response"], dict):
            raise MessageError(CODE, "a response must be an object and not end inside a call")
        raw = self.release()
        calls, settle = self.whole([document["response"]])

        def settled(notices: Sequence[str | None]) -> bytes:
            changed = settle(notices)
            return raw if changed is None else render_event(
                {**document, "response": changed[0]}, name
            )

        return [Held(calls, settled)]

    def assemble(self, call: OpenCall) -> dict[str, Json]:
        """Return the item, if its start, its fragments and its end agree."""
        item = call.final
        if item is None:
            raise MessageError("bad_call", "a call never ended")
        fields = self.table.calls[call.kind]
        said = dig(item, fields.arguments or fields.text or fields.streamed)
        whole = said if isinstance(said, list) else [said]
        for part in call.texts:
            if (text := call.text(part)) and text != dict(enumerate(whole)).get(part):
                raise MessageError("bad_call", "a call has two different arguments")
        for member in ("name", "call_id", "type"):
            if call.unit.get(member) not in {None, item.get(member)}:
                raise MessageError("bad_call", f"a call has two different `{member}`")
        return item

    def replacement(self, document: dict[str, Json], notice: str) -> list[bytes]:
        """Return the events of a message; all have the number of the event they replace."""
        index, number = document["output_index"], document.get("sequence_number", 0)
        item = _message(document["item"], index, notice)
        place = {"item_id": item["id"], "output_index": index, "content_index": 0}
        [part] = item["content"]
        text = {**place, "logprobs": []}
        empty = {**item, "status": "in_progress", "content": []}
        events: tuple[tuple[str, dict[str, Json]], ...] = (
            ("response.output_item.added", {"output_index": index, "item": empty}),
            ("response.content_part.added", {**place, "part": {**part, "text": ""}}),
            ("response.output_text.delta", {**text, "delta": notice}),
            ("response.output_text.done", {**text, "text": notice}),
            ("response.content_part.done", {**place, "part": part}),
            ("response.output_item.done", {"output_index": index, "item": item}),
        )
        return [
            render_event({"type": kind, "sequence_number": number, **members}, kind)
            for kind, members in events
        ]

    def units(self, document: dict[str, Json]) -> Iterator[tuple[Slot, dict[str, Json]]]:
        """Yield the items."""
        if self.has_units(document):
            for index, item in enumerate(expect_list(document["output"], "output")):
                yield (index,), item

    def replace(self, document: dict[str, Json], refused: Mapping[Slot, str], calls: int) -> None:
        """Put messages in place of the refused calls."""
        del calls
        output = document["output"]
        for (index,), notice in refused.items():
            output[index] = _message(output[index], index, notice)


def _item(document: dict[str, Json]) -> dict[str, Json]:
    item = document.get("item")
    if not isinstance(item, dict):
        raise MessageError(CODE, "an item must be an object")
    return item


def _message(item: Mapping[str, Json], index: int, notice: str) -> dict[str, Json]:
    return {
        "id": f"msg_{item.get('id') or index}",
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [{"type": "output_text", "text": notice, "annotations": []}],
    }


class OpenAiResponsesProtocol(TableApi):
    """``POST …/responses``, and what reads or cancels a stored response."""

    name: ClassVar[str] = TABLE.name
    table: ClassVar[ApiTable] = TABLE

    def message(self, body: Mapping[str, Json]) -> Message:
        """Return the reported results, the tools of the provider, and approvals of its calls."""
        echoes = tuple(
            Echo(
                f"{APPROVAL}{item.get('approval_request_id')}",
                hosted("mcp_approval_response", item),
                answers=True,
            )
            for item in self.turns(body)
            if item.get("type") == "mcp_approval_response" and item.get("approve") is not False
        )
        return replace(super().message(body), echoes=echoes)

    def answer_reader(self, message: Message) -> ResponsesAnswer:
        """Return the reader of a response."""
        return ResponsesAnswer(message.parsed)
