"""Staging of memory writes in Redis: one script each to stage, commit, refuse and settle.

A staged candidate lives in Redis only and is not part of any memory store.  Time is Redis' own
(``TIME``), so replicas whose clocks disagree agree on what has expired.

Operators' actions at the memory gate: promote, quarantine, review, restore trust.

Every step is asked for by a person, on the command line; no call waits for any of it.
"""

from __future__ import annotations

import json
import secrets
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from guard.core.errors import GuardError, StateError
from guard.core.mappings import DriftSettings, MemoryLimits
from guard.core.memory import (
    AGENT_FAULTS,
    SOURCE_FAULTS,
    Candidate,
    Fate,
    GateDecision,
    MemoryClass,
    StagedFacts,
    TokenState,
    Trust,
)
from guard.memory.candidate import canonical, content_digest
from guard.memory.drift import SUBJECTS, steps
from guard.provenance.result_documents import source_mark
from guard.provenance.seal import KEY_BYTES, Seal
from guard.store.layout import digest, load_script, tenant_tag

if TYPE_CHECKING:
    from guard.core.model import Identity
    from guard.store.connection import RedisClient


class MemoryKeys:
    """Key names of the memory gate; whatever a client chose enters them as a digest only.

    Args:
        namespace: first part of every key.
        tenant: of the principal; all keys of one candidate are in one hash slot.
    """

    def __init__(self, namespace: str, tenant: str) -> None:
        self.prefix = f"{namespace}:{{{tenant_tag(tenant)}}}:m:"
        self.candidates = f"{self.prefix}{_KINDS['candidate']}:"
        """Begin of the keys of candidates' records."""
        self.closed = f"{self.prefix}closed"
        """Closed partitions by name, for people: the gate looks at each."""
        self.findings = f"{self.prefix}drift"
        self.in_flight = f"{self.prefix}inflight"
        """The committed candidates without an answer."""
        self.review = f"{self.prefix}review"
        """The candidates that a person may want to see."""

    def of(self, kind: str, *parts: str) -> str:
        """Return the key of a record of one of ``_KINDS``, which some texts name."""
        return f"{self.prefix}{_KINDS[kind]}:{digest(kind.encode(), *parts)}"

    def trust(self, kind: str, name: str) -> str:
        """Return the key of the trust in a ``principal`` or a ``source``."""
        if kind == "source":
            return self.source(source_mark(name))
        return f"{self.prefix}trust:{kind}:{digest(b'trust', kind, name)}"

    def source(self, mark: bytes) -> str:
        """Return the key of the trust in a source by its mark."""
        return f"{self.prefix}trust:source:{mark.hex()}"

    def items(self, store: str, partition: str, keys: str) -> list[str]:
        """Return the keys of the items that a candidate writes, by the text of their keys."""
        # An earlier version recorded one key as it is.
        found = json.loads(keys) if keys[:1] == "[" else [keys]
        return [self.of("item", store, partition, key) for key in found]

    def settled(
        self, candidate: str, store: str, partition: str, keys: str, principal: str
    ) -> list[str]:
        """Return the keys that settling a candidate changes."""
        return [
            self.of("candidate", candidate),
            self.in_flight,
            self.of("drift", principal),
            self.findings,
            self.trust("principal", principal),
            *self.items(store, partition, keys),
        ]


_KINDS: Final = {
    "candidate": "c",
    "nonce": "n",
    "item": "i",
    "binding": "k",
    "token": "t",
    "sources": "r",
    "partition": "q",
    "drift": "d",
}
"""Kinds of records, each with its part of the key.

* ``nonce``: principal and nonce, so that those of two principals never meet.
* ``item``: store, partition and key of a committed item.
* ``binding``: digest, class and principal that a promotion token is for.
* ``token``: its secret.
* ``sources``: principal and session that has read from them.
* ``partition``: store and name of a partition in quarantine.
* ``drift``: principal whose committed items are watched.
"""


