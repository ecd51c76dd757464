"""What stands in a place that the user named: a page, or the messages of a channel or person.

It counts like the sender of a message that the user named: for this session only.  Pure: no I/O.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from guard.content.injection_text import instructs
from guard.core.labels import Rung
from guard.destinations.field_values import name_parts
from guard.destinations.text_scan import find_destinations
from guard.destinations.values import find_values, handle_value, keys_of
from guard.provenance.label_sets import REPLY
from guard.provenance.message_titles import LINK, link_value
from guard.provenance.result_documents import messages_document

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from guard.core.calls import ToolResult
    from guard.core.labels import LabelRecord, LabelSet
    from guard.core.model import Json, ToolCall
    from guard.core.tool_mapping import LinkFields, PathQuery
    from guard.provenance.result_documents import Root
    from guard.provenance.seal import Seal

NAME_LIMIT: Final = 8
"""Names by which a place may be known."""
LINK_LIMIT: Final = 500
"""Links of one result."""
MESSAGE_LIMIT: Final = 200

Entries = list[tuple[bytes, bytes]]


def own_addresses(
    seal: Seal,
    area: LabelSet,
    record: LabelRecord,
    result: ToolResult,
    named_by: PathQuery,
    values: Iterable[str],
) -> Entries:
    """Return the addresses that a page has of its own, where the user named the page.

    An address is the page's own if its mailbox bears a part of the page's host.
    """
    paths = {path for path, _ in named_by.find(result.call.call.arguments)}
    entries: Entries = []
    for target in result.call.targets:
        attested = target.attestation
        if target.path not in paths or attested is None or attested.rung != Rung.PROMPTED:
            continue
        parts = name_parts(target.destination.host.rpartition(".")[0])
        by = [seal.fingerprint(key) for key in keys_of(target.destination)][:NAME_LIMIT]
        entries += [
            seal.write(area, seal.fingerprint(value) + REPLY, record, by)
            for value in values
            if value.startswith("mail:")
            and parts & name_parts(value.removeprefix("mail:").partition("@")[0])
        ]
    return entries


def links(
    seal: Seal,
    area: LabelSet,
    record: LabelRecord,
    result: ToolResult,
    roots: list[Root],
    where: LinkFields,
) -> Entries:
    """Return the links of messages, each known by who sent it and by where it was read.

    A link counts word for word: what is longer or shorter by a letter is another one, so nothing
    can be put into it.
    """
    places = list(_names(where.place, result.call.call)) if where.place is not None else []
    names: dict[str, list[str]] = {}
    for root in roots:
        document = messages_document(root, where)
        if isinstance(document, str):
            continue
        for _, message in islice(where.each.find(document), MESSAGE_LIMIT):
            senders = [
                handle_value(value) for _, value in where.sender.find(message) if _is_name(value)
            ]
            for _, text in where.text.find(message):
                # A message that instructs a model vouches for nothing in it.
                honest = isinstance(text, str) and not instructs(text, deep=False)
                for link in _links_in(text) if honest else ():
                    names.setdefault(link, []).extend((*places, *senders))
    return [
        seal.write(
            area,
            seal.fingerprint(link) + REPLY,
            record,
            [seal.fingerprint(name) for name in dict.fromkeys(known)][:NAME_LIMIT],
        )
        for link, known in islice(names.items(), LINK_LIMIT)
    ]


def _names(place: PathQuery, call: ToolCall) -> Iterator[str]:
    for _, value in place.find(call.arguments):
        if _is_name(value):
            yield handle_value(value)


def _is_name(value: Json) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _links_in(text: str) -> Iterator[str]:
    for destination in find_destinations(text):
        if destination.kind == "url":
            yield link_value(destination)
    for value in find_values(text, disguised=False).plain:
        if value.startswith("host:"):
            yield LINK + value.removeprefix("host:")
