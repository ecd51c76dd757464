"""Parts that the judges of calls and of results share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from guard.extensions.propagation.live import Containment
from guard.pipeline.large_work import Threads
from guard.pipeline.selection import SelectionReplays

if TYPE_CHECKING:
    from guard.core.metrics import Metrics
    from guard.memory.write_path import WritePath
    from guard.pipeline.active_policies import ActivePolicies
    from guard.pipeline.decision_log import DecisionLog, Records
    from guard.pipeline.large_work import OtherProcesses
    from guard.pipeline.stores import Stores
    from guard.provenance.seal import Seal


@dataclass(frozen=True, slots=True)
class DecisionParts:
    """Parts of one guard."""

    policies: ActivePolicies
    stores: Stores
    seal: Seal
    """Key of the deployment for labels."""
    log: DecisionLog
    metrics: Metrics
    memory: WritePath | None
    """Memory gate; None if nothing is gated."""
    threads: Threads
    processes: OtherProcesses
    selections: SelectionReplays
    containment: Containment


def decision_parts(  # noqa: PLR0913  (the guard passes every part once)
    policies: ActivePolicies,
    stores: Stores,
    records: Records,
    log: DecisionLog,
    memory: WritePath | None,
    seal: Seal,
    processes: OtherProcesses,
) -> DecisionParts:
    """Return the parts of one guard."""
    return DecisionParts(
        policies=policies,
        stores=stores,
        seal=seal,
        log=log,
        metrics=records.metrics,
        memory=memory,
        threads=Threads(),
        processes=processes,
        selections=SelectionReplays(stores, seal, records, processes.select),
        containment=Containment(seal, stores.sessions),
    )
