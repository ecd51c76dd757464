"""Part of the composition root: the label store, the memory gate's write path, and who looks after
lost writes and lost labels.
"""

from __future__ import annotations

import secrets
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from guard.adapters.birth_note import BirthNote
from guard.adapters.checker import CommandChecker
from guard.adapters.label_key import label_key_path, load_label_key
from guard.adapters.label_losses import LossReport
from guard.adapters.recovery import Recovery
from guard.adapters.redis.birth import BirthWatch
from guard.adapters.redis.connection import RedisClient
from guard.adapters.redis.endpoint import parse_endpoint
from guard.adapters.redis.staging import RedisStaging
from guard.adapters.redis.store import RedisSessionStore
from guard.adapters.store_questions import StoreQuestions
from guard.memory_gate.evidence import LabelledEvidence
from guard.memory_gate.write_path import WritePath
from guard.provenance.seal import Seal
from guard.settings import EMBEDDED, child_environment

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from guard.adapters.metrics.prometheus import PrometheusMetrics
    from guard.core.policy import Policy, StateLimits
    from guard.core.ports import AuditLog, Metrics
    from guard.settings import Settings


def label_store(  # noqa: PLR0913  (as the composition root)
    settings: Settings,
    url: str,
    confdir: Path | None,
    limits: StateLimits,
    audit: AuditLog,
    metrics: PrometheusMetrics,
    now: Callable[[], float],
) -> tuple[RedisSessionStore, Seal]:
    """Return the store, which knows when it has lost labels, and the deployment's seal.

    Raises:
        GuardError: the URL or a file beside the label key cannot be used.
    """
    kept = settings.redis != EMBEDDED
    # Labels of an embedded Redis need their key no longer than they live.
    for_this_run = confdir / "label.key" if confdir and not kept else None
    path = label_key_path(settings.label_key, for_this_run)
    seal = Seal(load_label_key(path))
    client = RedisClient(parse_endpoint(url), timeout=settings.state_timeout)
    birth = BirthWatch(
        client,
        seal=seal,
        note=BirthNote(path, "redis" if kept else EMBEDDED),
        now=now,
        told=LossReport(audit, metrics, kept=kept),
        kept=kept,
    )
    return RedisSessionStore(client, limits=limits, birth=birth), seal


@dataclass(frozen=True, slots=True)
class MemoryParts:
    """What the gate is made of."""

    path: WritePath
    recovery: Recovery


def memory_parts(  # noqa: PLR0913  (as the composition root)
    settings: Settings,
    policy: Policy,
    client: RedisClient,
    seal: Seal,
    audit: AuditLog,
    metrics: Metrics,
    reached: Callable[[str], None],
) -> MemoryParts:
    """Join the parts of the memory gate."""
    # Without a supervisor nobody knows what this worker's predecessor was called.
    owner = settings.owner or f"{secrets.token_hex(8)}:0"
    path = WritePath(
        policy=policy,
        staging=RedisStaging(client, owner=owner, seal=seal),
        evidence=LabelledEvidence,
        audit=audit,
        metrics=metrics,
        checker=CommandChecker(shlex.split(settings.memory_checker), child_environment([]))
        if settings.memory_checker
        else None,
        reached=reached,
    )
    upstreams = {listener.port: listener.upstream for listener in settings.listeners}
    recovery = Recovery(
        client=client,
        owner=owner,
        memory=lambda: path.gated,
        holds=path.is_committed,
        ask=StoreQuestions(upstreams, settings.upstream_ca).ask,
        audit=audit,
        metrics=metrics,
    )
    return MemoryParts(path, recovery)
