"""Receivers that a principal has sent to before, as its user or an approval had it.  Pure: no I/O.

The rung ``established`` is the one declared widening of the trust model: whom the user named once,
or a person approved with *remember*, this principal may send to again with the same tool, until
the period ends that the policy gives.  It is written once the send has
succeeded, and never for a receiver that a list or a plain grant let through.

One record is two fields: a sealed label record, which every send reads, and what an operator is
shown, enciphered.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from itertools import chain, islice
from json.encoder import encode_basestring_ascii
from typing import TYPE_CHECKING, Final

from guard.core.json_values import json_encoder
from guard.core.labels import Channel, LabelRecord, LabelSet, LabelWrite, LabelWriteMode, Rung
from guard.core.model import Destination, Integrity
from guard.core.tool_answers import Cover, ToolAnswer
from guard.provenance.label_sets import ESTABLISHED, SENT, SHOWN, LabelSets, established_mark
from guard.provenance.ladder import attest, writers_of
from guard.provenance.lineage import numbered, numbered_in
from guard.provenance.payments import UNKNOWN, amount_of
from guard.provenance.seal import SOURCE_LIMIT, Seal
from guard.values.folders import KIND as FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from guard.core.calls import TracedCall

_MEMBERS: Final = ("principal", "server", "upstream", "tool", "kind", "receiver", "by")


RENEWED: Final = 0.01
"""Share of its life after which another send prolongs what is established."""
_ENCODED: Final = json_encoder()
SENT_LIMIT: Final = 16
"""Receivers of one send that it is kept on record for."""


@dataclass(frozen=True, slots=True)
class SendRecord:
    """One send of a principal to a receiver."""

    at: float
    tool: str
    decision: str
    """Its decision id, as in the audit log."""


@dataclass(frozen=True, slots=True)
class Established:
    """One receiver that a principal may send to again, as an operator sees it."""

    mark: bytes
    """Fingerprint of principal, tool and receiver: by this it is revoked."""
    record: LabelRecord
    """Since when and until when it holds; its channel says who let it: ``prompt`` or
    ``approval``."""
    principal: str
    server: str
    """The listener."""
    upstream: str
    tool: str
    kind: str
    receiver: str
    by: str = ""
    """Name of the person who approved it; empty where the user named it."""


def established_writes(seal: Seal, sets: LabelSets, traced: TracedCall) -> Iterator[LabelWrite]:
    """Yield the records of the receivers that a send establishes, to be stored as it has succeeded.

    Whom the user named, and with a grant that is to be remembered every other one.

    Args:
        seal: the deployment's key.
        sets: where records lie.
        traced: the send, as it was judged.
    """
    context, call = traced.context, traced.call
    if context is None:
        return
    if traced.tool is None and not traced.reached:
        return
    folders = any(to.destination.kind.endswith(FOLDER) for to in traced.reached)
    if traced.tool is not None and not folders:
        yield from _tool_writes(seal, sets, traced, traced.tool)
        return
    prompted = LabelRecord(
        Integrity.AUTHENTICATED,
        Channel.PROMPT,
        traced.index,
        call.at,
        context.session,
        call.tool,
        principal=context.principal,
        until=sets.established_until(call.at),
    )
    amount = amount_of(traced.classified)
    if amount == UNKNOWN:
        return
    ungranted = replace(context, granted=False) if context.granted else context
    for target in traced.reached:
        destination = target.destination
        before = context.established.get(destination)
        # An action is established by an approval only.
        if traced.approved is None and (
            destination.kind == "action" or _is_fresh(before, prompted)
        ):
            continue
        # A page that was only named to be read has been named to receive nothing.
        attested = attest(destination, target.status, ungranted, reads=False)
        record = prompted if attested.rung is Rung.PROMPTED else traced.approved
        if record is not None and destination.kind == "reply":
            writers = writers_of(destination, context)
            record = replace(record, origin=writers) if writers else None
        if record is None:
            continue
        if amount is not None and record.channel is Channel.PROMPT:
            record = replace(record, source=amount)
        yield _write(seal, sets, traced, destination, record)


def _tool_writes(
    seal: Seal, sets: LabelSets, traced: TracedCall, tool: ToolAnswer
) -> Iterator[LabelWrite]:
    """Yield the records of an answer for an unmapped tool, bound to the tool's pin.

    Nothing is written for a tool without a pin: no change of it could revoke the answer.
    """
    if traced.approved is None or tool.cover is None or not tool.pin:
        return
    record = replace(traced.approved, source=tool.pin)
    values = tool.outline.values if tool.cover is Cover.KINDS else ()
    for recipient in (tool.outline.recipient(tool.cover), *values):
        yield _write(seal, sets, traced, recipient, record)


def _write(
    seal: Seal, sets: LabelSets, traced: TracedCall, recipient: Destination, record: LabelRecord
) -> LabelWrite:
    call = traced.call
    tool = (call.server, call.upstream, call.tool)
    mark, shown = established_mark(seal, call.identity.principal, tool, recipient)
    if record.channel is not Channel.PROMPT:
        shown += "\0" + encode_basestring_ascii(traced.approved_by)
    area = sets.established(call.identity.tenant, mark)
    entries = (
        seal.write(area, mark + ESTABLISHED, record),
        (mark + SHOWN, seal.enciphered(area, mark + SHOWN, shown.encode())),
    )
    return LabelWrite(area, LabelWriteMode.REPLACE, entries)


def _is_fresh(before: LabelRecord | None, now: LabelRecord) -> bool:
    """Return whether a receiver has been established so lately that it need not be written anew."""
    if before is None or before.channel is not now.channel:
        return False
    return 0 <= now.at - before.at < (now.until - now.at) * RENEWED


def sent_writes(seal: Seal, sets: LabelSets, traced: TracedCall) -> Iterator[LabelWrite]:
    """Yield the records that a send went to each of its receivers: for people, no label.

    Each says when, by which tool, under which decision id; the first and the last are kept.  An
    action is on record only if it is remembered.
    """
    classified, call = traced.classified, traced.call
    known = traced.context.established if traced.context is not None else {}
    folders = (one for one in known if one.kind.endswith(FOLDER))
    reached = (target.destination for target in classified.receivers())
    receivers: dict[tuple[str, str], None] = {}
    for to in islice(chain(reached, folders), SENT_LIMIT):
        if to.kind != "action" or to in known:
            receivers[to.kind, to.canonical] = None
    if not receivers:
        return
    body = "".join(_ENCODED([call.at, call.tool[:SOURCE_LIMIT], call.id], 0)).encode()
    for kind, canonical in receivers:
        mark = sent_mark(seal, call.identity.principal, kind, canonical)
        area, field = sets.sent(call.identity.tenant, mark), mark + SENT
        entry = (field, seal.sealed(area, field, body))
        yield LabelWrite(area, LabelWriteMode.NUMBER, (entry,))


def sent_fields(mark: bytes) -> list[bytes]:
    """Return the fields that :func:`read_sent` reads of a receiver."""
    return numbered(mark + SENT)


def sent_mark(seal: Seal, principal: str, kind: str, canonical: str) -> bytes:
    """Return the fingerprint of a principal and a receiver."""
    parts = map(encode_basestring_ascii, (principal, kind, canonical))
    return seal.fingerprint("sent:" + "\0".join(parts))


def read_sent(
    seal: Seal, area: LabelSet, mark: bytes, raw: Sequence[object]
) -> tuple[list[SendRecord], int]:
    """Return the earlier sends on record for a receiver, and how many there were in all.

    Args:
        seal: the deployment's key.
        area: where they lie.
        mark: of the receiver.
        raw: what lies in :func:`sent_fields`.
    """
    sends = numbered_in(seal, area, mark + SENT, raw)
    found = [SendRecord(*json.loads(body)) for body in sends.bodies]
    return found, len(found) + sends.missing


def read_established(
    seal: Seal, area: LabelSet, fields: Mapping[bytes, bytes]
) -> list[Established]:
    """Return what one set holds, without records that were altered."""
    found: list[Established] = []
    for field, raw in fields.items():
        mark, suffix = field[: -len(ESTABLISHED)], field[-len(ESTABLISHED) :]
        shown = seal.deciphered(area, mark + SHOWN, fields.get(mark + SHOWN, b""))
        record = seal.read(area, field, raw) if suffix == ESTABLISHED else None
        if record is not None and record.sealed and shown is not None:
            members = map(json.loads, shown.decode().split("\0"))
            parts = dict(zip(_MEMBERS, members, strict=False))
            found.append(Established(mark, record, **parts))
    return found
