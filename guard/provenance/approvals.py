"""Requests for a human's approval, and the grants that answer them.  Pure: no I/O.

A call that a rule asks about leaves a sealed, short-lived :class:`ApprovalRequest`: which tool,
whom it would reach and where each of these receivers came from, and what would leave.  A person's
yes becomes one :class:`Grant` for each asked call of that message.  A grant is for one very call
(:class:`Bound`); it is sealed, it expires, and the store hands it out once.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from guard.core.errands import ErrandGrant
from guard.core.json_values import json_encoder
from guard.core.labels import LabelWrite, LabelWriteMode, Rung
from guard.core.model import LISTED, Identity, Json, SessionRung, ToolCall
from guard.core.policy import Action, Policy, Verdict
from guard.core.tool_answers import Cover
from guard.provenance import errands, folders, label_sets

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from guard.core.calls import Target, TracedCall
    from guard.provenance.established import SendRecord
    from guard.provenance.seal import Seal

REQUEST_FIELD: Final = b"q"
FIRST_FIELD: Final = b"y"
"""Beside a request that two people have to approve: the first one's yes."""
GRANT_FIELD: Final = b"g"
RECEIVERS_SHOWN: Final = 20
EXCERPT: Final = 400
"""Receivers, and characters of a text, that a person is shown of a call."""
ARGUMENTS_SHOWN: Final = 20
_NAME: Final = 80
_MEMBER: Final = 120
"""Characters of an argument's name at most, and of an argument at least, that are shown."""
TOGETHER: Final = 16
"""Asked calls of one message that one answer can release; of more, each stands alone."""
_GIVEN: Final = frozenset({SessionRung.MCP_SESSION, SessionRung.RECORDED})
"""Ways to learn session ids that a client does not make up: a retry after a reconnection has
another of any other kind."""
TOOL_CHARACTERS: Final = 256
"""Characters of a tool's name up to which a text with it is remembered: clients choose it."""
_CANONICAL: Final = json_encoder(sort_keys=True)
_READABLE: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


class Scope(StrEnum):
    """For how much a person's yes holds."""

    CALL = "call"
    """This very call, once."""
    ERRAND = "errand"
    """Besides, its recipients in this errand, or session, with every tool of the service."""
    SESSION = "session"
    """Besides, its receivers for this principal and tool in this session."""
    PRINCIPAL = "principal"
    """Besides, its receivers for this principal and tool in every session."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A human's leave for one very call."""

    scope: Scope = Scope.CALL
    until: float = 0.0
    """End of what is remembered, in seconds since the epoch."""
    by: str = ""
    """Name of the person who gave it."""
    whole_session: bool = False
    """True if scope ``errand`` holds for the session, not only until the next prompt."""
    cover: Cover | None = None
    """Calls of an unmapped tool that it covers besides; None for none."""
    folders: tuple[tuple[str, str], ...] = ()
    """Kind and path of the directories that it covers, instead of receivers."""
    limit: str = ""
    """Highest amount of a remembered payment; empty for the amount of this one."""


ELICITATION: Final = "elicitation"
"""The realm of whoever answers a form at an agent's client."""
UNNAMED: Final = frozenset({"machine", "link", ELICITATION})
"""Realms that prove an account of a machine, which several people or one may have."""


@dataclass(frozen=True, slots=True)
class Approver:
    """Somebody who answers a request."""

    name: str
    realm: str
    """Way in which he proved his identity: two subjects are two people within one realm only."""
    subject: str
    """Identifier that he has there, independent of his name."""
    names: frozenset[str] = frozenset()
    """Names under which an agent may run as his."""

    def is_principal(self, principal: str) -> bool:
        """Return whether an agent that runs as this principal runs in his name."""
        known = {name.casefold() for name in (self.name, self.subject, *self.names)}
        return principal.casefold() in known


