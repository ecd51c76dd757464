"""Labels that do not come from a call: prompts, claims of agents, and imported memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guard.core.metrics import ERRORS
from guard.core.model import Identity, UserPrompt
from guard.provenance.imports import ImportedItem, import_writes
from guard.provenance.label_sets import label_sets
from guard.provenance.prompts import claim_writes, prompt_writes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guard.core.labels import LabelWrite
    from guard.pipeline.decision_log import DecisionParts

LONG_PROMPT: Final = 4096
"""Characters of a prompt from which it is read in a thread."""


class Notes:
    """Writer of such labels.

    Args:
        parts: of the guard.
    """

    def __init__(self, parts: DecisionParts) -> None:
        self._parts = parts

    async def prompt(self, identity: Identity, prompt: UserPrompt | str, at: float) -> None:
        """Store the values that a user named in a prompt; the channel has been authenticated.

        Args:
            identity: of the session.
            prompt: what the user typed; a text has no structure beside it.
            at: seconds since the epoch.

        Raises:
            StateError: it could not be stored; nothing in it attests anything.
        """
        policy = self._parts.policies.policy
        said = UserPrompt(prompt) if isinstance(prompt, str) else prompt
        text = said.text
        writes: list[LabelWrite] = []
        if policy is not None:
            seal, sets = self._parts.seal.folding(policy.fold), label_sets(policy.limits)
            is_long = len(text) > LONG_PROMPT
            writes = await self._parts.threads.run_if(
                is_long, prompt_writes, seal, sets, identity, said, at, policy.needs
            )
        await self._parts.stores.sessions.note(identity, writes)
        for recorder in self._parts.log.recorders:
            recorder.prompt(identity, text, at)

    async def claims(self, identity: Identity, values: Sequence[str], at: float) -> None:
        """Store the values that an agent attributes to its user.  Never raises."""
        policy = self._parts.policies.policy
        try:
            writes: list[LabelWrite] = []
            if policy is not None:
                seal, sets = self._parts.seal.folding(policy.fold), label_sets(policy.limits)
                writes = claim_writes(seal, sets, identity, values, at)
            await self._parts.stores.sessions.note(identity, writes)
        except Exception:  # noqa: BLE001  (a claim that is not kept attests nothing)
            self._parts.metrics.count(ERRORS, "provenance")

    async def memory(self, tenant: str, items: Sequence[ImportedItem], at: float) -> None:
        """Label memory that existed before the guard.

        Raises:
            StateError: it could not be stored.
        """
        policy = self._parts.policies.policy
        writes: list[LabelWrite] = []
        if policy is not None:
            seal, sets = self._parts.seal.folding(policy.fold), label_sets(policy.limits)
            writes = import_writes(seal, sets, tenant, items, at)
        await self._parts.stores.sessions.note(Identity("", "", tenant=tenant), writes)
