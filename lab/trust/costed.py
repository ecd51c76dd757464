"""Class 11: one message that costs more than its length, or keeps others waiting.

For every reader the search tries texts that are made of one or a few pieces again and again, and
keeps what is slowest.  Counted are steps and not seconds: lines of Python, and characters that
expressions go over.  An attempt succeeds where four times the text takes more than four times the
steps to the power of ``EXPONENT``, and four times that text again: what grows once is a bound that
was passed, or a reading that is tried from some length on.

Bodies that are never finished succeed where they are held beyond the budget or keep others out; a
large call or result where it is read in the loop that serves the others; and a call with more in
it than is looked through where it is forwarded.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import re
import sys
import threading
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from guard.core.errors import MessageError
from guard.core.model import Integrity
from guard.pep.message_budget import MessageBudget
from guard.pipeline import call_judge, call_reading, classification, result_judge
from guard.pipeline import guard as guard_module
from guard.protocols.framing.json_messages import parse_json
from guard.protocols.framing.sse import EventCutter
from guard.protocols.llm.apis import (
    AnthropicMessagesProtocol,
    OpenAiChatProtocol,
    OpenAiResponsesProtocol,
)
from guard.protocols.llm.model_answers import render_event
from guard.protocols.messages import Message
from guard.provenance import intake, prompt_reader, prompts, result_documents
from guard.values import canonical, decoder, instructions, leaks
from guard.values import finding as values
from guard.values.shingles import pieces_kept, sent_shingles, shingles_kept
from lab.trust.attacks import AttackClass, Attempt, Patch, Switch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from random import Random
    from types import ModuleType

    from guard.core.model import Json
    from guard.protocols.llm.model_answers import Piece
    from lab.trust.attacks import Play
    from lab.trust.harness import World

EXPONENT: Final = 1.1
"""Growth that is still linear work, with the logarithms of sorting."""
SMALL: Final = 6000
FACTOR: Final = 4
"""Characters of the smaller text, and how much longer the other one is."""
BOUNDED: Final = {
    **dict.fromkeys(("definition", "pieces"), 800),
    "deobfuscated": 200,
}
"""Likewise of readers that look at no long text."""


def _all(found: Iterable[object]) -> None:
    for _ in found:
        pass


def _json(text: str) -> None:
    members = {f"{start:x}": text[start : start + 9] for start in range(0, len(text), 9)}
    for document in (json.dumps(members), f"[{text}]"):
        with contextlib.suppress(MessageError):
            parse_json(document.encode("utf-8", "replace"))


def _events(text: str) -> None:
    cutter = EventCutter(1 << 24)
    data = text.encode("utf-8", "replace")
    for start in range(0, len(data), 512):
        cutter.feed(data[start : start + 512])


def _answers(text: str) -> None:
    """Read a call in a model's answer that comes piece by piece, and have it refused."""
    parts = [text[start : start + 3] for start in range(0, len(text), 3)]
    call = {"index": 0, "function": {"arguments": ""}}
    item = {"type": "function_call", "name": "a", "call_id": "c"}
    used = {"type": "tool_use", "id": "c", "name": "a", "input": {}}
    chat = [{"choices": [{"delta": {"tool_calls": [call]}}]}]
    chat += [
        {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": part}}]}}]}
        for part in parts
    ]
    items = [{"type": "response.output_item.added", "output_index": 0, "item": item}]
    items += [
        {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": part}
        for part in parts
    ]
    blocks = [{"type": "content_block_start", "index": 0, "content_block": used}]
    blocks += [
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "input_json_delta", "partial_json": part},
        }
        for part in parts
    ]
    streams = (
        (OpenAiChatProtocol, chat),
        (OpenAiResponsesProtocol, items),
        (AnthropicMessagesProtocol, blocks),
    )
    for protocol, documents in streams:
        reader = protocol().answer_reader(Message())
        pieces: list[Piece] = []
        for document in documents:
            pieces += reader.event(render_event(document))
        for piece in [*pieces, *reader.end()]:
            if not isinstance(piece, bytes):
                piece.settle(["refused"] * len(piece.calls))


