"""The detector's process: ``python -m guard.runtime.detector PARENT REDIS_URL DIRECTORY``.

The supervisor of ``guard run`` starts it where the policy has ``propagation.detection``, with the
settings as one JSON line on standard input.  It judges the committed saves of every tenant.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING, Final

from guard.core.errors import GuardError
from guard.credentials.client_authentication import load_tenants
from guard.credentials.key_ring import follow_keys, key_watches, load_seal, open_signed_log
from guard.credentials.label_key import label_key_path
from guard.operations.approvals import EVENT_FINDING
from guard.operations.detection import Watch
from guard.processes.child_process import serve_for_supervisor
from guard.processes.workers import DetectionFiles
from guard.store.store import RedisSessionStore

if TYPE_CHECKING:
    from pathlib import Path

    from guard.core.mappings import DetectionSettings
    from guard.provenance.seal import Seal
    from guard.settings import Settings
    from guard.telemetry.audit_log import AuditLogFile, NoAuditLog

STATE_SECONDS: Final = 60.0
ROUND_SECONDS: Final = 2.0
_WALL: Final = time.time  # noqa: TID251  (the edge where time comes in)


async def serve(settings: Settings, redis: str, key: Path | None, files: DetectionFiles) -> None:
    """Judge committed saves until the policy has no detection any more.

    Raises:
        GuardError: a key or file cannot be used.
    """
    path = label_key_path(key)
    seal = load_seal(path, _WALL())
    audit = open_signed_log(settings.audit, settings.audit_key)
    store = RedisSessionStore.at(redis, timeout=STATE_SECONDS, durability=settings.durability)
    tenants = ["default"]
    if settings.credentials is not None:
        known = load_tenants(settings.credentials)
        tenants = sorted({*tenants, *(known.names if known is not None else ())})
    watches = key_watches(path, seal, settings.audit_key, audit, _WALL)
    keys = asyncio.get_running_loop().create_task(follow_keys(watches))
    try:
        await _judge(store, seal, tenants, audit, files)
    finally:
        keys.cancel()
        await store.aclose()
        audit.close()


async def _judge(
    store: RedisSessionStore,
    seal: Seal,
    tenants: list[str],
    audit: AuditLogFile | NoAuditLog,
    files: DetectionFiles,
) -> None:
    current: DetectionSettings | None = None
    found: list[Watch] = []
    while (settings := files.wanted()) is not None:
        if settings != current:
            current = settings
            found = [Watch(store, seal, settings, tenant) for tenant in tenants]
        try:
            audit.follow()
            for one in found:
                done = await one.round(_WALL())
                for finding in done.findings:
                    audit.event(EVENT_FINDING, {"act": "found", **finding.document()})
            files.note_round()
        except (GuardError, OSError) as error:
            # The store comes back; what was saved meanwhile is judged then, and the gauge rises.
            sys.stderr.write(f"guard detector: not judged: {error}\n")
        await asyncio.sleep(ROUND_SECONDS)


def main() -> int:
    """Judge for a supervisor; return the exit code."""
    return serve_for_supervisor(
        "detector",
        lambda settings, redis, key, directory: serve(
            settings, redis, key, DetectionFiles(directory)
        ),
    )


if __name__ == "__main__":
    sys.exit(main())
