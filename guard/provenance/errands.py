"""Errands and the grants that cover one: all calls that follow one prompt.  Pure: no I/O.

A prompt begins an errand.  A person may let a principal reach one recipient for the rest of the
errand, or of the session, with every tool of one service.  Such a grant binds principal, session,
errand, service, action, canonical recipient, the object and private sources that were shown, the
reason codes that were answered, and the policy.  It turns an ask into an allow, never a block.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, replace
from functools import lru_cache
from json.encoder import encode_basestring_ascii
from typing import TYPE_CHECKING, Final

from guard.core.errands import ErrandGrant
from guard.core.labels import LabelRecord, LabelSet, LabelWrite, LabelWriteMode, Rung
from guard.core.model import Destination, DestinationStatus, Identity, Role
from guard.core.policy import Action, Policy, Verdict
from guard.values.sites import SITE, sites_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from guard.core.calls import ClassifiedCall, Target, TracedCall
    from guard.provenance.seal import Seal

ERRAND: Final = "errand:"
"""Value under which the newest prompt of a session is on record."""
KIND: Final = "eg"
GRANTED: Final = b"J"
USED: Final = b"U"
_FIRST: Final = 1e-6
LONGEST: Final = 12 * 3600
"""Seconds for which an errand grant holds at most."""
GRANTS: Final = 256
"""Errand grants of one principal up to which another one may be given."""
LIMIT: Final = 4 * GRANTS
"""Fields of their set: each grant has a second one, and one answer gives several grants."""
LENGTH: Final = 400
"""Characters of a recipient up to which it can be covered: a longer one is not shown whole."""
RECIPIENTS: Final = 16
"""Recipients of one call up to which errand grants are looked up."""
NEVER: Final = frozenset(
    {"pay", "buy", "share", "invite", "change_access", "change_credential", "execute"}
)
"""Actions that no errand grant covers: payments, credentials, access rights, programs."""
KINDS: Final = frozenset({"mail", "url", "host", "phone", "handle"})
"""Kinds of recipients that an errand grant may cover."""
SITE_KIND: Final = "site"
"""Kind of a site: scheme, host and port of a URL."""
READ: Final = "read"
_PLAIN: Final = KINDS - {"handle"}
"""Likewise for tools without an action: a handle may be an account to pay to."""
_IMPLIED: Final = {Role.SEND: "send", Role.RETRIEVE: READ}
"""Action of a tool without one, by role."""
_RUNG_CODES: Final = frozenset(
    {
        f"provenance_{rung.label}"
        for rung in (Rung.REMEMBERED, Rung.CLAIMED, Rung.UNKNOWN, Rung.TAINTED, Rung.REPLY)
    }
)
CODES: Final = _RUNG_CODES | {
    "action_unrequested",
    "destination_external",
    "private_in_body",
    "private_in_pieces",
}
"""Reason codes that an errand grant may answer.  Every other one asks again."""
PART: Final = "part of a private text"
"""Private source of a call whose text is private in part only."""
UNSEARCHED: Final = "unsearched text"
"""Private source of a call of which not everything was looked up."""


@lru_cache(maxsize=1024)
def errand_set(tenant: str, principal: str) -> LabelSet:
    """Return the set of the errand grants of a principal."""
    part = hashlib.blake2b(principal.encode("utf-8", "surrogatepass"), digest_size=12)
    return LabelSet(KIND, (tenant,), part.hexdigest(), LONGEST * 1000, LIMIT)


def action_of(classified: ClassifiedCall) -> str:
    """Return the action that an errand grant binds; empty for a call that none covers."""
    mapping = classified.mapping
    if not classified.mapped or mapping is None:
        return ""
    if mapping.action is not None:
        return "" if mapping.action.name in NEVER else mapping.action.name
    return _IMPLIED.get(classified.role, "")


def covered_destinations(
    policy: Policy, classified: ClassifiedCall, targets: Iterable[Target]
) -> tuple[Destination, ...]:
    """Return the external recipients among targets; empty where no errand grant covers them.

    A URL stands for its site, unless its host has several owners.
    """
    if not action_of(classified):
        return ()
    mapping = classified.mapping
    kinds = KINDS if mapping is not None and mapping.action is not None else _PLAIN
    found: dict[Destination, None] = {}
    for target in targets:
        if target.status is DestinationStatus.EXTERNAL:
            of = target.destination
            if of.kind not in kinds or len(of.canonical) > LENGTH:
                return ()
            found[_place(policy, of)] = None
        elif target.status not in {DestinationStatus.ALLOWED, DestinationStatus.INTERNAL}:
            return ()
    return tuple(found) if len(found) <= RECIPIENTS else ()


def _place(policy: Policy, destination: Destination) -> Destination:
    owners = policy.needs.several_owners
    if destination.kind != "url" or owners is None:
        return destination
    sites = sites_of(destination, owners)
    if len(sites) != 1:
        return destination
    return Destination(SITE_KIND, sites[0].removeprefix(SITE), destination.host)


def grant_mark(
    seal: Seal,
    identity: Identity,
    service: tuple[str, str],
    action: str,
    destination: Destination,
) -> bytes:
    """Return the fingerprint of all that an errand grant binds and that a call says by itself."""
    parts = (
        identity.principal,
        identity.session,
        *service,
        action,
        destination.kind,
        destination.canonical,
    )
    return seal.fingerprint("granted:" + "\0".join(map(encode_basestring_ascii, parts)))


def private_sources(records: Iterable[LabelRecord], *, part: bool, whole: bool) -> tuple[str, ...]:
    """Return the private sources of a call's text, as they are shown and bound.

    Args:
        records: of the private passages in it.
        part: whether it has part of a private text.
        whole: whether all of it was looked up.
    """
    names = {record.source for record in records}
    names |= {PART} if part else set()
    return tuple(sorted(names if whole else {*names, UNSEARCHED}))


def errand_record(prompt: LabelRecord) -> LabelRecord:
    """Return the record of the newest prompt; its source is the exact time."""
    # A recording may begin at 0, which means that no prompt is known.
    return replace(prompt, source=f"{max(prompt.at, _FIRST):.6f}")


def began(record: LabelRecord | None) -> float:
    """Return the time of the prompt that began the errand; 0 where none is known."""
    return float(record.source) if record is not None and record.sealed else 0.0


def sealed_grant(seal: Seal, area: LabelSet, identity: Identity, grant: ErrandGrant) -> LabelWrite:
    """Return the write of an errand grant."""
    service = grant.server, grant.upstream
    field = grant_mark(seal, identity, service, grant.action, grant.destination) + GRANTED
    body = json.dumps(asdict(grant)).encode()
    entry = field, seal.enciphered(area, field, body)
    return LabelWrite(area, LabelWriteMode.REPLACE, (entry,))


def read_grant(seal: Seal, area: LabelSet, field: bytes, raw: object) -> ErrandGrant | None:
    """Return the errand grant in a field; None where there is none or it was altered."""
    body = seal.deciphered(area, field, raw) if isinstance(raw, bytes) else None
    if body is None:
        return None
    found = json.loads(body)
    lists = {name: tuple(found[name]) for name in ("private", "codes")}
    return ErrandGrant(**{**found, **lists})


def judged(policy: Policy, traced: TracedCall, verdict: Verdict) -> tuple[TracedCall, Verdict]:
    """Return a call and its verdict; an ask that errand grants cover is an allow.

    INVARIANT (only what was shown): a recipient, action, object, private source or reason that the
    person was not shown asks again.
    """
    errand = traced.errand
    if errand is None or not errand.grants or verdict.action is not Action.ASK or verdict.errors:
        return traced, verdict
    two = policy.approvals.two_people
    if two is None or not two.isdisjoint(verdict.decided_by):
        return traced, verdict
    if traced.redefined or traced.classified.contested or _is_about_others(traced, verdict):
        return traced, verdict
    wanted = covered_destinations(policy, traced.classified, traced.targets)
    used = [
        next((g for g in errand.grants if _covers(g, one, policy, traced, verdict)), None)
        for one in wanted
    ]
    if not wanted or None in used:
        return traced, verdict
    others = [one.action for one in verdict.reasons if one.action is not Action.ASK]
    action = max((Action.ALLOW, *others))
    allowed = replace(
        verdict,
        action=action,
        reasons=tuple(
            replace(one, code="granted", action=Action.ALLOW) if one.action is Action.ASK else one
            for one in verdict.reasons
        ),
        decided_by=tuple(one.rule for one in verdict.reasons if one.action is action and one.rule),
    )
    marks = tuple(one for one in used if one is not None)
    return replace(traced, errand=replace(errand, used=marks)), allowed


def _is_about_others(traced: TracedCall, verdict: Verdict) -> bool:
    """Return whether an ask is about a value that is not a recipient, such as a link in the text.

    A grant has the codes that were answered: of the recipients that it names, and of no value else.
    """
    recipients = {one.destination for one in traced.targets}
    return any(
        reason.action is Action.ASK
        and reason.code in _RUNG_CODES
        and one.destination not in recipients
        for reason in verdict.reasons
        for one in reason.targets
    )


def _covers(
    grant: ErrandGrant,
    destination: Destination,
    policy: Policy,
    traced: TracedCall,
    verdict: Verdict,
) -> bool:
    """Return whether a grant covers one recipient of a call that is asked about."""
    call, errand = traced.call, traced.errand
    asked = {one.code for one in verdict.reasons if one.action is Action.ASK}
    return (
        errand is not None
        and grant.principal == call.identity.principal
        and grant.session == call.identity.session
        and (not grant.errand or grant.errand == errand.at)
        and (grant.server, grant.upstream) == (call.server, call.upstream)
        and grant.action == action_of(traced.classified)
        and (grant.kind, grant.recipient) == (destination.kind, destination.canonical)
        and grant.at <= call.at < grant.until
        and grant.policy == policy.digest
        and asked <= CODES.intersection(grant.codes)
        and set(errand.private) <= set(grant.private)
        and ("action_unrequested" not in asked or grant.object == object_of(traced))
    )


def object_of(traced: TracedCall) -> str:
    """Return the canonical object of a call's action: the one that decided, or else the first."""
    attested, objects = traced.action, traced.classified.objects
    about = (attested.object if attested is not None else None) or (objects[0] if objects else None)
    return "" if about is None else about.destination.canonical


def used_writes(seal: Seal, traced: TracedCall) -> Iterator[LabelWrite]:
    """Yield the time of the last use of the errand grants that let a call out."""
    if traced.errand is None or not traced.errand.used:
        return
    call = traced.call
    area = errand_set(call.identity.tenant, call.identity.principal)
    service = call.server, call.upstream
    for grant in traced.errand.used:
        mark = grant_mark(seal, call.identity, service, grant.action, grant.destination)
        body = seal.sealed(area, mark + USED, b"%.3f" % call.at)
        yield LabelWrite(area, LabelWriteMode.REPLACE, ((mark + USED, body),))
