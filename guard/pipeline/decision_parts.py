"""Parts that the judges of calls and of results share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from guard.core.metrics import Metrics
    from guard.extensions.propagation.live import Containment
    from guard.memory.write_path import WritePath
    from guard.pipeline.decision_log import DecisionLog
    from guard.pipeline.large_work import OtherProcesses, Threads
    from guard.pipeline.selection import SelectionReplays
    from guard.pipeline.stores import Stores
    from guard.pipeline.trial import ActivePolicies
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
