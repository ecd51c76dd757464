"""The way of a call to the state store and back: attempted, then executed or refused.

What the store cannot be told of leaves a local mark, which is written with the next attempt of
that principal, before anything of it is judged.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from guard.core.ports import Completion
from guard.core.trajectory import Snapshot

if TYPE_CHECKING:
    from guard.core.calls import ClassifiedCall, ToolResult
    from guard.core.model import Json
    from guard.core.policy import Policy
    from guard.core.ports import Metrics, SessionStore
    from guard.core.tool_mapping import ToolMapping
    from guard.core.verdict import Verdict
    from guard.decision.information_point import InformationPoint
    from guard.provenance.label_query import LabelQuery

LARGE: Final = 32 * 1024
"""Characters and values of a result from which it is labelled in a thread: about 10 ms of work."""
SOURCE_NAME: Final = 64
"""Characters of a mapping's pattern that name a source of labels."""


class TrajectoryRecorder:
    """One round trip per direction, and the marks of what was lost.

    Args:
        store: where the trajectories and labels live.
        provenance: what to read with an attempt and to write with a completion.
        metrics: told of latencies, failures and marks.
    """

    def __init__(self, store: SessionStore, provenance: InformationPoint, metrics: Metrics) -> None:
        self._store = store
        self._provenance = provenance
        self._metrics = metrics
        self._unlabelled: dict[tuple[str, str], int] = {}

    async def attempt(
        self, policy: Policy | None, classified: ClassifiedCall, errors: list[str]
    ) -> tuple[LabelQuery | None, Snapshot]:
        """Append a call as attempted; return what was asked with it, and the state before it.

        Never raises: without state there is no question, and ``errors`` gets a line.
        """
        call = classified.call
        # Taken out before the wait: two parallel attempts must not both carry the same marks.
        owner = (call.identity.tenant, call.identity.principal)
        marks = self._unlabelled.pop(owner, 0)
        started = time.perf_counter()
        try:
            question, attempt = self._provenance.ask(policy, classified, marks)
            snapshot = await self._store.attempt(attempt)
        except Exception as error:  # noqa: BLE001  (no state, no decision: block)
            self._mark_unlabelled(owner, marks)
            errors.append(f"state: {type(error).__name__}")
            self._metrics.error("state")
            self._metrics.fail_closed("state", active=True)
            return None, Snapshot()
        self._metrics.redis_latency(time.perf_counter() - started)
        self._metrics.fail_closed("state", active=False)
        self._metrics.session_seen(snapshot.session)
        self._metrics.saturation("source", reached=snapshot.full)
        if marks:
            self._metrics.unlabelled_marks(sum(self._unlabelled.values()))
        return question, snapshot

    def _mark_unlabelled(self, owner: tuple[str, str], marks: int) -> None:
        if marks:
            self._unlabelled[owner] = self._unlabelled.get(owner, 0) + marks
            self._metrics.unlabelled_marks(sum(self._unlabelled.values()))

    async def executed(self, policy: Policy | None, result: ToolResult) -> None:
        """Mark the call of a result executed and label what it brings or saved."""
        call = result.call.call
        completion = Completion(
            call.id,
            call.identity,
            result.call.classified.role,
            result.at,
            executed=True,
            overflow=True,
        )
        try:
            if _is_large(result.content):
                # Others are judged meanwhile; this result is released only once it is labelled.
                writes, overflow = await asyncio.to_thread(self._provenance.learn, policy, result)
            else:
                writes, overflow = self._provenance.learn(policy, result)
            self._metrics.saturation("result", reached=overflow)
            completion = replace(
                completion,
                writes=writes,
                overflow=overflow,
                source=_source(result.call.classified.mapping),
            )
        except Exception:  # noqa: BLE001  (a result that could not be labelled leaves a mark)
            self._metrics.error("provenance")
            self._mark_unlabelled((call.identity.tenant, call.identity.principal), 1)
        await self._complete(completion)

    async def refused(
        self, policy: Policy | None, classified: ClassifiedCall, verdict: Verdict
    ) -> None:
        """Mark a call refused, and note the question where a human may release it."""
        call = classified.call
        writes = self._provenance.question(policy, call, verdict)
        await self._complete(
            Completion(
                call.id, call.identity, classified.role, call.at, executed=False, writes=writes
            )
        )

    async def _complete(self, completion: Completion) -> None:
        try:
            await self._store.complete(completion)
        except Exception:  # noqa: BLE001  (the mark below keeps what the store could not take)
            self._metrics.error("state")
            self._metrics.fail_closed("state", active=True)
            if completion.executed:
                owner = (completion.identity.tenant, completion.identity.principal)
                self._mark_unlabelled(owner, 1)


def _is_large(content: Json) -> bool:
    """Return whether to label a result would hold up the calls of others."""
    room = LARGE
    stack: list[Json] = [content]
    while stack and room > 0:
        item = stack.pop()
        room -= len(item) if isinstance(item, str) else 1
        if isinstance(item, dict):
            stack.extend(item.values())
            room -= len(item)
        elif isinstance(item, list):
            stack.extend(item)
            room -= len(item)
    return room <= 0


def _source(mapping: ToolMapping | None) -> str:
    """Return what the labels of a call's result count against: its mapping."""
    return mapping.pattern[:SOURCE_NAME] if mapping is not None else "unmapped"
