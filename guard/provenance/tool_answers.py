"""Answers that make an unmapped tool known to one principal.  Pure: no I/O.

A person who is asked about a tool that no mapping claims may answer for the tool itself: *with
these kinds of arguments*, or *it only reads*.  The answer is an established record
(:mod:`guard.provenance.established`) whose recipient is the outline of the call's arguments.

INVARIANT (bound): it holds for one principal, listener, upstream and tool name, as long as the
tool's pin is the one of the answered call, and for calls with the same outline alone.  It lifts
the reason that no mapping claims the tool, and nothing else: rules on recipients, actions and
memory judge the call like one of a mapped tool.

INVARIANT (values): with *kinds*, a text of more than ``NAME_WORDS`` words may differ.  A switch is
part of the outline.  Every other value needs an attestation of its own (the user named it, a
directory has it, or a person approved it with this tool).
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from guard.core.calls import ClassifiedCall, Target
from guard.core.labels import Context, Rung
from guard.core.model import Destination, DestinationStatus, Json
from guard.core.tool_answers import Cover, ToolAnswer, ToolOutline
from guard.provenance.actions import object_forms, object_value
from guard.provenance.ladder import attest, vouches
from guard.values.canonical import read_destinations

if TYPE_CHECKING:
    from collections.abc import Iterator


KIND: Final = "tool"
"""Kind of the recipient under which an answer for a tool is on record."""
LEAVES: Final = 48
"""Values of a call up to which an answer can cover its tool."""
LENGTH: Final = 600
"""Characters of an outline: a longer one is not shown whole."""
NAME_WORDS: Final = 3
"""A text of more words is not a name, id or address of anything."""


def outline_of(classified: ClassifiedCall) -> ToolOutline | None:
    """Return the outline of a call; None where no answer can cover its tool."""
    call = classified.call
    if classified.mapping is not None or classified.memory_write is not None or not call.upstream:
        return None
    kinds: dict[str, None] = {}
    names: dict[str, None] = {}
    values: dict[Destination, str] = {}
    for number, (path, value) in enumerate(_leaves(dict(call.arguments))):
        if number >= LEAVES:
            return None
        names[path] = None
        kind = _kind(value)
        kinds[f"{path}: {kind}"] = None
        if kind == "value":
            values.update(dict.fromkeys(_values(value), named_value(str(value))))
    shown = ", ".join(sorted(kinds)) or "no arguments"
    named = f"read by {', '.join(sorted(names)) or 'no arguments'}"
    if max(len(shown), len(named)) > LENGTH:
        return None
    return ToolOutline(
        Destination(KIND, shown), Destination(KIND, named), tuple(values), tuple(values.values())
    )


def _leaves(value: Json, path: str = "") -> Iterator[tuple[str, Json]]:
    """Yield every value with its path; the items of a list share one path."""
    stack: list[tuple[str, Json]] = [(path, value)]
    while stack:
        where, item = stack.pop()
        if isinstance(item, dict) and item:
            stack += [(f"{where}.{name!r}" if where else repr(name), v) for name, v in item.items()]
        elif isinstance(item, list) and item:
            stack += [(f"{where}[]", one) for one in item]
        elif where:
            yield where, item


def _kind(value: Json) -> str:
    if isinstance(value, str) and value.strip():
        return "text" if len(value.split()) > NAME_WORDS else "value"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return "value"
    return {True: "on", False: "off"}.get(value, "empty") if isinstance(value, bool) else "empty"


def _values(value: Json) -> tuple[Destination, ...]:
    if isinstance(value, float):
        value = repr(value)
    return read_destinations(value)


def recipients_of(outline: ToolOutline) -> dict[Destination, Target]:
    """Return what the answers for a tool are on record under: both covers, and each value."""
    every = (*map(outline.recipient, Cover), *outline.values)
    return {one: Target(one, DestinationStatus.EXTERNAL) for one in every}


def answer_of(
    outline: ToolOutline | None, pin: str, cover: Cover | None, context: Context, *, changed: bool
) -> tuple[ToolAnswer | None, bool]:
    """Return a call's outline with the given cover, and True if an answer on record covers it."""
    if outline is None or changed:
        return None, False
    return ToolAnswer(outline, pin, cover), bool(attested_covers(outline, pin, context))


def attested_covers(outline: ToolOutline, pin: str, context: Context) -> frozenset[Cover]:
    """Return the covers that answers on record give a call.

    Args:
        outline: of the call.
        pin: digest of the tool's pin, empty where it has none.
        context: what is known of its values.
    """
    found: set[Cover] = set()
    for cover in Cover:
        record = context.established.get(outline.recipient(cover))
        if pin and vouches(record, context) and record.source == pin:
            found.add(cover)
    pairs = zip(outline.values, outline.named, strict=True)
    if Cover.KINDS in found and not all(_is_attested(*pair, context) for pair in pairs):
        found.remove(Cover.KINDS)
    return frozenset(found)


def named_value(text: str) -> str:
    """Return the value under which a prompt names an id, path or address; empty for others."""
    return next((object_value("", form) for form in object_forms(text)), "")


def _is_attested(value: Destination, named: str, context: Context) -> bool:
    known = context.values.get(named)
    if known is not None and vouches(known.prompt, context):
        return True
    rung = attest(value, DestinationStatus.EXTERNAL, context, reads=False).rung
    return rung <= Rung.ESTABLISHED


def pin_digest(body: bytes) -> str:
    """Return the digest of a tool's pin; every change of the pin changes it."""
    return hashlib.blake2b(body, digest_size=12).hexdigest()
