"""Incidents on the path of a call.

What incidents withhold is held in this process and read again only when the epoch that came with
the attempt differs, so the common path has no added round trip.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guard.core.calls import ToolResult, TracedCall, remembered_texts
from guard.core.json_values import strings_in_order
from guard.core.policy import Action, Policy, Reason, Verdict
from guard.extensions.propagation.containment import (
    SUSPECTED,
    WITHHELD,
    Contained,
    TakenApart,
    contained_set,
    take_apart,
)
from guard.extensions.propagation.evidence import outside
from guard.extensions.propagation.recording import Spread, reads

if TYPE_CHECKING:
    from guard.core.ports import SessionStore
    from guard.provenance.seal import Seal

_REMEDY: Final = "go on without this item; an operator has contained it"


class Containment:
    """Items that incidents withhold, as known to this process.

    Args:
        seal: the deployment's key.
        store: where it lies.
    """

    def __init__(self, seal: Seal, store: SessionStore) -> None:
        self._seal = seal
        self._store = store
        self._known: dict[str, tuple[object, str, Contained]] = {}
        """Epoch, policy and items by tenant."""

    async def refresh(self, policy: Policy, spread: Spread) -> Contained:
        """Return what is contained now, read again where the epoch has changed.

        Raises:
            StateError: the store did not answer.
        """
        tenant = spread.identity.tenant
        known = self._known.get(tenant)
        if known is not None and known[:2] == (spread.epoch, policy.digest):
            return known[2]
        seal = self._seal.folding(policy.fold)
        fields: dict[bytes, bytes] = {}
        if spread.epoch is not None:
            fields = await self._store.fields(spread.identity, contained_set(tenant))
        contained = Contained.read(seal, tenant, fields, outside(policy.status_of))
        self._known[tenant] = spread.epoch, policy.digest, contained
        return contained

    async def judge(
        self, policy: Policy, spread: Spread, traced: TracedCall, verdict: Verdict
    ) -> Verdict:
        """Return the verdict of a call, as a block where it saves what is contained.

        A send that follows from what looks poisoned is asked about.
        """
        contained = await self.refresh(policy, spread)
        classified = traced.classified
        settings = policy.propagation
        if contained.suspected and settings is not None and settings.detection is not None:
            verdict = _asked(verdict, spread, contained.suspected)
        if not contained or not classified.saves_to or not verdict.action.forwards:
            return verdict
        write = classified.memory_write
        texts = (
            remembered_texts(classified.call, write)
            if write is not None
            else list(strings_in_order(dict(classified.call.arguments)))
        )
        if not contained.altered and not contained.found_in(texts):
            return verdict
        return verdict.blocked(
            Reason(WITHHELD, "", Action.BLOCK, "it saves what an incident contains", remedy=_REMEDY)
        )

    def taken_apart(self, result: ToolResult) -> TakenApart | None:
        """Return a memory's answer without what is contained; None where nothing of it is."""
        call = result.call.call
        known = self._known.get(call.identity.tenant)
        if known is None or not known[2] or not reads(result.call.classified):
            return None
        return take_apart(result.content, known[2])


def _asked(verdict: Verdict, spread: Spread, suspected: set[bytes]) -> Verdict:
    """Return the verdict of a send, as a question where it follows from a finding."""
    count = len(suspected.intersection(spread.sources))
    if not count or spread.granted:
        return verdict
    detail = f"it follows from {count} saved items that look poisoned"
    return verdict.asked(Reason(SUSPECTED, "", Action.ASK, detail, remedy=_REMEDY))


def withheld(policy: Policy, apart: TakenApart) -> Verdict:
    """Return the verdict on a result that carries contained items."""
    action = Action.BLOCK if apart.content is None else Action.REDACT
    detail = f"{len(apart.nodes)} contained items"
    reason = Reason(WITHHELD, "", action, detail, remedy=_REMEDY)
    return Verdict(action, policy.mode, (reason,), policy.digest, instead=apart.content)
