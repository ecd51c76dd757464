"""Reader of Chat Completions: choices whose calls come in fragments.  Pure: no I/O.

A refused call leaves its list, and the other calls are numbered anew: clients expect no gaps.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Final

from guard.core.errors import MessageError
from guard.protocols.llm.model_answers import expect_list, expect_text, render_event
from guard.protocols.llm.table import CODE, dig, reject_unknown_members
from guard.protocols.llm.table_answers import OpenCall, TableAnswer, position

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from guard.core.model import Json
    from guard.protocols.llm.model_answers import AnswerEvent
    from guard.protocols.llm.table_answers import Place, Slot

LEGACY: Final = -1
"""The position of a ``function_call`` among the calls of a choice."""
_OTHER: Final = {"delta": "message", "message": "delta"}


class ChatAnswer(TableAnswer):
    """Reader of a completion or of its chunks."""

    def on_event(self, document: dict[str, Json], event: AnswerEvent) -> None:
        """Read the fragments of a chunk."""
        del event
        for index, choice, fragments in self._choices(document, "delta"):
            if fragments and (index,) in self._classes:
                raise MessageError(CODE, "a tool call after the end of its choice")
            for place, fragment in fragments:
                call = self.open.get((index, place)) or self.start((index, place), {}, "")
                self._merge(call, fragment)
            if choice.get("finish_reason") is not None:
                self._classes[index,] = "finished"
                self.waiting.discard(index)

    def _choices(
        self, document: dict[str, Json], member: str
    ) -> Iterator[tuple[int, dict[str, Json], list[tuple[int, dict[str, Json]]]]]:
        """Yield index, choice and calls by position.

        Args:
            document: a completion or a chunk of it.
            member: the member of a choice with the calls.
        """
        if member == "message" and not self.has_units(document):
            return
        members = self.answer["members"]
        reject_unknown_members(document, members["choices"], "an answer")
        for choice in expect_list(document.get("choices"), "choices"):
            reject_unknown_members(choice, members["choice"], "a choice")
            index, message = position(choice.get("index", 0)), choice.get(member)
            message = {} if message is None else message
            if not isinstance(message, dict) or choice.get(_OTHER[member]):
                raise MessageError(CODE, f"a choice must have a `{member}` and not the other one")
            reject_unknown_members(message, members["message"], "a message")
            calls = [
                (position(call.get("index")) if member == "delta" else number, call)
                for number, call in enumerate(expect_list(message.get("tool_calls"), "tool_calls"))
            ]
            if (legacy := message.get("function_call")) is not None:
                name = dig(legacy, "name")
                calls.append((LEGACY, {"id": f"name:{name}" if name else "", "function": legacy}))
            for _, call in calls:
                kinds = self.table.calls.keys() & call.keys()
                inner = (call[min(kinds)] if kinds else None) or {}
                if len(kinds) > 1 or not isinstance(inner, dict):
                    raise MessageError(CODE, "a tool call must be one object")
                reject_unknown_members(inner, members["function"], "a tool call")
            yield index, choice, calls

    def _merge(self, call: OpenCall, fragment: dict[str, Json]) -> None:
        """Add a fragment: id, kind and name come once, the arguments in pieces."""
        kind = next((one for one in self.table.calls if one in fragment), call.kind) or "function"
        self._call_kind(fragment)
        if call.kind not in {"", kind}:
            raise MessageError(CODE, "a tool call is of two kinds")
        call.kind, inner = kind, fragment.get(kind) or {}
        known = call.unit.setdefault(kind, {})
        for whole, part, member in ((call.unit, fragment, "id"), (known, inner, "name")):
            text = expect_text(part.get(member), member)
            if text and whole.get(member):
                raise MessageError(CODE, f"a tool call has its {member} twice")
            whole[member] = whole.get(member) or text
        argument = self._argument(kind)
        call.append(expect_text(inner.get(argument), argument))
        call.unit = {**fragment, **call.unit}

    def _argument(self, kind: str) -> str:
        fields = self.table.calls[kind]
        return str(fields.get("arguments") or fields["text"]).removeprefix(f"{kind}.")

    def assemble(self, call: OpenCall) -> dict[str, Json]:
        """Return a call with all its arguments."""
        inner = {**call.unit[call.kind], self._argument(call.kind): call.text()}
        return {**call.unit, call.kind: inner}

    def rewrite(
        self,
        events: Sequence[AnswerEvent],
        calls: Mapping[Slot, OpenCall],
        refused: Mapping[Slot, str],
    ) -> list[bytes]:
        """Drop the fragments; the first one gives way to the texts and the other calls."""
        out: list[bytes] = []
        units = {slot: self.assemble(call) for slot, call in calls.items()}
        done: set[int] = set()
        for event in events:
            document = copy.deepcopy(event.document) or {}
            for choice in document.get("choices") or ():
                index = choice.get("index", 0)
                if _replace_calls(choice, "delta", units, refused, is_first=index not in done):
                    done.add(index)
            if document == (event.document or {}):
                out.append(event.raw)
            elif document.get("usage") or any(
                choice.get("delta") or choice.get("finish_reason") is not None
                for choice in document["choices"]
            ):
                out.append(render_event(document))
        return out

    def places(self, document: dict[str, Json]) -> Iterator[Place]:
        """Yield the calls."""
        for index, _, calls in self._choices(document, "message"):
            for place, call in calls:
                yield (index, place), [call], 0

    def replace(self, document: dict[str, Json], notices: Mapping[Slot, str | None]) -> None:
        """Take the refused calls out of their choices, and add the texts."""
        units = {slot: found[index] for slot, found, index in self.places(document)}
        refused = {slot: notice for slot, notice in notices.items() if notice is not None}
        for choice in document["choices"]:
            _replace_calls(choice, "message", units, refused, is_first=True)


def _replace_calls(
    choice: dict[str, Json],
    member: str,
    units: Mapping[Slot, dict[str, Json]],
    refused: Mapping[Slot, str],
    *,
    is_first: bool,
) -> bool:
    """Take all calls out of a choice with a refused one; add texts and other calls at the first.

    Returns:
        whether it had calls.
    """
    index, message = choice.get("index", 0), choice.get(member) or {}
    texts = [notice for slot, notice in sorted(refused.items()) if slot[0] == index]
    if not texts:
        return False
    had_calls = any([message.pop("tool_calls", None), message.pop("function_call", None)])
    kept = [(s[1], units[s]) for s in sorted(units) if s[0] == index and s not in refused]
    # Probabilities name the tokens, and so the arguments.
    if "logprobs" in choice:
        choice["logprobs"] = None
    if choice.get("finish_reason") is not None and not kept:
        choice["finish_reason"] = "stop"
    if had_calls and is_first:
        content, notice = message.get("content"), "\n".join(texts)
        if isinstance(content, list):
            message["content"] = [*content, {"type": "text", "text": notice}]
        else:
            message["content"] = f"{content}\n\n{notice}" if content else notice
        if kept and kept[0][0] == LEGACY:
            message["function_call"] = kept.pop(0)[1]["function"]
        if kept:
            is_delta = member == "delta"
            numbers = ({"index": number} if is_delta else {} for number in range(len(kept)))
            message["tool_calls"] = [
                {**unit, **number} for (_, unit), number in zip(kept, numbers, strict=True)
            ]
    return had_calls