def _result(text: str) -> None:
    for root in result_documents.roots_of({"content": [{"type": "text", "text": text}]}):
        _all(result_documents.leaves_of(root, None, Integrity.UNTRUSTED))


READERS: Final[dict[str, Callable[[str], object]]] = {
    "prompt": prompt_reader.read_prompt,
    "names in a prompt": prompts.names_given,
    "sentences of a prompt": prompts.sentences_said,
    "values": values.find_values,
    "destinations": values.find_destinations,
    "receivers": canonical.read_destinations,
    "numbers": values.find_numbers,
    "decoder": decoder.content_readings,
    "leaks": leaks.has_leak,
    "orders": lambda text: instructions.matched_pattern(text, deep=True),
    "json": _json,
    "events": _events,
    "result": _result,
    "model answers": _answers,
    "passages": lambda text: _all(shingles_kept(text)),
    "pieces of private text": lambda text: _all(pieces_kept(text)),
    "what is sent": lambda text: sent_shingles([text], pieces=True),
}
"""What reads text of others, by name."""
PIECES: Final = (
    *('"', "'", "“", "(", ")", "[", "]", "{", "}", "<", ">", "|", "`", "\\", "/", ":", ",", "."),
    *(
        "@",
        "#",
        "%",
        "&",
        "=",
        "+",
        "-",
        "_",
        "*",
        "~",
        "$",
        "!",
        "?",
        ";",
        " ",
        "\n",
        "\t",
        "\r\n",
    ),
    *(
        "a",
        "A",
        "0",
        "é",
        "\u0301",
        "\u200b",
        "x://",
        "://",
        "a@b.co ",
        "a@b.co,",
        "@a.b",
        "www.a.b ",
    ),
    *("https://a.b/", "10.0.0.1 ", "::1 ", "1::", "+1 555 ", "DE89370400440532013000 ", "a.b."),
    *(
        "<a ",
        "<a>",
        "</a>",
        "<a b=",
        "<!--",
        "-->",
        "[QUOTE]",
        "[/QUOTE]",
        "```\n",
        "---\n",
        "> ",
        "- x\n",
    ),
    *("1. x\n", "a: b\n", "Dear all,\n", "not ", "if ", "send to ", "Bob, ", "said ", "at dot "),
    *(
        "\\u0041",
        "\\x41",
        "%25",
        "%41",
        "&amp;",
        "&#65;",
        "=3D",
        "QUJD",
        "41 ",
        "0x41 ",
        '{"a":',
        "[[",
    ),
    *(
        "$(",
        "${a:-",
        "$((",
        "`a`",
        "a=b;",
        "|sh ",
        "<<E\n",
        "\\\n",
        "{a,b}",
        "??",
        "$'\\x41'",
        "eval ",
    ),
    *("data: x\n", "\n\n", "id: 1\n", "ignore previous ", "tool ", "BEGIN:", "=?utf-8?b?QQ==?="),
)
"""What texts are made of: signs that some reader counts, opens, closes or looks for."""


class _Counted:
    """An expression that counts the characters that it goes over."""

    def __init__(self, pattern: re.Pattern[str], counter: Counter) -> None:
        self._pattern = pattern
        self._counter = counter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pattern, name)

    def _one(self, name: str, text: Any, *place: int) -> Any:
        found = getattr(self._pattern, name)(text, *place)
        start = min(place[0], len(text)) if place else 0
        end = min(place[1], len(text)) if len(place) > 1 else len(text)
        if found is not None:
            end = found.end()
        elif name != "search":
            end = start + 1
        self._counter.steps += max(end - start, 1)
        return found

    def search(self, text: Any, *place: int) -> Any:
        return self._one("search", text, *place)

    def match(self, text: Any, *place: int) -> Any:
        return self._one("match", text, *place)

    def fullmatch(self, text: Any, *place: int) -> Any:
        return self._one("fullmatch", text, *place)

    def finditer(self, text: Any, *place: int) -> Any:
        self._counter.steps += len(text) - (place[0] if place else 0)
        return self._pattern.finditer(text, *place)

    def findall(self, text: Any, *place: int) -> Any:
        self._counter.steps += len(text) - (place[0] if place else 0)
        return self._pattern.findall(text, *place)

    def sub(self, replacement: Any, text: Any, count: int = 0) -> Any:
        self._counter.steps += len(text)
        return self._pattern.sub(replacement, text, count)

    def split(self, text: Any, maxsplit: int = 0) -> Any:
        self._counter.steps += len(text)
        return self._pattern.split(text, maxsplit)


