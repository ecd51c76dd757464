"""The guard of live traffic on a store of its own, for replays and policy tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guard.memory.write_path import WritePath
from guard.pipeline.decision_log import Records
from guard.pipeline.guard import Guard
from guard.pipeline.outcome import JudgeRequest
from guard.pipeline.stores import Stores
from guard.telemetry.audit_log import NoAuditLog

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from guard.core.metrics import Metrics
    from guard.core.model import Json, ToolCall
    from guard.core.policy import Policy
    from guard.core.ports import Detector, LedgerStore, SessionStore
    from guard.memory.write_path import Staging
    from guard.pipeline.outcome import JudgedCall
    from guard.provenance.seal import Seal


def offline_guard(  # noqa: PLR0913  (it joins the parts of one guard)
    policy: Policy,
    store: SessionStore,
    detectors: Sequence[Detector],
    *,
    staging: Staging | None,
    seal: Seal,
    metrics: Metrics,
    ledger: LedgerStore | None = None,
    model_digests: Mapping[str, str] | None = None,
    open_loop: bool = False,
) -> Guard:
    """Return a guard that writes no audit log.

    Args:
        policy: in force.
        store: of trajectories and labels.
        detectors: as in live traffic.
        staging: of memory writes; None leaves the memory gate out.
        seal: key of the labels.
        metrics: counts errors.
        ledger: structure of graph memories.
        model_digests: by model name.
        open_loop: a refused call is not marked, because the recording executed it.
    """
    audit, memory = NoAuditLog(), None
    if staging is not None:
        memory = WritePath(
            policy=policy,
            staging=staging,
            audit=audit,
            metrics=metrics,
        )
    return Guard(
        policy,
        Stores(store, ledger=ledger),
        Records(audit, metrics, model_digests=model_digests or {}),
        detectors=detectors,
        memory=memory,
        seal=seal,
        open_loop=open_loop,
    )


async def judge_alone(guard: Guard, call: ToolCall) -> JudgedCall:
    """Judge a call whose message is not forwarded; its server offers the tool."""
    guard.calls.claim(call)
    [judged] = await guard.judge(JudgeRequest([call], _not_forwarded))
    return judged


def _not_forwarded(arguments: Sequence[Mapping[str, Json] | None]) -> None:
    """Accept redacted arguments."""
    del arguments
