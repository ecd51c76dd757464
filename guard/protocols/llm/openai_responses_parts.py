"""The parts of a Responses answer: which items are calls, and what replaces them.  Pure: no I/O."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Final

from guard.core.errors import MessageError
from guard.protocols import ParsedCall
from guard.protocols.framing.jsonrpc import refuse_lookalikes
from guard.protocols.llm.model_answers import CODE, proposal, render_event

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guard.core.model import Json
    from guard.protocols.llm.model_answers import AnswerEvent, Proposal

CALLS: Final = frozenset(
    {
        "function_call",
        "custom_tool_call",
        "computer_call",
        "local_shell_call",
        "shell_call",
        "apply_patch_call",
        "mcp_approval_request",
    }
)
"""Items that the agent carries out, or allows the provider to."""
_PASSIVE: Final = frozenset(
    {
        "message",
        "reasoning",
        "compaction",
        "web_search_call",
        "file_search_call",
        "code_interpreter_call",
        "image_generation_call",
        "mcp_call",
        "mcp_list_tools",
    }
)
"""What the provider did itself; asking for such tools was judged in the request."""
ADDED: Final = "response.output_item.added"
ITEM_DONE: Final = "response.output_item.done"
_ITEM: Final = ("type", "id", "call_id", "name", "arguments", "input", "action", "operation")
_PLAIN: Final = frozenset({"id", "type", "status", "call_id", "caller"})


def read_item(item: Mapping[str, Json]) -> Proposal:
    """Return the call that an item is."""
    try:
        refuse_lookalikes(item, _ITEM)
    except MessageError as error:
        return error
    kind, key = item["type"], item.get("call_id", item.get("id"))
    if kind == "custom_tool_call":
        return proposal(item.get("name"), {"input": item.get("input", "")}, key)
    if kind in {"function_call", "mcp_approval_request"}:
        return proposal(item.get("name"), item.get("arguments", ""), key)
    return proposal(kind, {k: v for k, v in item.items() if k not in _PLAIN}, key)


class WholeResponse:
    """A response as a whole: what of it was judged, and what is new.

    Args:
        response: the response.
        judged: earlier verdicts by the id of the call.
    """

    def __init__(
        self, response: Mapping[str, Json], judged: Mapping[str, tuple[ParsedCall, str | None]]
    ) -> None:
        self._response = response
        self._judged = judged
        self._old: dict[int, str] = {}
        self._new: list[int] = []
        self.calls: list[Proposal] = []

    def add(self, index: int, call: Proposal) -> None:
        """Take in a call; only one that was judged exactly so is not judged again."""
        known = self._judged.get(call.correlation or "") if isinstance(call, ParsedCall) else None
        if known is None or known[0] != call:
            self._new.append(index)
            self.calls.append(call)
        elif known[1] is not None:
            self._old[index] = known[1]

    def __call__(self, notices: Sequence[str | None]) -> dict[str, Json] | None:
        """Return the response without what was refused, None where nothing was."""
        refused = dict(self._old)
        refused |= {i: n for i, n in zip(self._new, notices, strict=True) if n is not None}
        if not refused:
            return None
        document = copy.deepcopy(dict(self._response))
        for index, notice in refused.items():
            old = document["output"][index]
            document["output"][index] = _message(str(old.get("id") or index), notice)
        return document


def kind_of(item: Mapping[str, Json]) -> str:
    """Return the type of an item.

    Raises:
        MessageError: it is not known.
    """
    kind = item.get("type")
    if kind not in CALLS and kind not in _PASSIVE:
        raise MessageError(CODE, f"items of type `{str(kind)[:40]}` are not known")
    return str(kind)


def _message(identifier: str, notice: str, *, whole: bool = True) -> dict[str, Json]:
    return {
        "id": f"msg_{identifier}",
        "type": "message",
        "status": "completed" if whole else "in_progress",
        "role": "assistant",
        "content": [_part(notice)] if whole else [],
    }


def _part(text: str) -> dict[str, Json]:
    return {"type": "output_text", "text": text, "annotations": []}


def rewritten(events: Sequence[AnswerEvent], refused: Mapping[int, tuple[str, str]]) -> list[bytes]:
    """Return the events with an item of text in the place of each refused call."""
    out: list[bytes] = []
    told: set[int] = set()
    for event in events:
        document = event.document or {}
        index = document.get("output_index", -1)
        if index not in refused:
            out.append(event.raw)
        elif index not in told:
            told.add(index)
            out += _replacement(index, *refused[index], document.get("sequence_number", 0))
    return out


def _replacement(index: int, identifier: str, notice: str, number: Json) -> list[bytes]:
    """Return the events of a message; all have the number of the event they replace."""
    item = f"msg_{identifier}"
    place = {"item_id": item, "output_index": index, "content_index": 0}
    started = {"output_index": index, "item": _message(identifier, "", whole=False)}
    ended = {"output_index": index, "item": _message(identifier, notice)}
    events = (
        (ADDED, started),
        ("response.content_part.added", {**place, "part": _part("")}),
        ("response.output_text.delta", {**place, "delta": notice, "logprobs": []}),
        ("response.output_text.done", {**place, "text": notice, "logprobs": []}),
        ("response.content_part.done", {**place, "part": _part(notice)}),
        (ITEM_DONE, ended),
    )
    return [
        render_event({"type": kind, "sequence_number": number, **members}, kind)
        for kind, members in events
    ]
