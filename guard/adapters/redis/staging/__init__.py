"""Staging of memory writes in Redis: one script each to stage, commit, refuse and settle.

A staged candidate lives in Redis only and is no part of any memory store.  Time is Redis' own
(``TIME``), so replicas whose clocks disagree agree on what has expired.
"""

from __future__ import annotations

import hashlib
import secrets
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from guard.adapters.redis.layout import Script
from guard.adapters.redis.staging.facts import TokenReader, facts_of, text_of
from guard.adapters.redis.staging.keys import MemoryKeys
from guard.adapters.redis.staging.record import record_of
from guard.core.errors import StateError
from guard.core.memory import (
    AGENT_FAULTS,
    SOURCE_FAULTS,
    Fate,
    StagedFacts,
    Trust,
)
from guard.core.memory_policy import MemoryLimits
from guard.memory_gate.drift import SUBJECTS, steps
from guard.provenance.seal import KEY_BYTES, Seal

if TYPE_CHECKING:
    from guard.adapters.redis.connection import RedisClient
    from guard.core.memory import Candidate, GateDecision
    from guard.core.memory_policy import DriftSettings
    from guard.core.model import Identity

SCRIPTS: Final = ("stage", "commit", "refuse", "settle", "reserve", "promote", "read")
SOURCES: Final = 16
"""Sources of one candidate whose trust is looked up; a candidate with more has no known source
and its principal answers for it."""


@lru_cache(maxsize=len(SCRIPTS))
def staging_script(name: str) -> Script:
    """Return a script of this package."""
    parts = ("drift", name) if name == "settle" else (name,)
    text = "\n".join(
        files(__name__).joinpath(f"{part}.lua").read_text(encoding="utf-8") for part in parts
    )
    return Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


class RedisStaging:
    """Candidates, nonces, tokens and trust; implements :class:`guard.memory_gate.staging.Staging`.

    Args:
        client: the connection; whoever made it closes it.
        limits: of the policy.
        namespace: first part of every key.
        owner: names this guard, so that after a crash its own candidates are told from others'.
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
            staging_script("stage"),
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
            staging_script("commit"),
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
        """Refuse a candidate and lower the trust in whoever is to blame; return the worst left.

        The source is blamed for what was read from it, where it is the only one that the text can
        have come from; the principal for what only the caller can have done, and otherwise.
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
            staging_script("refuse"),
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
        )
        return _trust(reply)

    async def settle(
        self,
        candidate: Candidate,
        fate: Fate,
        subjects: frozenset[str] = frozenset(),
        drift: DriftSettings | None = None,
    ) -> tuple[str, ...]:
        """Say what became of a committed candidate; return the subjects found to drift with it.

        Raises:
            StateError: the store did not answer soundly; the candidate stays in flight.
        """
        keys = self.keys(candidate.identity.tenant)
        principal = candidate.identity.principal
        names = [
            keys.candidate(candidate.id),
            keys.in_flight,
            keys.item(candidate.store, candidate.partition, candidate.key),
            keys.drift(principal),
            keys.findings,
            keys.trust("principal", principal),
        ]
        watched: list[str | int] = []
        if drift is not None:
            gain, loss = steps(drift)
            watched = [repr(gain), repr(loss), repr(drift.alarm), SUBJECTS]
            watched += [int(drift.lower_trust), self.limits.nonce_ttl * 1000, principal]
            watched += sorted(subjects)[:SUBJECTS]
        keep = self.limits.keep_refused * 1000
        reply = await self._client.run(
            staging_script("settle"), len(names), *names, candidate.id, fate.value, keep, *watched
        )
        return tuple(text_of(item) for item in reply) if isinstance(reply, list) else ()

    async def read(self, identity: Identity, sources: frozenset[bytes]) -> None:
        """Remember that a session has read from sources.

        Raises:
            StateError: the store did not answer; the session's next writes have no known source.
        """
        keys = self.keys(identity.tenant)
        names = [keys.source(mark) for mark in sorted(sources)]
        key = keys.sources(identity.principal, identity.session)
        ttl = self.limits.stage_ttl * 24 * 1000
        await self._client.run(staging_script("read"), 1, key, ttl, SOURCES, *names)

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
        script = staging_script("reserve")
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
        msg = "redis answered with a trust level that does not exist"
        raise StateError(msg) from error