def record_of(candidate: Candidate, receipt: str) -> list[str]:
    """Return field and value pairs; what is too large is refused by its size and not kept."""
    fields = {
        "id": candidate.id,
        "principal": candidate.identity.principal,
        "session": candidate.identity.session,
        "tool": candidate.tool,
        "server": candidate.server,
        "store": candidate.store,
        "partition": candidate.partition,
        "key": canonical(list(candidate.keys)),
        "target": candidate.target.name,
        "digest": candidate.digest,
        "text_digest": candidate.text_digest,
        "receipt": receipt,
        "sources": ",".join(sorted(kind.value for kind in candidate.evidence.types)),
        # A candidate that is too large is refused by its size; there is nothing to review in it.
        "content": "" if candidate.problems else candidate.content,
    }
    return [part for field in fields.items() for part in field]


SPENT: Final = 10_000
"""Used promotion tokens that one process remembers."""
_STAGED: Final = 8
"""Values that the staging script answers."""


class TokenReader:
    """Checks promotion tokens by their MAC: a token that was only written to the store is forged.

    Args:
        seal: the deployment's key.
    """

    def __init__(self, seal: Seal) -> None:
        self._seal = seal
        # A token that this process has seen used stays so, whatever is written to the store.
        self._spent: OrderedDict[str, None] = OrderedDict()

    def spend(self, mac: str) -> None:
        """Remember that a token was used."""
        self._spent[mac] = None
        if len(self._spent) > SPENT:
            self._spent.popitem(last=False)

    def read(self, candidate: Candidate, target: MemoryClass, text: str) -> tuple[TokenState, str]:
        """Return the state of a token and its MAC.

        Args:
            candidate: whose content and principal it must be for.
            target: the class it must be for.
            text: state, expiry (ms) and MAC with blanks between; the state alone for no token.
        """
        name, found, rest = text.partition(" ")
        state = TokenState(name)
        if not found:
            return state, ""
        until, _, mac = rest.partition(" ")
        identity = candidate.identity
        if not until.isdigit():
            return TokenState.FORGED, ""
        parts = identity.tenant, candidate.digest, target.name, identity.principal, str(int(until))
        if not self._seal.is_promotion(mac, *parts):
            return TokenState.FORGED, ""
        return (TokenState.USED if mac in self._spent else state), mac


def facts_of(
    candidate: Candidate, lower: MemoryClass, reply: object, tokens: TokenReader
) -> StagedFacts:
    """Return the facts in an answer of the staging script.

    Raises:
        StateError: the answer is unsound, or the candidate's id was used twice.
    """
    if not isinstance(reply, list) or len(reply) != _STAGED or reply[0] != 1:
        raise StateError(
            "redis did not stage a memory write; an id was used twice or the answer is unsound"
        )
    nonce, item = text_of(reply[1]), text_of(reply[2])
    try:
        found = {
            lower: tokens.read(candidate, lower, text_of(reply[5])),
            candidate.target: tokens.read(candidate, candidate.target, text_of(reply[4])),
        }
        return StagedFacts(
            nonce_used=nonce[:1] == "u",
            nonce_digest=nonce[2:] if nonce[:1] == "s" else "",
            item_classes=frozenset(map(MemoryClass, map(int, item))),
            item_version=int(reply[3]),
            tokens={target: state for target, (state, _) in found.items()},
            token_macs={target: mac for target, (_, mac) in found.items()},
            trust=Trust(reply[7]),
            quarantined=reply[6] != 0,
        )
    except (TypeError, ValueError) as error:
        raise StateError(
            "redis answered the staging of a memory write with something unsound"
        ) from error


def text_of(reply: object) -> str:
    """Return a text.

    Raises:
        StateError: it is none.
    """
    if not isinstance(reply, bytes):
        raise StateError("redis answered the memory gate with something else than text")
    return reply.decode("utf-8", "replace")


SOURCES: Final = 16
"""Sources of one candidate whose trust is looked up; a candidate with more has no known source
and its principal answers for it."""