@dataclass(frozen=True, slots=True)
class AskedReceiver:
    """A receiver of a held call, and the origin of its value."""

    kind: str
    """Kind of the destination: ``mail``, ``url``, ``handle``, …"""
    receiver: str
    status: str
    """Status of the destination under the policy: ``external``, …"""
    rung: str
    """Rung of the attestation ladder; empty where it was not traced."""
    why: str
    """Why it stands there, from a closed set."""
    path: str
    """JSONPath of the argument that names it."""
    source: str = ""
    """Tool whose result named it first, where a record says so."""
    channel: str = ""
    """Channel that the value came in by: ``result``, ``memory``, ``prompt``, …"""
    session: str = ""
    """``this`` or ``earlier``: the session that met it."""
    met_in: str = ""
    """Digest of that session, in hex."""
    call: int = -1
    """Index of the call in that session."""
    at: float = 0.0
    text: str = ""
    """Text around it in the untrusted text; empty if that is not kept (any more)."""
    selection: Mapping[str, Json] | None = None
    """Selection of a recalled item that vouches for nothing: the order of its answer, the
    authenticated one, what rose and fell, and whose structure it was; None if that is not kept (any
    more)."""
    sent: tuple[SendRecord, ...] = ()
    """Earlier sends of the same principal to it, the oldest first."""
    sends: int = 0
    """Number of sends, including those that are not listed."""


