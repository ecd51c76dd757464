"""The attestation ladder: from what is known of a value to the rung it stands on.  Pure: no I/O.

A record can raise a value only if its seal is whole; one whose seal is broken counts as untrusted
text, wherever it lies.  INVARIANT (missing is unknown): no record, no rung above ``unknown``.

A mailbox or URL is the same wherever it is named; a handle is not.  A record of a handle has the
marks of the services that it was seen in, or that the policy names for it, and a call those of its
own.  INVARIANT (no service, no vouching): a record of a handle without marks vouches in no call.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Final, TypeAlias, TypeGuard

from guard.core.calls import ActionAttestation, ClassifiedCall, Target
from guard.core.labels import (
    VOUCHING,
    ActionRung,
    Attestation,
    Channel,
    Context,
    Evidence,
    LabelRecord,
    Rung,
)
from guard.core.model import Destination, DestinationStatus, Integrity
from guard.provenance.actions import (
    ACTION,
    PROMPTED,
    action_values,
    covering_forms,
    kind_value,
    object_kinds,
    object_value,
)
from guard.provenance.named_documents import delegated_value, own_recipient
from guard.provenance.prompts import REQUESTS, answer_value, mentioned_value, words_value
from guard.provenance.seal import ANY_SERVICE, Seal
from guard.values.finding import HANDLE, MESSAGE, is_phone, keys_of, link_values, taints_of
from guard.values.folders import KIND as FOLDER
from guard.values.folders import above, of_action

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


_HERE: Final = True
"""Mark of a record that this session has made."""
_Values: TypeAlias = "tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]"
_KEPT: Final = 256
_SHORT: Final = 256
"""Destinations whose values are kept at hand, and characters of the longest of them."""
_NOTHING_KNOWN: Final = Context(session=b"")
SELECTED_WHY: Final = {
    Channel.SELECTION: "selection_diverged",
    Channel.UNREPLAYED: "selection_unreplayed",
}
"""Why a value is unknown that stands in a recalled item which vouches for nothing."""
_BY_STATUS: Final = {
    DestinationStatus.DENIED: Attestation(Rung.DENIED, "denied"),
    DestinationStatus.INTERNAL: Attestation(Rung.LISTED, "internal"),
    DestinationStatus.ALLOWED: Attestation(Rung.LISTED, "allowed"),
    DestinationStatus.MALFORMED: Attestation(Rung.UNKNOWN, "malformed", vector="unknown"),
    DestinationStatus.MISSING: Attestation(Rung.UNKNOWN, "missing", vector="unknown"),
}
"""Attestations that need no look-up: every status but ``external`` decides the rung by itself."""
_VOUCHING: Final = attrgetter("prompt", "joined", "field", "reply", "own", "memory")
"""The records of a value that may vouch for it."""


def attestation_of(target: Target) -> Attestation:
    """Return where a target came from; where nobody looked, nothing is known of it."""
    if target.attestation is not None:
        return target.attestation
    return attest(target.destination, target.status, _NOTHING_KNOWN, reads=False)


OF_A_SERVICE: Final = (HANDLE, MESSAGE)
"""First parts of values that mean something in one service only."""
_NOWHERE: Final = (b"",)
_PHONE: Final = "phone"
_USERS_WORD: Final = frozenset({Channel.PROMPT, Channel.APPROVAL, Channel.SESSION_APPROVAL})
TELLING: Final = frozenset({"url", "host"})
"""Kinds of destinations whose host is told what they are."""
NAMED_DOCUMENT: Final = "named_document"
"""Why: a document that the user named supplies it."""
OWN_MEMORY: Final = "own_memory"
"""Why: the principal saved it while a directory or an own record vouched for it."""


def attest(
    destination: Destination, status: DestinationStatus, context: Context, *, reads: bool
) -> Attestation:
    """Return the rung of one destination under the policy's status and what is known of it.

    Args:
        destination: asked about.
        status: where it stands under the policy.
        context: what is known of its values.
        reads: whether nothing is sent there: it is a page that is read, or part of a text.
    """
    by_status = _BY_STATUS.get(status)
    if by_status is not None:
        return by_status
    if context.granted:
        return Attestation(Rung.GRANTED, "grant")
    asked, further, hints = values_of(destination, reads=reads)
    attested = attest_values(asked, further, context)
    if attested.rung > Rung.PROMPTED:
        attested = _answered(asked, context) or _named(destination, asked, context) or attested
    if attested.rung > Rung.PROMPTED and _has_risen((*asked, *further), context):
        # A receiver that was right to pay before may be the wrong one now, tainted or not.
        return attested
    if context.delegates and attested.rung > Rung.REPLY:
        attested = _delegated(asked, context) or attested
    before = context.established.get(destination)
    lifts = attested.rung > Rung.ESTABLISHED
    if before and destination.kind == "reply" and before.origin != writers_of(destination, context):
        # Somebody else may read along by now, or nobody knows who does.
        before = None
    if before and lifts and vouches(before, context) and not _says_no(destination, context, before):
        why = "prompted_before" if before.channel is Channel.PROMPT else "approved_before"
        same = before.session == context.session
        return Attestation(Rung.ESTABLISHED, why, before, same_session=same)
    if attested.rung is Rung.UNKNOWN:
        known = context.values
        hint = _first_taint([], [known[v] for v in hints if v in known])
        if hint is not None:
            # This is suspicious at most: half the world has its mail at one of ten hosts.
            return replace(attested, why="host_in_untrusted_text", record=hint, saturated=True)
    return attested


def _answered(keys: tuple[str, ...], context: Context) -> Attestation | None:
    """Return the attestation by a prompt that answers or corrects an earlier request.

    INVARIANT (a request comes first): an answer without one attests nothing.
    """
    request = context.values.get(REQUESTS)
    answer = context.values.get(answer_value(keys[0])) if keys else None
    if request is None or answer is None:
        return None
    first, record, evidence = request.prompt, answer.prompt, context.values.get(keys[0])
    if not vouches(first, context) or not vouches(record, context) or record.at < first.at:
        return None
    if evidence is not None and refusals(evidence, context):
        return None
    return Attestation(Rung.PROMPTED, "prompt", record, same_session=True)


def _named(destination: Destination, keys: tuple[str, ...], context: Context) -> Attestation | None:
    """Return the attestation of a handle by its name in the prompt, in a closed service.

    INVARIANT (as after a look-up): a prompt has said the name, the user has not said no to the
    handle, and no agent made it, unless it was made as this session's user asked.
    """
    if not context.closed or destination.kind != "handle" or not keys:
        return None
    record = name_said(keys[0], context)
    evidence = context.values.get(keys[0])
    if record is None:
        return None
    if evidence is not None and _is_excluded(evidence, context):
        return None
    return Attestation(Rung.PROMPTED, "directory_name", record, same_session=True)


def name_said(value: str, context: Context) -> LabelRecord | None:
    """Return the record of a name that a clear sentence has as a whole, beside a request."""
    name, request = map(context.values.get, (words_value(value), REQUESTS))
    if name is None or request is None or not vouches(request.prompt, context):
        return None
    record = name.prompt
    holds = vouches(record, context) and record.label is Integrity.TRUSTED
    return record if holds else None


def _is_excluded(evidence: Evidence, context: Context) -> bool:
    """Return whether a value is refused, altered, or made by an agent otherwise than it was asked.

    Only a whole record of this session says that it was asked: of a call that reached nobody but
    whom the user or a person vouched for.
    """
    made = evidence.written
    as_asked = (
        made is None
        or (made.sealed and made.label is Integrity.ADVISORY and made.session == context.session)
        or vouches(evidence.own, context)
    )
    return not as_asked or bool(refusals(evidence, context) or _broken(evidence))


def _delegated(keys: tuple[str, ...], context: Context) -> Attestation | None:
    """Return the attestation by a document that the prompt names; None if it supplies nothing.

    INVARIANT (a delegation is for the requested action): without a request it supplies nothing, nor
    after a recall, because memory could have chosen the document, nor a value that an agent wrote
    in one piece, nor another recipient than the one that the request has.
    """
    own = context.values.get(own_recipient(context.delegates))
    if own is not None and own.prompt is not None and keys and not keys[0].startswith(_NUMBER):
        return None
    action = context.values.get(f"{ACTION}{context.delegates}")
    supplied = context.values.get(delegated_value(context.delegates, keys[0])) if keys else None
    if action is None or supplied is None or context.remembers or context.saturated:
        return None
    record, evidence = supplied.reply, context.values.get(keys[0])
    if evidence is not None and _is_excluded(evidence, context):
        return None
    if not vouches(action.prompt, context) or not vouches(record, context):
        return None
    return Attestation(Rung.REPLY, NAMED_DOCUMENT, record, same_session=True)


def writers_of(message: Destination, context: Context) -> bytes | None:
    """Return the mark of who wrote a message that is answered, None where its service did not say.

    It is what this session read last; an approval that is remembered holds for these alone.
    """
    known = [context.values.get(value) for value in keys_of(message)]
    answered = next((one.answered for one in known if one is not None and one.answered), None)
    return answered.origin if answered is not None and vouches(answered, context) else None


def attest_values(keys: tuple[str, ...], further: tuple[str, ...], context: Context) -> Attestation:
    """Return the rung of something that is known under any of some values.

    Args:
        keys: values that attest it, and taint it.
        further: values that only taint it.
        context: what is known of each of them.
    """
    values = context.values
    found = [*_found(keys, values)]
    more = [*filter(None, map(values.get, further))]
    if context.selects:
        for evidence in (*found, *more):
            if _is_selected(evidence.selected, context):
                return _selected(evidence.selected, found, more, context)
    claim = written = None
    for evidence in found:
        if any(_VOUCHING(evidence)) and not refusals(evidence, context):
            attested = _vouched_now(evidence, context)
            attested = attested or _vouched_before(evidence, found, more, context)
            if attested is not None:
                return attested
        claim = claim or evidence.claim
        written = written or evidence.written
    tainted = _first_taint(found, more) if found or more else None
    if tainted is not None:
        return _tainted(tainted, found, context)
    if claim is not None and not context.saturated:
        # Only of what no untrusted text has named, as far as anybody can tell.
        return Attestation(Rung.CLAIMED, "user_role", claim, same_session=True)
    if written is None and (elsewhere := _elsewhere(found, context)) is not None:
        return Attestation(
            Rung.UNKNOWN,
            "other_service",
            elsewhere,
            vector="unknown",
            same_session=elsewhere.session == context.session,
            saturated=context.saturated,
        )
    return Attestation(
        Rung.UNKNOWN,
        "no_record" if written is None else "own_writing",
        written,
        vector="unknown",
        same_session=written is not None and written.session == context.session,
        saturated=context.saturated,
    )


def _found(keys: tuple[str, ...], values: Mapping[str, Evidence]) -> Iterator[Evidence]:
    """Yield the evidence of some keys, the exact one first.

    INVARIANT (a typed URL is one page): the prompt attests no page below the one that it names.
    """
    for position, key in enumerate(keys):
        evidence = values.get(key)
        if evidence is None:
            continue
        prompt = evidence.prompt
        is_above = position > 0 and key.startswith(_URL)
        if is_above and prompt is not None and prompt.label >= Integrity.AUTHENTICATED:
            yield replace(evidence, prompt=None)
        else:
            yield evidence


_URL: Final = "url:"
_NUMBER: Final = "number:"


def refusals(evidence: Evidence, context: Context) -> list[LabelRecord]:
    """Return the words by which its user has said no to a value, after all that was said.

    INVARIANT (a no has no session): what the user denies in one session of the principal, no other
    session vouches for.
    """
    said, denied = evidence.prompt, evidence.denied
    found: list[LabelRecord] = []
    if said is not None and said.sealed and said.label is Integrity.UNTRUSTED:
        found.append(said)
    # An altered record counts: one cannot be made.
    if denied is not None and (not denied.until or context.at < denied.until):
        found.append(denied)
    return found


def _elsewhere(found: list[Evidence], context: Context) -> LabelRecord | None:
    """Return the record by which a value is known in another service than the one called."""
    records = (record for evidence in found for record in _VOUCHING(evidence))
    return next((one for one in records if one is not None and not serves(one, context)), None)


def _says_no(destination: Destination, context: Context, before: LabelRecord) -> bool:
    """Return whether the user has said no to a receiver since it was sent to or approved."""
    asked = map(context.values.get, values_asked(destination, reads=False))
    found = (no for known in asked if known is not None for no in refusals(known, context))
    return any(not no.sealed or no.at >= before.at for no in found)


def is_refused(destination: Destination, context: Context) -> bool:
    """Return whether the user has said no to a receiver."""
    asked = map(context.values.get, values_asked(destination, reads=False))
    return any(known is not None and refusals(known, context) for known in asked)


def _is_selected(record: LabelRecord | None, context: Context) -> TypeGuard[LabelRecord]:
    """Return whether a recall has brought a value that its selection does not vouch for."""
    return record is not None and (not record.until or context.at < record.until)


def _has_risen(values: tuple[str, ...], context: Context) -> bool:
    """Return whether a recall has brought any of some values so."""
    found = filter(None, map(context.values.get, values)) if context.selects else ()
    return any(_is_selected(one.selected, context) for one in found)


def _selected(
    record: LabelRecord, found: list[Evidence], more: list[Evidence], context: Context
) -> Attestation:
    """Return the rung of a value that stood in such an item: the user's own naming of it holds.

    INVARIANT (a selection vouches for nothing that it did not select by authenticated structure):
    neither memory nor directory, thread or earlier sends stand above it.
    """
    for evidence in found:
        if refusals(evidence, context):
            continue
        if vouches(evidence.prompt, context):
            return Attestation(Rung.PROMPTED, "prompt", evidence.prompt, same_session=True)
        if holds(evidence.joined, evidence, context):
            return Attestation(Rung.PROMPTED, "directory_name", evidence.joined, same_session=True)
    tainted = _first_taint(found, more)
    if tainted is not None:
        return _tainted(tainted, found, context)
    why = SELECTED_WHY.get(record.channel, "selection_unreplayed")
    same = record.session == context.session
    return Attestation(Rung.UNKNOWN, why, record, vector="memory", same_session=same)


def lasting(value: str, context: Context) -> Attestation:
    """Return the rung of a value without what vouches for it in its session alone.

    What is saved outlives the session, and must not be entitled to more than what it was made of.
    The services that it is valid in stay with it, so the one that is called does not matter.
    """
    evidence = context.values.get(value)
    if evidence is not None and any(_VOUCHING(evidence)):
        entry = evidence.field
        ends = entry is not None and not entry.until
        values = context.values
        if ends or evidence.reply is not None:
            kept = replace(evidence, reply=None, field=None if ends else entry)
            values = {value: kept}
        if values is not context.values or context.services is not None:
            context = replace(context, values=values, services=None)
    return attest_values((value,), (), context)


def _vouched_now(evidence: Evidence, context: Context) -> Attestation | None:
    """Return the attestation by what holds in this session, whatever untrusted text says."""
    if vouches(evidence.prompt, context):
        return Attestation(Rung.PROMPTED, "prompt", evidence.prompt, "", _HERE)
    if holds(evidence.joined, evidence, context):
        return Attestation(Rung.PROMPTED, "directory_name", evidence.joined, "", _HERE)
    if holds(evidence.field, evidence, context):
        channel = evidence.field.channel
        why = channel.value if channel in VOUCHING else "authenticated_field"
        return _remembered(evidence.field, why, context)
    return None


def _vouched_before(
    evidence: Evidence, found: list[Evidence], more: list[Evidence], context: Context
) -> Attestation | None:
    """Return the attestation that taint beats which the principal itself has met.

    INVARIANT (own taint wins): what somebody else had to say of a value stands behind what this
    principal has read of it in untrusted text.
    """
    reply, memory = evidence.reply, evidence.memory
    met = [taint for one in found if _is_strangers(taint := one.taint)]
    if (
        vouches(reply, context)
        and not context.remembers
        and all(_is_same_text(one, reply) for one in met)
    ):
        return Attestation(Rung.REPLY, "named_message", reply, same_session=True)
    if not met and vouches(memory, context) and memory.channel is Channel.IMPORTED:
        return _remembered(memory, "authenticated_memory", context)
    # A memory in which the value is tainted may have answered with it.
    if not any(map(_is_strangers, _taints(found, more))):
        own = evidence.own
        if vouches(own, context):
            return _remembered(own, OWN_MEMORY, context)
    return None


def holds(
    record: LabelRecord | None, evidence: Evidence, context: Context
) -> TypeGuard[LabelRecord]:
    """Return whether a directory or own record vouches for a value that it holds now.

    What an agent of the tenant wrote there proves nothing by being read back, unless the user had
    named it.
    """
    written = evidence.written is not None and not vouches(evidence.own, context)
    return vouches(record, context) and not written


def _remembered(record: LabelRecord, why: str, context: Context) -> Attestation:
    same = record.session == context.session
    return Attestation(Rung.REMEMBERED, why, record, "", same)


def vouches(record: LabelRecord | None, context: Context) -> TypeGuard[LabelRecord]:
    """Return whether a record is whole, of a label high enough, and holds here and now.

    INVARIANT (of its service): what a service says of a handle vouches in its own calls alone.
    """
    return (
        record is not None
        and record.label >= Integrity.AUTHENTICATED
        and _holds_here(record, context)
    )


def _holds_here(record: LabelRecord, context: Context) -> bool:
    """Return whether a record of any label is whole, and holds here and now."""
    return (
        record.sealed
        and record.principal in {b"", context.principal}
        and (not record.until or context.at < record.until)
        and serves(record, context)
    )


def serves(record: LabelRecord, context: Context) -> bool:
    """Return whether a record vouches in the service that is called."""
    of, called = record.services, context.services
    return not of or called is None or not called.isdisjoint(of)


def _is_strangers(taint: LabelRecord | None) -> TypeGuard[LabelRecord]:
    """Return whether untrusted text of somebody else than the value's own holder names it.

    That a message comes from somebody, or bears his address below it, says who he is.
    """
    return taint is not None and taint.channel is not Channel.COUNTERPARTY


def _is_same_text(taint: LabelRecord, reply: LabelRecord) -> bool:
    """Return whether the text that vouches for a value, or one of its writer, is what taints it.

    It has the value in it; the same page or sender may have named it in an earlier session.
    """
    same_call = (taint.session, taint.call) == (reply.session, reply.call)
    return same_call or (bool(taint.origin) and taint.origin == reply.origin)


def _taints(found: list[Evidence], more: list[Evidence]) -> Iterator[LabelRecord]:
    for evidence in (*found, *more):
        for record in (evidence.taint, evidence.memory_taint):
            if record is not None:
                yield record
    for evidence in found:
        yield from _broken(evidence)


def _first_taint(found: list[Evidence], more: list[Evidence]) -> LabelRecord | None:
    """Return the earliest untrusted origin: of the value itself, else of what stands for it."""
    for group in (found, more):
        first: LabelRecord | None = None
        for evidence in group:
            for record in (evidence.taint, evidence.memory_taint):
                if record is not None and (
                    first is None or (record.at, record.call) < (first.at, first.call)
                ):
                    first = record
        if first is not None:
            return first
    return next((record for evidence in found for record in _broken(evidence)), None)


def _broken(evidence: Evidence) -> list[LabelRecord]:
    """Return the records whose seal does not fit: somebody changed them, so nobody vouches."""
    records = (*_VOUCHING(evidence), evidence.claim)
    return [record for record in records if record is not None and not record.sealed]


def _tainted(record: LabelRecord, found: list[Evidence], context: Context) -> Attestation:
    same = record.session == context.session
    vector = "in_session" if same else "earlier_session"
    if record.channel in {Channel.MEMORY, Channel.SAVED}:
        vector = "memory"
    for evidence in found:
        if evidence.memory_taint is not None:
            vector = "memory"
    why = {
        Channel.MEMORY: "memory_without_record",
        Channel.SAVED: "tainted_memory",
    }.get(record.channel, "untrusted_text")
    if not record.sealed:
        why = "altered_record"
    return Attestation(Rung.TAINTED, why, record, vector=vector, same_session=same)


def values_of(destination: Destination, *, reads: bool) -> _Values:
    """Return all values under which something is known of a destination.

    Asked for with each call that has it: for what to look up, and for what was found.

    Returns:
        those that would attest it, those that only taint it, and those that make it suspicious.
    """
    short = len(destination.canonical) <= _SHORT
    return (_kept_values if short else _made_values)(destination, reads)


def _made_values(destination: Destination, reads: bool) -> _Values:  # noqa: FBT001  (its cache's key)
    return (values_asked(destination, reads=reads), *taints_of(destination))


_kept_values: Final = lru_cache(maxsize=_KEPT)(_made_values)


def values_asked(destination: Destination, *, reads: bool) -> tuple[str, ...]:
    """Return the values that would attest a destination, the exact one first.

    Args:
        destination: asked about.
        reads: whether nothing is sent there.  What the user has mentioned as something to read
            then counts, and a URL only word for word, so that nothing can be put into it.
    """
    keys = keys_of(destination)
    if destination.kind == "text":
        return (*keys, *map(words_value, keys))
    if not reads or destination.kind in {"number", "reply"}:
        return keys
    links = link_values(destination)
    return (*keys, *links, *map(mentioned_value, links or keys[:1]))


def said_values(
    destination: Destination, asked: tuple[str, ...], delegates: str, *, closed: bool
) -> list[str]:
    """Return the further values under which the user's words may attest a destination.

    Args:
        destination: asked about.
        asked: values that attest it.
        delegates: action of the call, if a named document may supply its recipient.
        closed: only the owner of the called service creates handles in it.
    """
    first = asked[:1]
    found = [] if destination.kind in TELLING else [REQUESTS, *map(answer_value, first)]
    if closed and destination.kind == "handle":
        found += map(words_value, first)
    if delegates:
        found += [own_recipient(delegates), *(delegated_value(delegates, one) for one in first)]
    return found


# --- actions --------------------------------------------------------------------------------------


def values_of_action(action: str, objects: Iterable[Destination]) -> tuple[list[str], list[str]]:
    """Return the values by which a prompt requests an action, and those that taint its objects."""
    objects = tuple(objects)
    values = action_values(action, (one.canonical for one in objects))
    return [*values], [value for one in objects for value in values_of(one, reads=True)[0]]


def attest_action(
    action: str, objects: tuple[Target, ...], context: Context, *, listed: bool = False
) -> ActionAttestation:
    """Return the rung of a call's action.

    Args:
        action: declared by the tool's mapping.
        objects: values of the arguments that name its object, each with its attestation.
        context: records of the values of the call.
        listed: the policy lists the action for this tool.
    """
    if listed:
        return ActionAttestation(action, ActionRung.LISTED, "listed")
    if context.granted:
        return ActionAttestation(action, ActionRung.GRANTED, "grant")
    said = context.values.get(f"{ACTION}{action}")
    record = None if said is None else said.prompt
    tainted = next((one for one in objects if _rung(one) is Rung.TAINTED), None)
    least = Integrity.AUTHENTICATED
    if objects and tainted is None:
        # The agent judges a condition, so untrusted text must not choose the object.
        least = Integrity.ADVISORY
    requested = _says(record, context, least)
    other = _other(action, objects, context, least) if requested else None
    if requested and other is None:
        return ActionAttestation(action, ActionRung.REQUESTED, "prompt", record)
    # An approval of earlier objects is none of an object that only untrusted text names.
    if tainted is not None:
        return ActionAttestation(action, ActionRung.TAINTED, "tainted", None, tainted)
    established = context.established.get(Destination("action", action))
    why = "other_object" if other is not None else _why_unrequested(record, context)
    # A directory is no answer to a user who said no.
    in_folder = why != "refused" and _are_covered(action, objects, context)
    if vouches(established, context) or in_folder:
        return ActionAttestation(action, ActionRung.ESTABLISHED, "approved_before", established)
    return ActionAttestation(action, ActionRung.UNREQUESTED, why, record, other)


def _are_covered(action: str, objects: tuple[Target, ...], context: Context) -> bool:
    """Return whether answers for directories cover an action on every object, and there is one."""
    kind = of_action(action)
    return bool(objects) and all(
        is_covered(one.destination.canonical, context, kind) for one in objects
    )


def is_covered(path: str, context: Context | None, kind: str = FOLDER) -> bool:
    """Return whether a person's answer for a directory covers a path."""
    known = {} if context is None else context.established
    named = Destination("object", path)
    return context is not None and any(
        vouches(before := known.get(d), context) and not _says_no(named, context, before)
        for d in above(path, kind)
    )