class Counter:
    """Counts steps while it is open: lines that run, characters that expressions go over."""

    def __init__(self) -> None:
        self.steps = 0
        self._replaced: list[tuple[dict[str, Any], str, object]] = []
        self._tracer: Any = None

    def __enter__(self) -> Self:
        modules = [module for name, module in sys.modules.items() if name.startswith("guard.")]
        for names in [vars(module) for module in modules if module.__name__ != __name__]:
            for name, value in list(names.items()):
                if isinstance(value, re.Pattern):
                    self._replaced.append((names, name, value))
                    names[name] = _Counted(value, self)
        self._tracer = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._tracer)
        for names, name, value in self._replaced:
            names[name] = value

    def _trace(self, _: object, event: str, __: object) -> Any:
        self.steps += event == "line"
        return self._trace


NONCE: Final = "ghjkmpqvwy"
_serial = itertools.count()


def steps_of(read: Callable[[str], object], text: str) -> int:
    """Return the steps that a reader takes for a text."""
    # No reader remembers a text that it has not seen.  The letters are of no coding, so that
    # whatever follows them reads alike each time.
    fresh = "".join(NONCE[int(digit)] for digit in f"{next(_serial):06}") + " " + text
    with Counter() as counter:
        read(fresh)
    return max(counter.steps, 1)


def growth_of(name: str, piece: str) -> float:
    """Return the exponent by which a reader's steps grow with a text of one piece repeated.

    It is the smaller one of two ranges where the first one's is beyond ``EXPONENT``.
    """
    read, size = READERS[name], BOUNDED.get(name, SMALL)
    sizes = (size, size * FACTOR, size * FACTOR * FACTOR)
    small, large = (steps_of(read, (piece * length)[:length]) for length in sizes[:2])
    growth = math.log(large / small, FACTOR)
    if growth <= EXPONENT:
        return growth
    larger = steps_of(read, (piece * sizes[2])[: sizes[2]])
    return min(growth, math.log(larger / large, FACTOR))


def _play(name: str, piece: str) -> Play:
    async def play(_: World) -> bool:
        return growth_of(name, piece) > EXPONENT

    return play


class Costed(AttackClass):
    """A message costs what its length costs."""

    id: ClassVar[str] = "costed"
    switches: ClassVar[tuple[Switch, ...]] = (
        Switch("nothing is read twice", lambda patch: _read_again(patch), among="events: 'a'"),
        Switch("unfinished messages have a budget", lambda p: _hold_all(p), among="unfinished:"),
        Switch("large messages are read aside", lambda p: _none_large(p), among="aside:"),
        Switch("what is too much is refused", lambda p: _search_all(p), among="too much:"),
    )

    def attempts(self, rng: Random) -> Iterator[Attempt]:
        """Yield attempts over readers and pieces, single and joined by chance, shuffled."""
        joined = ["".join(rng.choices(PIECES, k=rng.choice((2, 3, 4)))) for _ in PIECES]
        made = list(itertools.product(READERS, (*PIECES, *joined)))
        rng.shuffle(made)
        readers = [Attempt(f"{name}: {piece!r}", _play(name, piece)) for name, piece in made]
        others = [*_unfinished(rng), *_aside(), *_too_much(rng)]
        # Evenly among the readers, of which there are many more.
        step = len(readers) // len(others)
        for number, attempt in enumerate(readers):
            yield attempt
            if number % step == 0 and others:
                yield others.pop()
        yield from others


def _read_again(patch: Patch) -> None:
    before = EventCutter.feed

    def feed(self: EventCutter, chunk: bytes) -> list[bytes]:
        self._scanned = 0
        return before(self, chunk)

    patch.set(EventCutter, "feed", feed)


