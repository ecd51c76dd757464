"""Staging of memory writes in Redis: one script each to stage, commit, refuse and settle.

A staged candidate lives in Redis only and is not part of any memory store.  Time is Redis' own
(``TIME``), so replicas whose clocks disagree agree on what has expired.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from guard.core.errors import StateError
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

    @property
    def candidates(self) -> str:
        """Return how the keys of candidates' records begin."""
        return f"{self.prefix}c:"

    def candidate(self, identifier: str) -> str:
        """Return the key of a candidate's record."""
        return f"{self.candidates}{digest(b'candidate', identifier)}"

    def nonce(self, principal: str, nonce: str) -> str:
        """Return the key of a nonce; nonces of two principals never meet."""
        return f"{self.prefix}n:{digest(b'nonce', principal, nonce)}"

    def item(self, store: str, partition: str, key: str) -> str:
        """Return the key of what is known of a committed item."""
        return f"{self.prefix}i:{digest(b'item', store, partition, key)}"

    def binding(self, content: str, target: MemoryClass, principal: str) -> str:
        """Return the key of the token for a content, a class and a principal."""
        return f"{self.prefix}k:{digest(b'binding', content, target.name, principal)}"

    def token(self, secret: str) -> str:
        """Return the key of a token by its secret."""
        return f"{self.prefix}t:{digest(b'token', secret)}"

    def trust(self, kind: str, name: str) -> str:
        """Return the key of the trust in a ``principal`` or a ``source``."""
        if kind == "source":
            return self.source(source_mark(name))
        return f"{self.prefix}trust:{kind}:{digest(b'trust', kind, name)}"

    def source(self, mark: bytes) -> str:
        """Return the key of the trust in a source by its mark."""
        return f"{self.prefix}trust:source:{mark.hex()}"

    def sources(self, principal: str, session: str) -> str:
        """Return the key of the sources that a session has read from."""
        return f"{self.prefix}r:{digest(b'sources', principal, session)}"

    def quarantine(self, store: str, partition: str) -> str:
        """Return the key of a partition's quarantine."""
        return f"{self.prefix}q:{digest(b'partition', store, partition)}"

    @property
    def closed(self) -> str:
        """Return the key of what is in quarantine, by name, for people: the gate looks at each."""
        return f"{self.prefix}closed"

    def drift(self, principal: str) -> str:
        """Return the key of what a principal's committed items say."""
        return f"{self.prefix}d:{digest(b'drift', principal)}"

    @property
    def findings(self) -> str:
        """Return the key of the drift findings."""
        return f"{self.prefix}drift"

    @property
    def in_flight(self) -> str:
        """Return the key of the committed candidates without an answer."""
        return f"{self.prefix}inflight"

    @property
    def review(self) -> str:
        """Return the key of the candidates that a person may want to see."""
        return f"{self.prefix}review"

    def settled(
        self, candidate: str, store: str, partition: str, key: str, principal: str
    ) -> list[str]:
        """Return the keys that settling a candidate changes."""
        return [
            self.candidate(candidate),
            self.in_flight,
            self.item(store, partition, key),
            self.drift(principal),
            self.findings,
            self.trust("principal", principal),
        ]


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
        "key": candidate.key,
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
            item_class=MemoryClass(int(item)) if item else None,
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
        first = keys.binding(candidate.digest, candidate.target, principal)
        second = keys.binding(candidate.digest, lower, principal)
        names = [
            keys.candidate(candidate.id),
            keys.nonce(principal, candidate.nonce),
            keys.item(candidate.store, candidate.partition, candidate.key),
            first,
            second,
            keys.token(candidate.token),
            keys.quarantine(candidate.store, candidate.partition),
            keys.sources(principal, candidate.identity.session),
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
            keys.candidate(candidate.id),
            keys.nonce(principal, candidate.nonce),
            keys.item(candidate.store, candidate.partition, candidate.key),
            keys.binding(candidate.digest, decision.target, principal),
            keys.in_flight,
            keys.quarantine(candidate.store, candidate.partition),
            keys.sources(principal, candidate.identity.session),
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
            keys.candidate(candidate.id),
            keys.review,
            keys.sources(identity.principal, identity.session),
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
        place = candidate.store, candidate.partition, candidate.key
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
        reply = await self._client.rows("HMGET", keys.candidate(identifier), *wanted)
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
        key = keys.sources(identity.principal, identity.session)
        ttl = self.limits.stage_ttl * 24 * 1000
        await self._client.run(load_script("read"), 1, key, ttl, SOURCES, *names)

    async def is_closed(self, identity: Identity, store: str, partitions: frozenset[str]) -> bool:
        """Return whether the operator has closed any of the partitions of a store."""
        keys = self.keys(identity.tenant)
        names = [keys.quarantine(store, partition) for partition in sorted(partitions)]
        return await self._client.execute("EXISTS", *names) != 0

    async def reserve(self, candidate: Candidate) -> bool:
        """Bind the nonce of a proposed update to its text; False where it is bound otherwise."""
        key = self.keys(candidate.identity.tenant).nonce(
            candidate.identity.principal, candidate.nonce
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


def _trust(reply: object) -> Trust:
    try:
        return Trust(reply)  # type: ignore[arg-type]
    except ValueError as error:
        raise StateError("redis answered with a trust level that does not exist") from error