def _rung(target: Target) -> Rung | None:
    return None if target.attestation is None else target.attestation.rung


def _why_unrequested(record: LabelRecord | None, context: Context) -> str:
    if record is not None and record.label is Integrity.UNTRUSTED:
        return "refused"
    channel = context.values.get(PROMPTED)
    # The principal's record, not the session's: a client chooses its session id.
    return "no_prompt" if channel is None or channel.denied is None else "not_requested"


def _other(
    action: str, objects: tuple[Target, ...], context: Context, least: Integrity
) -> Target | None:
    """Return the first object that a prompt does not name, although it names one of its kind.

    Args:
        action: requested by the prompt.
        objects: of the call.
        context: records of their values.
        least: label of the prompts that count; ``ADVISORY`` adds conditions.
    """
    for target in objects:
        text = target.destination.canonical
        names = (object_value(action, form) for form in covering_forms(text))
        kinds = (kind_value(action, kind) for kind in object_kinds(text))
        if any(_is_said(kind, context, least) for kind in kinds) and not any(
            _is_said(name, context, least) for name in names
        ):
            return target
    return None


def _is_said(value: str, context: Context, least: Integrity) -> bool:
    known = context.values.get(value)
    return known is not None and _says(known.prompt, context, least)


def _says(record: LabelRecord | None, context: Context, least: Integrity) -> bool:
    """Return whether a prompt of this session says something, at least with some label."""
    return record is not None and record.label >= least and _holds_here(record, context)


