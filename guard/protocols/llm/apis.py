"""The four model APIs: requests read by a table each.  Pure: no I/O.

A request contains the conversation so far: calls, results of tools that the agent runs, and words.
Results are reported to be labelled, tools of the provider are calls.  A value that the newest turn
of the role ``user`` names is a claim of the agent: frameworks put retrieved text into that role, so
it counts only if the prompt reader attests it and the conversation before does not contain it.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, ClassVar, Final

from guard.core.errors import MessageError
from guard.core.json_values import strings_in
from guard.protocols.llm.model_answers import APPROVAL
from guard.protocols.llm.model_requests import (
    ModelApi,
    fetched,
    hosted,
    objects,
    past_call,
    text_content,
)
from guard.protocols.llm.table import MEMBERS, ApiTable, Units, dig, load_table, numbered
from guard.protocols.llm.table_answers import ChatAnswer, PastCalls, TableAnswer
from guard.protocols.messages import Echo, Message, ParsedCall, ReportedResult
from guard.provenance.prompt_reader import read_prompt

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from guard.core.model import Json

_AFTER_UNDERSCORE = re.compile("_([a-z])")


class TableApi(ModelApi):
    """A model API that has a table."""

    table: ClassVar[ApiTable]

    def __init_subclass__(cls) -> None:
        """Take name, shape and members of a request from the table."""
        cls.name, cls.shape = cls.table.name, cls.table.shape
        cls.known = frozenset(cls.table.request["read"])
        cls.inert = frozenset(cls.table.request["inert"])

    def answer_reader(self, message: Message) -> TableAnswer:
        """Return the reader of the answer."""
        return TableAnswer(self.table, message.parsed)

    def serves(self, path: str) -> bool:
        """Return whether the path is one of the table."""
        return re.search(self.table.path, path) is not None

    def turns(self, body: Mapping[str, Json]) -> list[dict[str, Json]]:
        """Return the turns of the conversation; a text may be a turn of the user.

        Raises:
            MessageError: it is neither a text nor a list of objects.
        """
        found = body.get(self.table.request["turns"])
        if isinstance(found, str) and "text" in self.table.request:
            return [{"role": self.table.request["text"], "content": found}]
        return objects(found, self.table.request["turns"])

    def message(self, body: Mapping[str, Json]) -> Message:
        """Return the reported results and the tools of the provider."""
        request, turns = self.table.request, self.turns(body)
        history = _History(self.table)
        for turn in turns:
            for units, unit in self._units(turn):
                history.add(units, unit)
        tools = [*objects(body.get("tools"), "tools"), *history.tools]
        instructions = [body.get(member) for member in request.get("instructions", ())]
        fetched_from = [*instructions, *(body.get(member) for member in request.get("fetched", ()))]
        return Message(
            (*self._hosted(tools), *self._hosted_members(body), *fetched(turns, *fetched_from)),
            tuple(history.reported),
            user_role_claims=claimed_values(turns, *instructions),
            parsed=history.past,
        )

    def _units(self, turn: dict[str, Json]) -> Iterator[tuple[Units, dict[str, Json]]]:
        for units in self.table.units.values():
            found = turn.get(units.member) if units.member else [turn]
            if isinstance(found, str) and units.tag != MEMBERS:
                continue
            if units.unknown != "refuse":
                listed = found if isinstance(found, list) else [found]
                found = [unit for unit in listed if isinstance(unit, dict)]
            for unit in objects(found, units.member):
                yield units, _camel(unit) if self.table.request.get("snake_case") else unit

    def _hosted(self, tools: list[dict[str, Json]]) -> Iterator[ParsedCall]:
        """Yield a call for every tool that the provider runs."""
        for tool in tools:
            if self.table.request["tool_tag"] == MEMBERS:
                own = re.compile(self.table.request["own_tools"])
                for name, value in tool.items():
                    if not own.fullmatch(name.replace("_", "").casefold()):
                        yield hosted(name, value)
            elif not self._is_own(tool):
                yield hosted(str(tool.get("type")), tool)

    def _is_own(self, tool: Mapping[str, Json]) -> bool:
        """Return whether the agent runs a tool itself."""
        request = self.table.request
        kind = tool.get("type")
        name = request.get("untyped_tool", "") if kind is None else str(kind)
        if name in request.get("tool_groups", ()):
            return all(self._is_own(inner) for inner in objects(tool.get("tools"), "tools"))
        if condition := request.get("own_when", {}).get(name):
            return all(dig(dict(tool), path) == value for path, value in condition.items())
        return re.fullmatch(request["own_tools"], name) is not None

    def _hosted_members(self, body: Mapping[str, Json]) -> Iterator[ParsedCall]:
        """Yield a call for every member that asks for a tool of the provider."""
        for member, name in self.table.request.get("hosted", {}).items():
            value = body.get(member)
            if isinstance(value, str) and member in self.table.request.get("named", ()):
                continue
            is_list = member in self.table.request.get("lists", ())
            for one in objects(value, member) if is_list else [value]:
                if one is not None:
                    yield hosted(name, one)


class _History:
    """The calls and results of a conversation."""

    def __init__(self, table: ApiTable) -> None:
        self._table = table
        self._calls: dict[str, ParsedCall] = {}
        self._answered: Counter[str] = Counter()
        self.past = PastCalls()
        self.reported: list[ReportedResult] = []
        self.tools: list[dict[str, Json]] = []
        """Tools that units add to those of the request."""

    def add(self, units: Units, unit: dict[str, Json]) -> None:
        """Read a unit.

        Raises:
            MessageError: its kind is refused or unknown.
        """
        request = self._table.request
        for kind, given in units.kinds(unit, untyped=units.untyped):
            if given == "call":
                name, arguments, key = self._table.call_parts(kind, unit, self.past.counts)
                if isinstance(key, str) and key:
                    self._calls[key] = past_call(name, arguments, key)
            elif given == "result" and kind in self._table.results:
                self._add_result(kind, unit)
            elif given == "result" and kind not in units.classes:
                # An unknown part may repeat a result, so it is labelled as one.
                self.reported.append(ReportedResult(past_call(None, None, ""), unit))
            self.past.programs.update(self._table.programs(kind, unit))
            if "brings" in request and kind not in request.get("brings_not", ()):
                brought = dig(unit, request["brings"])
                self.tools += objects([brought] if isinstance(brought, dict) else brought, "tools")

    def _add_result(self, kind: str, unit: dict[str, Json]) -> None:
        fields = self._table.results[kind]
        key = dig(unit, fields["call"])
        name = dig(unit, fields["name"]) if "name" in fields else None
        if "numbered" in fields:
            key = numbered(name, key, self._answered)
        identifier = fields.get("prefix", "") + key if isinstance(key, str) else ""
        call = self._calls.get(identifier) or past_call(name, None, identifier)
        content = text_content(dig(unit, fields["content"]))
        is_error = "error" in fields and dig(unit, fields["error"]) is True
        self.reported.append(ReportedResult(call, content, is_error))


def _camel(unit: Mapping[str, Json]) -> dict[str, Json]:
    """Return a unit with its member names in camel case.

    Raises:
        MessageError: a member has both spellings.
    """
    found = {_AFTER_UNDERSCORE.sub(lambda m: m[1].upper(), name): unit[name] for name in unit}
    if len(found) != len(unit):
        raise MessageError("ambiguous_key", "a member of a part is there under two names")
    return found


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


class OpenAiChatProtocol(TableApi):
    """``POST …/chat/completions``."""

    table = load_table("openai_chat")

    def answer_reader(self, message: Message) -> TableAnswer:
        """Return the reader of a completion."""
        return ChatAnswer(self.table, message.parsed)


class OpenAiResponsesProtocol(TableApi):
    """``POST …/responses``, and what reads or cancels a stored response."""

    table = load_table("openai_responses")

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


class AnthropicMessagesProtocol(TableApi):
    """``POST …/v1/messages``."""

    table = load_table("anthropic")


class GeminiProtocol(TableApi):
    """``POST …:generateContent`` and ``…:streamGenerateContent``."""

    table = load_table("gemini")