# --- what is held, what waits, what is refused -------------------------------------------------

LIMIT: Final = 64 * 1024
"""Bytes of the budget that is attacked."""
SHORT: Final = 512
POLICY: Final = """version: 1
name: costed
internal_domains: [corp.example]
tools:
  - {match: [post], role: send, destinations: ["$.to"], body: ["$.body"]}
  - {match: [fetch_notes], role: retrieve}
rules:
  - {id: unreadable, type: destination, status: [malformed, missing], effect: block}
  - {id: rest, type: tool, effect: allow}
"""


def _unfinished(rng: Random) -> Iterator[Attempt]:
    for number in range(12):
        count, size = rng.randint(8, 400), rng.choice((1, 300, 2000, 9000, LIMIT))
        yield Attempt(f"unfinished: {number}, {count} of {size}", _held(count, size))


def _held(count: int, size: int) -> Play:
    """Play bodies that arrive in pieces and never end, then short ones of somebody else."""

    async def play(_: World) -> bool:
        budget = MessageBudget(LIMIT, count=1000)
        for part in range(1, 5):
            for number in range(count):
                budget.hold(number, size * part // 4)
        kept_out = [n for n in range(4) if not budget.hold(10**6 + n, SHORT)]
        return budget.total > 2 * LIMIT or len(kept_out) > 0

    return play


READINGS: Final[Mapping[str, tuple[tuple[ModuleType, ...], str]]] = {
    "call": ((call_reading,), "classify"),
    "result": ((intake, result_judge), "result_writes"),
}
"""Modules and function that read a call, and a result."""


def _aside() -> Iterator[Attempt]:
    shapes: dict[str, Json] = {
        "one text": "word " * 20_000,
        "many texts": ["a text of some words"] * 4000,
        "numbers": list(range(40_000)),
        "members": {f"member {number}": "a" for number in range(30_000)},
        "nested": [[[number, ["x"]]] for number in range(12_000)],
        "escapes": "%2541" * 10_000,
    }
    for shape, side in itertools.product(shapes, ("call", "result")):
        yield Attempt(f"aside: {shape} in a {side}", _read_in(shapes[shape], side), policy=POLICY)


def _read_in(content: Json, side: str) -> Play:
    """Play a large call or result; it succeeds where the loop's own thread reads it."""

    async def play(world: World) -> bool:
        threads: list[threading.Thread] = []
        owners, name = READINGS[side]
        before = getattr(owners[0], name)

        def noted(*args: Any, **options: Any) -> Any:
            threads.append(threading.current_thread())
            return before(*args, **options)

        patch = Patch()
        for owner in owners:
            patch.set(owner, name, noted)
        try:
            agent = world.agent()
            if side == "call":
                await agent.call("post", {"to": "pat@corp.example", "body": content})
            else:
                await agent.call("fetch_notes", {}, content)
        finally:
            patch.undo()
        return threading.current_thread() in threads or not threads

    return play


def _too_much(rng: Random) -> Iterator[Attempt]:
    for number in range(6):
        padding = rng.choice(("word ", "x", "a.b ", "0 ")) * (1 << 21)
        size = classification.SCAN_LIMIT + rng.randint(1, 1 << 16)
        yield Attempt(f"too much: {number}", _padded(padding[:size]), policy=POLICY)


def _padded(padding: str) -> Play:
    """Play a receiver behind more text than is looked through, in an argument of no policy."""

    async def play(world: World) -> bool:
        arguments: dict[str, Json] = {"to": "pat@corp.example", "body": "b", "note": padding}
        return (await world.agent().call("post", arguments)).forwarded

    return play


def _hold_all(patch: Patch) -> None:
    def hold(self: MessageBudget, message: int, size: int) -> bool:
        self.total += size - self._held.get(message, 0)
        self._held[message] = size
        return True

    patch.set(MessageBudget, "hold", hold)


def _none_large(patch: Patch) -> None:
    for module in (call_judge, guard_module, result_judge):
        patch.set(module, "is_large", lambda _content: False)


def _search_all(patch: Patch) -> None:
    patch.set(classification, "SCAN_LIMIT", 1 << 60)