# --- services -------------------------------------------------------------------------------------


def service_marks(seal: Seal, classified: ClassifiedCall) -> tuple[bytes, ...]:
    """Return the marks by which the service of a call is known: its own, then those of its names.

    Args:
        seal: the deployment's key.
        classified: the call.
    """
    mapping = classified.mapping
    names = ("", "") if mapping is None else (mapping.server, mapping.service)
    return _marks_of_service(seal, classified.place, names)


@lru_cache(maxsize=_KEPT)
def _marks_of_service(seal: Seal, place: str, names: tuple[str, str]) -> tuple[bytes, ...]:
    return (seal.service(place, *names), *(seal.service(name) for name in names if name))


def services_of(
    seal: Seal, value: str, own: bytes, serves: Iterable[str], kinds: frozenset[str]
) -> tuple[bytes, ...]:
    """Return the marks that the record of a value gets.

    Args:
        seal: the deployment's key.
        value: that a field holds.
        own: mark of the service that returned it.
        serves: further services that the policy names for the field.
        kinds: of destinations that the field vouches for.
    """
    if not value.startswith(OF_A_SERVICE):
        return ()
    if _PHONE in kinds and is_phone(value):
        return (ANY_SERVICE,)
    return (own, *map(seal.service, serves))


def bound(record: LabelRecord) -> LabelRecord:
    """Return the record of a handle: without marks of services it vouches nowhere.

    Whatever its user said is not a service's word.
    """
    if record.services or record.channel in _USERS_WORD:
        return record
    return replace(record, services=_NOWHERE)


def lasting_services(record: LabelRecord) -> tuple[bytes, ...]:
    """Return the services of a record that is saved: a user's word holds in all of them."""
    return (ANY_SERVICE,) if record.channel in _USERS_WORD else record.services