@dataclass(frozen=True, slots=True)
class AskedCall:
    """One call that waits for an answer."""

    decision: str
    """Its decision id."""
    digest: str
    """Digest of all that a grant binds."""
    server: str
    """The listener."""
    upstream: str
    tool: str
    protocol: str
    reasons: tuple[str, ...]
    """Reason codes of the rules that ask."""
    receivers: tuple[AskedReceiver, ...]
    excerpt: str
    """Its arguments, as JSON: each of them, long ones cut, with how much is missing."""
    definition: str = ""
    """Digest of the tool's changed definition that nobody had approved when the call was asked
    about; empty where there was none."""
    more: int = 0
    """Number of its receivers that are not listed; they vouch for more than any of these."""
    change: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Action, rung and cause of what it changes; empty where no rule asked for that."""
    role: str = ""
    action: str = ""
    """Action that its mapping declares; empty for none."""
    object: str = ""
    """Object of its action."""
    private: tuple[str, ...] = ()
    """Sources of private text in it."""
    bound: str = ""
    """Action that an errand grant binds; empty where none covers it."""
    covered: tuple[tuple[str, str], ...] = ()
    """Kind and canonical form of the recipients that an errand grant would cover."""
    outline: str = ""
    """Kinds of its arguments, where an answer can cover an unmapped tool."""
    folders: tuple[tuple[str, str], ...] = ()
    """Kind and path of the directories that an answer would cover."""

    @property
    def coverable(self) -> bool:
        """Return true if an errand grant can cover calls like it."""
        known = bool(self.covered) and not self.more and not self.definition
        return known and errands.CODES.issuperset(self.reasons)


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """A question to a person, under the decision id of the first of its calls."""

    tenant: str
    principal: str
    session: str
    policy: str
    at: float
    expires: float
    remembered_for: int
    """Seconds for which the policy lets a receiver be remembered at most."""
    calls: tuple[AskedCall, ...]
    """All asked calls of the message; they are released together."""
    people: int = 1
    """Number of people that have to approve it."""
    own: bool = False
    """True if somebody may approve it in whose name the agent runs."""
    first: str = ""
    """Name of the first of two people to approve it; kept beside the request."""
    released: bool = False
    """True if it has just been granted."""
    errand: float = 0.0
    """Time of the prompt that it follows; 0 where none is known."""

    @property
    def identity(self) -> Identity:
        """Return the caller, without the evidence for it."""
        return Identity(self.principal, self.session, self.tenant)

    @property
    def coverable(self) -> bool:
        """Return true if an errand grant can be the answer."""
        return self.people == 1 and all(call.coverable for call in self.calls)

    @property
    def key(self) -> str:
        """The decision id under which the first of two answers is kept, whichever was answered."""
        return min(call.decision for call in self.calls)

    @property
    def decision(self) -> str:
        """The decision id under which it is asked."""
        return self.calls[0].decision

    @property
    def tainted(self) -> bool:
        """Return true if untrusted text named a receiver: it is shown before it is remembered."""
        found = [one.rung == "tainted" for call in self.calls for one in call.receivers]
        return any(found)


class Approvals:
    """Writes requests, turns them into grants, and checks grants.

    Args:
        seal: the deployment's key.
    """

    def __init__(self, seal: Seal) -> None:
        self._seal = seal

    @staticmethod
    def digest(policy: Policy, call: ToolCall) -> str:
        """Return the digest of one very call under one policy, in hex.

        JSON-RPC ids and progress tokens are not part of it: they differ in every retry of a client.
        Headers and ``_meta`` count as far as ``context`` has them.
        """
        identity, arguments = call.identity, dict(call.arguments)
        for name in call.unbound:
            arguments.pop(name, None)
        bound: dict[str, Json] = {
            "arguments": arguments,
            "context": call.context,
            "policy": policy.digest,
            "principal": identity.principal,
            "proof": int(identity.principal_rung),
            "protocol": call.protocol,
            "server": call.server,
            "session": identity.session if identity.session_rung in _GIVEN else "",
            "tenant": identity.tenant,
            "tool": call.tool,
            "upstream": call.upstream,
        }
        canonical = "".join(_CANONICAL(bound, 0))
        return hashlib.blake2b(canonical.encode(), digest_size=16).hexdigest()

    def requests(
        self, policy: Policy, asked: Sequence[tuple[TracedCall, Verdict]]
    ) -> list[tuple[LabelWrite, LabelWrite]]:
        """Return the records of the calls of one message that are asked about, in their order.

        Each comes with its entry in the index of what waits.  A record is enciphered with the
        deployment's key.  A person answers any of them for all, because the message goes out with
        all of its calls or not at all.
        """
        calls: list[AskedCall] = []
        two, people = policy.approvals.two_people, 1
        for traced, verdict in asked:
            call = traced.classified.call
            asking = (one.code for one in verdict.reasons if one.action is Action.ASK)
            # The least attested receiver is shown, wherever the call names it.
            targets: Sequence[Target] = (*traced.targets, *filter(_is_tainted, traced.guarded))
            if len(targets) > 1:
                targets = sorted(targets, key=_standing, reverse=True)
            calls.append(
                AskedCall(
                    decision=call.id,
                    digest=self.digest(policy, call),
                    server=call.server,
                    upstream=call.upstream,
                    tool=_cut(call.tool, TOOL_CHARACTERS),
                    protocol=call.protocol,
                    reasons=tuple(dict.fromkeys(asking)),
                    receivers=tuple(map(_receiver, targets[:RECEIVERS_SHOWN])),
                    excerpt=_excerpt(call.arguments),
                    definition=traced.definition,
                    more=max(0, len(targets) - RECEIVERS_SHOWN),
                    folders=folders.offered(policy, traced, verdict),
                    **_errand_fields(policy, traced),
                )
            )
            if two is None or not two.isdisjoint(verdict.decided_by):
                people = 2
        first = asked[0][0].classified.call
        request = ApprovalRequest(
            tenant=first.identity.tenant,
            principal=first.identity.principal,
            session=first.identity.session,
            policy=policy.digest,
            at=first.at,
            expires=first.at + policy.limits.approval,
            remembered_for=policy.limits.established,
            calls=tuple(calls),
            people=people,
            own=policy.approvals.own,
            errand=max(traced.errand.at if traced.errand else 0.0 for traced, _ in asked),
        )
        writes: list[tuple[LabelWrite, LabelWrite]] = []
        for number, one in enumerate(calls):
            others = (*calls[:number], *calls[number + 1 :]) if len(calls) <= TOGETHER else ()
            area = label_sets.request(request.tenant, one.decision, policy.limits.approval)
            body = json.dumps(asdict(replace(request, calls=(one, *others)))).encode()
            sealed = self._seal.enciphered(area, REQUEST_FIELD, body)
            record = LabelWrite(area, LabelWriteMode.REPLACE, ((REQUEST_FIELD, sealed),))
            writes.append((record, self.indexed(request, one.decision)))
        return writes

    def indexed(self, request: ApprovalRequest, decision: str) -> LabelWrite:
        """Return what lists a waiting request under one of its decision ids."""
        ttl = max(1, int(request.expires - request.at))
        part = label_sets.waiting_part(self._seal, request.principal)
        area = label_sets.waiting(request.tenant, part, ttl)
        entry = decision.encode(), b"%.3f" % request.expires
        return LabelWrite(area, LabelWriteMode.INDEX, (entry,))

    def read(self, tenant: str, decision: str, raw: bytes) -> ApprovalRequest:
        """Return what a record asks.

        Raises:
            ValueError: it was altered, or is another decision's.
        """
        area = label_sets.request(tenant, decision, 1)
        body = self._seal.deciphered(area, REQUEST_FIELD, raw)
        if body is None:
            raise ValueError("the record of this decision was altered, or sealed with another key")
        fields: dict[str, Any] = json.loads(body)
        calls = tuple(map(_asked_call, fields.pop("calls")))
        asked = ApprovalRequest(**fields, calls=calls)
        if asked.decision != decision:
            raise ValueError("the record is another decision's")
        return asked

    @staticmethod
    def check(request: ApprovalRequest, at: float, by: Approver | None) -> None:
        """Refuse an approval that is not this person's to give.

        Args:
            request: what is asked.
            at: now.
            by: who answers; None for a program that holds the key.

        Raises:
            ValueError: it has expired, is asked in his own name, or needs people of whom it is
                known that they are two.
        """
        if request.expires < at:
            raise ValueError("this decision can no longer be approved; have the agent ask again")
        if by is not None and not request.own and by.is_principal(request.principal):
            raise ValueError(f"`{by.name}` cannot approve what is asked in the same name")
        if request.people > 1 and (by is None or by.realm in UNNAMED):
            raise ValueError(
                "two people have to approve this, each signed in on the console by name: the "
                "command line and the printed link prove a machine's account, not a person"
            )

    def first(self, request: ApprovalRequest, by: Approver, at: float, grant: Grant) -> bytes:
        """Return the sealed yes of the first of two people."""
        area = label_sets.request(request.tenant, request.key, 1)
        body = {**asdict(by), "names": [], "at": at, "scope": grant.scope, "until": grant.until}
        return self._seal.sealed(area, FIRST_FIELD, json.dumps(body).encode())

    def first_of(self, request: ApprovalRequest, raw: bytes) -> tuple[Approver, Grant] | None:
        """Return who was the first of two to approve a request, None where that was altered."""
        area = label_sets.request(request.tenant, request.key, 1)
        body = self._seal.opened(area, FIRST_FIELD, raw)
        if body is None:
            return None
        found = json.loads(body)
        by = Approver(found["name"], found["realm"], found["subject"])
        return by, Grant(Scope(found["scope"]), float(found["until"]), by.name)

    def second(self, request: ApprovalRequest, raw: bytes, by: Approver, grant: Grant) -> Grant:
        """Return for how much the yes of two people holds: the less of what they said.

        Args:
            request: what is asked.
            raw: the first one's yes, as the store has it.
            by: the second.
            grant: for how much the second said it.

        Raises:
            ValueError: the record was altered, or it is not known that they are two.
        """
        found = self.first_of(request, raw)
        if found is None:
            raise ValueError("the first approval was altered, or sealed with another key: deny it")
        first, given = found
        if first.realm != by.realm:
            raise ValueError(
                f"`{first.name}` signed in otherwise ({first.realm}); that you are two people is "
                "known only of those who sign in alike"
            )
        if first.subject == by.subject:
            raise ValueError("you have approved it already; another person has to as well")
        return narrower(given, grant)

    def answer(self, request: ApprovalRequest, at: float, grant: Grant) -> list[LabelWrite]:
        """Return the grants that a person's yes becomes, one for each call of the message.

        Args:
            request: what is asked.
            at: now.
            grant: for how much it holds.

        Raises:
            ValueError: what was not shown cannot be remembered.
        """
        if grant.scope is not Scope.CALL and any(call.more for call in request.calls):
            raise ValueError("it has more receivers than can be shown; approve it once, or deny it")
        ttl = max(1, int(request.expires - request.at))
        writes = [*self._errand_writes(request, at, grant)] if grant.scope is Scope.ERRAND else []
        for call in request.calls:
            area = label_sets.grant(call.digest, ttl)
            body = {
                "expires": at + ttl,
                "decision": call.decision,
                "definition": call.definition,
                "scope": grant.scope,
                "until": grant.until,
                "by": grant.by,
                "cover": grant.cover,
                "folders": grant.folders,
                "limit": grant.limit,
            }
            sealed = self._seal.sealed(area, GRANT_FIELD, json.dumps(body).encode())
            writes.append(LabelWrite(area, LabelWriteMode.REPLACE, ((GRANT_FIELD, sealed),)))
        return writes

    def _errand_writes(
        self, request: ApprovalRequest, at: float, grant: Grant
    ) -> Iterator[LabelWrite]:
        """Yield the errand grants of a person's yes.

        Raises:
            ValueError: no errand grant may cover one of its calls.
        """
        if not grant.whole_session and not request.errand:
            raise ValueError("no prompt is known that began an errand; approve it once")
        if not request.coverable:
            raise ValueError(
                "an errand grant covers no payment, credential, access right, or call that two "
                "people approve or whose recipient is not shown; approve it once"
            )
        area = errands.errand_set(request.tenant, request.principal)
        for call in request.calls:
            for (kind, recipient), action in _covers(call):
                given = ErrandGrant(
                    principal=request.principal,
                    session=request.session,
                    errand=0.0 if grant.whole_session else request.errand,
                    server=call.server,
                    upstream=call.upstream,
                    action=action,
                    kind=kind,
                    recipient=recipient,
                    object=call.object,
                    private=call.private,
                    codes=call.reasons,
                    policy=request.policy,
                    at=at,
                    until=min(grant.until, at + errands.LONGEST),
                    by=grant.by,
                    tool=call.tool,
                    decision=call.decision,
                )
                yield errands.sealed_grant(self._seal, area, request.identity, given)

    def grant(
        self, policy: Policy, call: ToolCall, raw: bytes, definition: str = ""
    ) -> Grant | None:
        """Return a grant that was taken, None where it is not whole or holds no longer.

        Args:
            policy: in force.
            call: for which it was taken.
            raw: the grant, as the store had it.
            definition: digest of the tool's changed definition, as for :class:`AskedCall`.
        """
        area = label_sets.grant(self.digest(policy, call), 1)
        body = self._seal.opened(area, GRANT_FIELD, raw)
        found = {} if body is None else json.loads(body)
        if found.get("expires", 0.0) < call.at or found.get("definition") != definition:
            return None
        cover = Cover(found["cover"]) if found.get("cover") else None
        return Grant(
            Scope(found["scope"]),
            float(found["until"]),
            str(found.get("by", "")),
            cover=cover,
            folders=_pairs(found.get("folders", ())),
            limit=str(found.get("limit", "")),
        )

    def untaken(self, policy: Policy, call: ToolCall, raw: bytes) -> LabelWrite:
        """Return the record of a grant that was taken, for a call that reached no server."""
        ttl = max(1, policy.limits.approval)
        area = label_sets.grant(self.digest(policy, call), ttl)
        return LabelWrite(area, LabelWriteMode.REPLACE, ((GRANT_FIELD, raw),))


def narrower(one: Grant, other: Grant) -> Grant:
    """Return what both of two grants allow."""
    if not {one.scope, other.scope} <= {Scope.SESSION, Scope.PRINCIPAL}:
        return Grant()
    scope = Scope.SESSION if Scope.SESSION in {one.scope, other.scope} else Scope.PRINCIPAL
    by = f"{one.by}, {other.by}"
    cover = one.cover if one.cover is other.cover else None
    return Grant(scope, min(one.until, other.until), by, cover=cover)


def _covers(call: AskedCall) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield the recipients of an errand grant, each with its action; sends to a site read it."""
    for one in call.covered:
        yield one, call.bound
        if one[0] == errands.SITE_KIND and call.bound != errands.READ:
            yield one, errands.READ