class RedisStaging:
    """Candidates, nonces, tokens and trust; implements :class:`guard.memory.write_path.Staging`.

    Args:
        client: the connection; it is not closed here.
        limits: of the policy.
        namespace: first part of every key.
        owner: name of this guard's worker, which recovery after a crash tells candidates apart by.
        seal: the deployment's key, which promotion tokens are checked with; left out, none fits.
    """

    def __init__(
        self,
        client: RedisClient,
        limits: MemoryLimits | None = None,
        *,
        namespace: str = "guard",
        owner: str = "",
        seal: Seal | None = None,
    ) -> None:
        self._client = client
        self._tokens = TokenReader(seal or Seal(secrets.token_bytes(KEY_BYTES)))
        self.limits = limits or MemoryLimits()
        self._namespace = namespace
        self._owner = owner

    def keys(self, tenant: str) -> MemoryKeys:
        """Return the key names of a tenant."""
        return MemoryKeys(self._namespace, tenant)

    async def stage(self, candidate: Candidate, receipt: str) -> StagedFacts:
        """Stage a candidate and return what the gate must know, in one EVALSHA.

        Raises:
            StateError: the store did not answer soundly; the write must be refused.
        """
        keys = self.keys(candidate.identity.tenant)
        lower = candidate.fallback or candidate.target
        principal = candidate.identity.principal
        first = keys.of("binding", candidate.digest, candidate.target.name, principal)
        second = keys.of("binding", candidate.digest, lower.name, principal)
        names = [
            keys.of("candidate", candidate.id),
            keys.of("nonce", principal, candidate.nonce),
            first,
            second,
            keys.of("token", candidate.token),
            keys.of("partition", candidate.store, candidate.partition),
            keys.of("sources", principal, candidate.identity.session),
            *_items(keys, candidate),
            *self._trust(keys, candidate),
        ]
        reply = await self._client.run(
            load_script("stage"),
            len(names),
            *names,
            self.limits.stage_ttl * 1000,
            first,
            second,
            "1" if candidate.token else "0",
            len(candidate.keys),
            *record_of(candidate, receipt),
        )
        return facts_of(candidate, lower, reply, self._tokens)

    async def commit(
        self, candidate: Candidate, decision: GateDecision, facts: StagedFacts, receipt: str
    ) -> str:
        """Commit a staged candidate in one atomic step; return a reason where it is refused.

        Raises:
            StateError: as :meth:`stage`.  It may have been committed: it is not sent, and
            :meth:`settle` abandons it.
        """
        keys = self.keys(candidate.identity.tenant)
        principal = candidate.identity.principal
        names = [
            keys.of("candidate", candidate.id),
            keys.of("nonce", principal, candidate.nonce),
            keys.of("binding", candidate.digest, decision.target.name, principal),
            keys.in_flight,
            keys.of("partition", candidate.store, candidate.partition),
            keys.of("sources", principal, candidate.identity.session),
            *_items(keys, candidate),
            *self._trust(keys, candidate),
        ]
        reply = await self._client.run(
            load_script("commit"),
            len(names),
            *names,
            candidate.id,
            candidate.digest,
            candidate.text_digest,
            receipt,
            decision.target.value,
            int(decision.tainted),
            int(decision.uses_token),
            facts.item_version,
            self.limits.nonce_ttl * 1000,
            self.limits.keep_refused * 1000,
            self._owner,
            len(candidate.keys),
        )
        reason = text_of(reply)
        if not reason and decision.uses_token:
            self._tokens.spend(facts.token_macs.get(decision.target, ""))
        return reason

    async def refuse(self, candidate: Candidate, reasons: tuple[str, ...]) -> Trust:
        """Refuse a candidate, lower the trust in its source or principal; return the lowest left.

        The source's trust is lowered for what was read from it, where the text can have come from
        no other source; in every other case the principal's is.
        """
        keys = self.keys(candidate.identity.tenant)
        identity = candidate.identity
        names = [
            keys.of("candidate", candidate.id),
            keys.review,
            keys.of("sources", identity.principal, identity.session),
            *self._trust(keys, candidate),
        ]
        reply = await self._client.run(
            load_script("refuse"),
            len(names),
            *names,
            candidate.id,
            ",".join(reasons),
            self.limits.keep_refused * 1000,
            self.limits.degrade_after,
            self.limits.untrust_after,
            int(bool(AGENT_FAULTS.intersection(reasons))),
            int(bool(SOURCE_FAULTS.intersection(reasons))),
            int(candidate.evidence.certain),
            self.limits.recover_after * 1000,
        )
        return _trust(reply)

    async def settle(
        self,
        candidate: Candidate,
        fate: Fate,
        subjects: frozenset[str] = frozenset(),
        drift: DriftSettings | None = None,
    ) -> tuple[str, ...]:
        """Record the fate of a committed candidate; return the subjects found to drift with it.

        Raises:
            StateError: the store did not answer soundly; the candidate stays in flight.
        """
        keys = self.keys(candidate.identity.tenant)
        place = candidate.store, candidate.partition, canonical(list(candidate.keys))
        names = keys.settled(candidate.id, *place, candidate.identity.principal)
        watched: list[str | int] = []
        if drift is not None:
            gain, loss = steps(drift)
            watched = [repr(gain), repr(loss), repr(drift.alarm), SUBJECTS]
            recovery = self.limits.recover_after * 1000 if drift.lower_trust else 0
            watched += [recovery, self.limits.nonce_ttl * 1000]
            watched.append(candidate.identity.principal)
            watched += sorted(subjects)[:SUBJECTS]
        keep = self.limits.keep_refused * 1000
        reply = await self._client.run(
            load_script("settle"), len(names), *names, candidate.id, fate.value, keep, *watched
        )
        return tuple(text_of(item) for item in reply) if isinstance(reply, list) else ()

    async def settle_by_id(self, tenant: str, identifier: str, fate: Fate) -> None:
        """Record the fate of a candidate that another process has committed; drift is not watched.

        Raises:
            StateError: as :meth:`settle`.
        """
        keys = self.keys(tenant)
        wanted = ("store", "partition", "key", "principal")
        reply = await self._client.rows("HMGET", keys.of("candidate", identifier), *wanted)
        if None in reply:
            return  # It was never staged, or is settled and gone.
        names = keys.settled(identifier, *map(text_of, reply))
        keep = self.limits.keep_refused * 1000
        await self._client.run(
            load_script("settle"), len(names), *names, identifier, fate.value, keep
        )

    async def read(self, identity: Identity, sources: frozenset[bytes]) -> None:
        """Remember that a session has read from sources.

        Raises:
            StateError: the store did not answer; the session's next writes have no known source.
        """
        keys = self.keys(identity.tenant)
        names = [keys.source(mark) for mark in sorted(sources)]
        key = keys.of("sources", identity.principal, identity.session)
        ttl = self.limits.stage_ttl * 24 * 1000
        await self._client.run(load_script("read"), 1, key, ttl, SOURCES, *names)

    async def is_closed(self, identity: Identity, store: str, partitions: frozenset[str]) -> bool:
        """Return whether the operator has closed any of the partitions of a store."""
        keys = self.keys(identity.tenant)
        names = [keys.of("partition", store, partition) for partition in sorted(partitions)]
        return await self._client.execute("EXISTS", *names) != 0

    async def reserve(self, candidate: Candidate) -> bool:
        """Bind the nonce of a proposed update to its text; False where it is bound otherwise."""
        key = self.keys(candidate.identity.tenant).of(
            "nonce", candidate.identity.principal, candidate.nonce
        )
        ttl = self.limits.nonce_ttl * 1000
        script = load_script("reserve")
        return await self._client.run(script, 1, key, candidate.text_digest, ttl) == 1

    def _trust(self, keys: MemoryKeys, candidate: Candidate) -> list[str]:
        sources = candidate.evidence.sources
        if len(sources) > SOURCES:
            sources = ()
        return [
            keys.trust("principal", candidate.identity.principal),
            *(keys.source(mark) for mark in sources),
        ]


