"""Guards without a proxy around them, on a real store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guard.memory.write_path import WritePath
from guard.pipeline.decision_log import Records
from guard.pipeline.guard import Guard
from guard.pipeline.stores import Stores
from guard.provenance.seal import Seal
from guard.replay.run import ErrorCounter
from guard.store.ledger import RedisLedger
from guard.store.staging import RedisStaging
from guard.telemetry.audit_log import NoAuditLog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guard.core.metrics import Metrics
    from guard.core.policy import Policy
    from guard.core.ports import Detector
    from guard.store.store import RedisSessionStore

KEY = bytes(range(32))
"""The label key of every guard here, so that two of them are one deployment."""


def guard_on(
    store: RedisSessionStore,
    policy: Policy,
    *,
    metrics: Metrics | None = None,
    gated: str | None = None,
    detectors: Sequence[Detector] = (),
) -> Guard:
    """Return a guard with the labels of values.

    Args:
        store: where its state is.
        policy: in force.
        metrics: counts errors only, if left out.
        gated: namespace of the staged writes; None leaves the memory gate out.
        detectors: of the guard.
    """
    audit, counted = NoAuditLog(), metrics or ErrorCounter()
    memory = None
    if gated is not None:
        memory = WritePath(
            policy=policy,
            staging=RedisStaging(store.client, namespace=gated),
            audit=audit,
            metrics=counted,
        )
    return Guard(
        policy,
        Stores(store, ledger=RedisLedger(store)),
        Records(audit, counted),
        detectors=detectors,
        memory=memory,
        seal=Seal(KEY),
    )
