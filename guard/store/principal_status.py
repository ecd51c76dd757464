"""Operators' actions on a principal's status: end a pause, open and close a break-glass."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from guard.core.errors import GuardError
from guard.core.model import Identity
from guard.provenance.approvals import UNNAMED
from guard.provenance.label_sets import BUCKETS
from guard.provenance.principal_status import (
    ASKED_SECONDS,
    GLASS,
    PAUSE,
    BreakGlass,
    Pause,
    asked_set,
    mark_of,
    principal_status_set,
    read,
    write,
)
from guard.store.approval_requests import Awaited

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from guard.core.labels import LabelSet
    from guard.provenance.approvals import Approver
    from guard.provenance.seal import Seal
    from guard.store.store import RedisSessionStore

_KINDS: Final[dict[bytes, Callable[..., Pause | BreakGlass]]] = {PAUSE: Pause, GLASS: BreakGlass}


class PrincipalStatusOperator:
    """Works on what is on record of the principals of one tenant.

    Args:
        store: connected.
        seal: the deployment's key.
        tenant: whose principals.
    """

    def __init__(self, store: RedisSessionStore, seal: Seal, tenant: str) -> None:
        self._store = store
        self._seal = seal
        self._tenant = tenant
        self._asked = Awaited(store, seal, tenant, asked_set(tenant), BreakGlass, ASKED_SECONDS)

    async def in_force(self, at: float) -> tuple[list[Pause], list[BreakGlass]]:
        """Return the pauses and the break-glasses in force."""
        found = [one async for one in self._records() if one.until > at]
        pauses = [one for one in found if isinstance(one, Pause)]
        return pauses, [one for one in found if isinstance(one, BreakGlass)]

    async def asked_glasses(self, at: float) -> list[BreakGlass]:
        """Return the break-glasses for which a second person is missing."""
        return await self._asked.listed(at)

    async def resume(self, principal: str) -> bool:
        """End the pause of a principal; return whether there was one."""
        return await self._drop(principal, PAUSE)

    async def close_glass(self, principal: str) -> bool:
        """End the break-glass of a principal; return whether there was one."""
        return await self._drop(principal, GLASS)

    async def ask_glass(self, glass: BreakGlass, by: Approver, at: float) -> BreakGlass:
        """Keep a break-glass until a second person opens it; return it with its id.

        Args:
            glass: principal, tool, seconds and why.
            by: who asks for it.
            at: now.

        Raises:
            GuardError: it is not this person's to ask for, or too many wait.
        """
        _check(glass.principal, by)
        asked = replace(
            glass,
            id=secrets.token_hex(6),
            at=at,
            until=0.0,
            first=by.name,
            realm=by.realm,
            subject=by.subject,
        )
        await self._asked.keep(asked)
        return asked

    async def open_glass(
        self, identifier: str, by: Approver, at: float, longest: int
    ) -> BreakGlass:
        """Open a break-glass that another person asked for; return it.

        Args:
            identifier: of what was asked for.
            by: the second person.
            at: now.
            longest: seconds, by the policy.

        Raises:
            GuardError: none waits, or this person cannot be the second.
        """
        asked = await self._asked.one(identifier, at)
        if asked is None:
            raise GuardError("no break-glass waits under this id; it may have expired")
        _check(asked.principal, by)
        if (asked.realm, asked.subject) == (by.realm, by.subject) or asked.realm != by.realm:
            raise GuardError("another person has to open it, who signed in as the first did")
        # Taken first: of two who open it at once, one finds it.
        if not await self._asked.take(identifier):
            raise GuardError("somebody else has just opened it")
        until = at + min(asked.seconds, longest)
        opened = replace(asked, at=at, until=until, second=by.name)
        identity = Identity("", "", tenant=self._tenant)
        await self._store.note(identity, [write(self._seal, self._tenant, GLASS, opened)])
        return opened

    async def _drop(self, principal: str, kind: bytes) -> bool:
        mark = mark_of(self._seal, principal)
        key = self._key(principal_status_set(self._tenant, mark))
        return await self._store.client.execute("HDEL", key, mark + kind) == 1

    async def _records(self) -> AsyncIterator[Pause | BreakGlass]:
        identity = Identity("", "", tenant=self._tenant)
        areas = [principal_status_set(self._tenant, bytes([bucket])) for bucket in range(BUCKETS)]
        with self._store.together():
            every = await asyncio.gather(*(self._store.fields(identity, area) for area in areas))
        for area, fields in zip(areas, every, strict=True):
            for field, raw in fields.items():
                kind = _KINDS.get(field[-1:])
                found = read(self._seal, area, field, raw, kind) if kind else None
                if found is not None:
                    yield found

    def _key(self, area: LabelSet) -> bytes:
        return self._store.key_of(self._tenant, area)


def _check(principal: str, by: Approver) -> None:
    if by.realm in UNNAMED:
        raise GuardError(
            "a break-glass needs two people who sign in by name, not by the printed link"
        )
    if by.is_principal(principal):
        raise GuardError(f"`{by.name}` cannot open what an agent in the same name would do")