def _items(keys: MemoryKeys, candidate: Candidate) -> list[str]:
    return [keys.of("item", candidate.store, candidate.partition, key) for key in candidate.keys]


def _trust(reply: object) -> Trust:
    try:
        return Trust(reply)  # type: ignore[arg-type]
    except ValueError as error:
        raise StateError("redis answered with a trust level that does not exist") from error


TOKEN_PREFIX: Final = "gmt_"  # noqa: S105  (what a token starts with, so that scanners know it)
SHOWN: Final = ("id", "fate", "reasons", "principal", "session", "tool", "store", "partition")
_FIELDS: Final = (
    *SHOWN,
    *("key", "target", "class", "tainted", "digest", "sources", "at", "content", "owner", "server"),
)
LOOKED_AFTER: Final = 1000
"""Most writes in flight that one call of :meth:`GateOperator.in_flight` returns."""


CLOSED_SHOWN: Final = 200


class Closed(NamedTuple):
    """A partition that is closed."""

    store: str
    partition: str
    reason: str
    until: float
    """Seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Reviewed:
    """The record of a candidate, for review."""

    fields: dict[str, str]
    age: float = 0.0
    """Seconds since it was committed, where it is in flight."""

    @property
    def id(self) -> str:
        """The decision id."""
        return self.fields["id"]


class GateOperator:
    """The operator's side of the staging store.

    Args:
        client: the connection.
        namespace: first part of every key.
        tenant: whose memory.
    """

    def __init__(
        self, client: RedisClient, *, namespace: str = "guard", tenant: str = "default"
    ) -> None:
        self._client = client
        self._tenant = tenant
        self._keys = MemoryKeys(namespace, tenant)

    async def candidate(self, identifier: str) -> Reviewed:
        """Return a candidate by its decision id.

        Raises:
            GuardError: it is not known, or not any more.
        """
        values = await self._client.rows("HMGET", self._keys.of("candidate", identifier), *_FIELDS)
        fields = {
            name: value.decode("utf-8", "replace")
            for name, value in zip(_FIELDS, values, strict=True)
            if value is not None
        }
        if "id" not in fields:
            raise GuardError(
                f"no memory write has the decision id `{identifier}`; it may have expired"
            )
        return Reviewed(fields)

    async def promote(
        self, identifier: str, target: MemoryClass, seconds: int, issuer: str, seal: Seal
    ) -> str:
        """Issue a promotion token for exactly the content and principal of a candidate.

        The agent's retry finds it by its binding; stores with a place for a token may carry it.

        Returns:
            The token; it is kept nowhere in clear.

        Raises:
            GuardError: the candidate is not known, or its content was altered.
        """
        fields = (await self.candidate(identifier)).fields
        secret = f"{TOKEN_PREFIX}{secrets.token_urlsafe(24)}"
        digest, principal = fields["digest"], fields["principal"]
        if content_digest(fields["tool"], fields.get("content", "")) != digest:
            raise GuardError(
                f"the content of `{identifier}` is not what was staged; it was altered or cut"
            )
        until = await self._now() // 1000 * 1000 + seconds * 1000
        binding = self._keys.of("binding", digest, target.name, principal)
        names = (binding, self._keys.of("token", secret))
        mac = seal.promotion(self._tenant, digest, target.name, principal, until)
        script = load_script("promote")
        await self._client.run(script, 2, *names, binding, seconds * 1000, issuer, until, mac)
        return secret

    async def quarantine(self, store: str, partition: str, reason: str, seconds: int) -> None:
        """Close a partition: no write enters it until it is released or the time is over."""
        key = self._keys.of("partition", store, partition)
        await self._client.execute("SET", key, reason or "-", "PX", seconds * 1000)
        until, name = await self._now() + seconds * 1000, json.dumps([store, partition])
        await self._client.execute("ZADD", self._keys.closed, until, name)

    async def release(self, store: str, partition: str) -> bool:
        """Open a partition again; False where it was not closed."""
        await self._client.execute("ZREM", self._keys.closed, json.dumps([store, partition]))
        return await self._client.execute("DEL", self._keys.of("partition", store, partition)) == 1

    async def closed(self) -> list[Closed]:
        """Return the partitions that are closed, the last to be open again first."""
        key = self._keys.closed
        await self._client.execute("ZREMRANGEBYSCORE", key, "-inf", await self._now())
        items = await self._client.rows("ZREVRANGE", key, 0, CLOSED_SHOWN - 1, "WITHSCORES")
        found: list[Closed] = []
        for member, score in zip(items[::2], items[1::2], strict=True):
            store, partition = json.loads(member)
            why = await self._client.execute("GET", self._keys.of("partition", store, partition))
            if isinstance(why, bytes):
                text = why.decode("utf-8", "replace")
                found.append(Closed(store, partition, text, float(score) / 1000))
        return found

    async def _now(self) -> int:
        """Return what time it is in Redis, in milliseconds."""
        seconds, rest = await self._client.rows("TIME")
        return int(seconds) * 1000 + int(rest) // 1000

    async def review(self, limit: int) -> list[Reviewed]:
        """Return the newest refused candidates, and those of unknown fate or still in flight."""
        found: dict[str, Reviewed] = {}
        for key in (self._keys.in_flight, self._keys.review):
            for identifier in await self._client.rows("ZREVRANGE", key, 0, limit - 1):
                with suppress(GuardError):
                    name = identifier.decode()
                    found.setdefault(name, await self.candidate(name))
        return list(found.values())[:limit]

    async def in_flight(self, older_than: float) -> list[Reviewed]:
        """Return committed candidates without a known fate for so many seconds, oldest first."""
        now = await self._now()
        key, limit = self._keys.in_flight, now - int(older_than * 1000)
        bounds = ("-inf", limit, "WITHSCORES", "LIMIT", 0, LOOKED_AFTER)
        items = await self._client.rows("ZRANGEBYSCORE", key, *bounds)
        found: list[Reviewed] = []
        for member, score in zip(items[::2], items[1::2], strict=True):
            name = member.decode()
            try:
                reviewed = await self.candidate(name)
            except GuardError:
                # Its record has expired; there is nothing left to settle.
                await self._client.execute("ZREM", key, name)
                continue
            found.append(Reviewed(reviewed.fields, (now - float(score)) / 1000))
        return found

    async def settle(self, reviewed: Reviewed, fate: Fate, seconds: int) -> None:
        """Record the fate of a candidate, after the store was read back."""
        fields = reviewed.fields
        place = fields["store"], fields["partition"], fields["key"]
        # Reading back says nothing new about what a principal's items say.
        names = self._keys.settled(reviewed.id, *place, fields["principal"])
        await self._client.run(
            load_script("settle"), len(names), *names, reviewed.id, fate.value, seconds * 1000
        )

    async def drift(self) -> list[tuple[str, str]]:
        """Return the drift findings as (principal, subject), newest first."""
        found = await self._client.rows("ZREVRANGE", self._keys.findings, 0, 199)
        names = (item.decode().partition("\n") for item in found)
        return [(principal, subject) for principal, _, subject in names]

    async def restore(self, kind: str, name: str) -> int:
        """Trust a source or principal again; return the level it had."""
        level = await self.trust(kind, name)
        await self._client.execute("DEL", self._keys.trust(kind, name))
        return level

    async def trust(self, kind: str, name: str) -> int:
        """Return the level of a source or principal."""
        level = await self._client.run(load_script("level"), 1, self._keys.trust(kind, name))
        return level if isinstance(level, int) else 0
