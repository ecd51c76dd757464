"""Part of the composition root: the memory gate's write path, and who looks after lost writes."""

from __future__ import annotations

import secrets
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from guard.adapters.checker import CommandChecker
from guard.adapters.recovery import Recovery
from guard.adapters.redis.staging import RedisStaging
from guard.adapters.store_questions import StoreQuestions
from guard.memory.evidence import LabelledEvidence
from guard.memory.write_path import WritePath
from guard.settings import child_environment

if TYPE_CHECKING:
    from collections.abc import Callable

    from guard.adapters.redis.connection import RedisClient
    from guard.core.policy import Policy
    from guard.core.ports import AuditLog, Metrics
    from guard.memory.seal import Seal
    from guard.settings import Settings


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