def _is_tainted(target: Target) -> bool:
    """Return whether only untrusted text names a value in the body: the approver sees it too."""
    return target.attestation is not None and target.attestation.rung is Rung.TAINTED


def _standing(target: Target) -> int:
    """Return how little vouches for a destination."""
    if target.attestation is not None:
        return int(target.attestation.rung)
    return -1 if target.status in LISTED else len(Rung)


def _cut(text: str, length: int) -> str:
    """Return a text with at most so many of its characters, and how many are missing."""
    more = len(text) - length
    return f"{text[:length]}\N{HORIZONTAL ELLIPSIS} ({more} more)" if more > 0 else text


def _excerpt(arguments: Mapping[str, Json]) -> str:
    """Return what would leave as JSON, as much of every argument as there is room for."""
    whole = _READABLE.encode(dict(arguments))
    if len(whole) <= EXCERPT:
        return whole
    members = [_READABLE.encode({_cut(k, _NAME): v})[1:-1] for k, v in arguments.items()]
    shown, more = members[:ARGUMENTS_SHOWN], len(members) - ARGUMENTS_SHOWN
    room = share = EXCERPT
    for number, length in enumerate(sorted(map(len, shown))):
        # The others share the room that the short ones leave.
        share = max(_MEMBER, room // (len(shown) - number))
        room = max(0, room - min(length, share))
    rest = [f"\N{HORIZONTAL ELLIPSIS} ({more} more)"] if more > 0 else []
    return f"{{{','.join([*(_cut(one, share) for one in shown), *rest])}}}"


def _errand_fields(policy: Policy, traced: TracedCall) -> dict[str, Any]:
    """Return what a call changes, and what an errand grant would bind."""
    classified, mapping = traced.classified, traced.classified.mapping
    covered = errands.covered_destinations(policy, classified, traced.targets)
    return {
        "change": traced.action.described() if traced.action is not None else {},
        "role": classified.role.value,
        "action": mapping.action.name if mapping and mapping.action else "",
        "object": _cut(errands.object_of(traced), TOOL_CHARACTERS),
        "private": traced.errand.private if traced.errand is not None else (),
        "bound": errands.action_of(classified),
        "covered": tuple((one.kind, one.canonical) for one in covered),
        "outline": traced.tool.outline.kinds.canonical if traced.tool and traced.tool.pin else "",
    }


def _receiver(target: Target) -> AskedReceiver:
    destination, attested = target.destination, target.attestation
    found = AskedReceiver(
        kind=destination.kind,
        receiver=_cut(destination.canonical, EXCERPT),
        status=target.status.value,
        rung=attested.rung.label if attested else "",
        why=attested.why if attested else "",
        path=target.path[:EXCERPT],
    )
    record = attested.record if attested else None
    if attested is None or record is None:
        return found
    return replace(
        found,
        source=record.source,
        channel=record.channel.value,
        session="this" if attested.same_session else "earlier",
        met_in=record.session.hex(),
        call=record.call,
        at=record.at,
    )


def _asked_call(fields: Mapping[str, Any]) -> AskedCall:
    receivers = tuple(AskedReceiver(**{**one, "sent": ()}) for one in fields["receivers"])
    lists = {name: tuple(fields.get(name, ())) for name in ("reasons", "private")}
    pairs = {name: _pairs(fields.get(name, ())) for name in ("covered", "folders")}
    return AskedCall(**{**fields, **lists, **pairs, "receivers": receivers})


def _pairs(listed: Iterable[Sequence[str]]) -> tuple[tuple[str, str], ...]:
    return tuple((kind, canonical) for kind, canonical in listed)
