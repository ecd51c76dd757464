"""Loops of one worker that run beside the traffic."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from guard.core.errors import AuditError, GuardError, StateError
from guard.core.metrics import ERRORS, FAIL_CLOSED, OTHER
from guard.credentials.key_ring import KeyWatch, follow_keys, key_id, key_watches
from guard.credentials.label_key import recording_key_path
from guard.environment import say
from guard.runtime.policy_trial import TrialWatch
from guard.runtime.wiring import Parts, WallClock, label_key_file
from guard.store.trials import TrialStore
from guard.telemetry.audit_log import AuditLogFile, AuditRetention
from guard.telemetry.recordings import RecordingWriter

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path

    from guard.settings import Settings

CHECKPOINT_SECONDS: Final = 2.0
RETAIN_SECONDS: Final = 2.0
TRIAL_SECONDS: Final = 1.0
"""Delay between a click and the begin or end of a trial, in seconds."""
PROBE_SECONDS: Final = 1.0
"""Between two looks at a part that has failed."""


def watches(settings: Settings, parts: Parts, confdir: Path) -> list[Coroutine[Any, Any, None]]:
    """Return the loops that run beside the traffic."""
    found = [
        parts.recovery.watch(),
        parts.store.watch(),
        _anchor(parts),
        _look_again(parts),
        _retain(settings, parts),
        follow_keys(
            _key_watches(settings, confdir, parts),
            partial(_note_keys, parts),
            partial(parts.metrics.count, ERRORS, OTHER),
        ),
        TrialWatch(
            guard=parts.guard,
            store=TrialStore(parts.store, parts.seal),
            seal=parts.seal,
            audit=parts.audit,
            metrics=parts.metrics,
            now=WallClock.now,
        ).watch(TRIAL_SECONDS),
    ]
    if settings.reload:
        found.append(parts.reloader.watch(settings.reload))
    return found


def _key_watches(settings: Settings, confdir: Path, parts: Parts) -> list[KeyWatch]:
    """Return what has the parts use the keys of their rings as they change."""
    now = WallClock.now
    label_key = label_key_file(settings, confdir)
    found = key_watches(label_key, parts.seal, settings.audit_key, parts.audit, now)
    for one in parts.recorders:
        if isinstance(one, RecordingWriter):
            path = settings.record_key or recording_key_path()
            found.append(KeyWatch(path, "recording key", one.use_keys, now))
    return found


def _note_keys(parts: Parts, what: str, keys: list[bytes]) -> None:
    """Record that other keys are used from now on."""
    parts.audit.event("guard.keys", {"what": what, "used": key_id(keys[0]), "accepted": len(keys)})


async def _retain(settings: Settings, parts: Parts) -> None:
    """Set the audit log aside and remove it as the policy in force says, again and again."""
    if settings.audit is None or not isinstance(parts.audit, AuditLogFile):
        return

    def keep() -> int:
        policy = parts.guard.policy
        return policy.limits.audit if policy is not None else 0

    retention = AuditRetention(parts.audit, settings.audit, keep, WallClock.now)
    with contextlib.closing(retention):
        while True:
            try:
                retention.follow()
                for fields in await asyncio.to_thread(retention.remove_old):
                    retention.removed(fields)
            except (AuditError, OSError) as error:
                parts.metrics.count(ERRORS, "audit")
                say(f"the audit log is kept as it is: {error}")
            await asyncio.sleep(RETAIN_SECONDS)


async def _anchor(parts: Parts) -> None:
    """Sign the audit log again and again, and keep the last checkpoint in the store as well."""
    while True:
        await asyncio.sleep(CHECKPOINT_SECONDS)
        note = await asyncio.to_thread(parts.audit.checkpoint)
        if note is not None:
            # Redis gone: the next checkpoint covers more, and calls see it by themselves.
            with contextlib.suppress(StateError):
                await parts.store.keep_anchor(note)


async def _look_again(parts: Parts) -> None:
    """Try what has failed, so that a guard without traffic says when it is ready again."""
    while True:
        await asyncio.sleep(PROBE_SECONDS)
        failing = parts.metrics.failing()
        if "state" in failing:
            with contextlib.suppress(GuardError):
                await parts.store.probe()
                parts.metrics.set(FAIL_CLOSED, 0, "state")
        if "audit" in failing:
            with contextlib.suppress(GuardError):
                parts.audit.event("guard.audit_writable", {})
                parts.metrics.set(FAIL_CLOSED, 0, "audit")
