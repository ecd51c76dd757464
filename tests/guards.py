"""Guards without a proxy around them, on a real store."""

import asyncio
from dataclasses import replace
from functools import cache

from guard.core.errors import AuditError, StateError
from guard.core.metrics import Metrics
from guard.memory.write_path import WritePath
from guard.pipeline.decision_log import Records
from guard.pipeline.guard import Guard
from guard.pipeline.handler_parts import Telemetry
from guard.pipeline.handlers import Enforcement
from guard.pipeline.stores import Stores
from guard.policy import load_policies
from guard.protocols.base import discover_protocols
from guard.provenance.seal import Seal
from guard.replay.run import ErrorCounter
from guard.settings import policies_directory
from guard.store.ledger import RedisLedger
from guard.store.staging import RedisStaging
from guard.telemetry.audit_log import NoAuditLog

KEY = bytes(range(32))
"""The label key of every guard here, so that two of them are one deployment."""


class Clock:
    """A clock that stands still until a test moves it."""

    at = 1000.0

    def now(self):
        """Return the same time always."""
        return self.at


class Counts(Metrics):
    """Metrics that keep what is counted."""

    def __init__(self):
        self.counted = []

    def count(self, metric, *labels):
        """Keep it."""
        self.counted.append((metric, *labels))


class Audit:
    """An audit log in memory; a part of it fails as long as it is told to."""

    def __init__(self, error=AuditError):
        self.verdicts, self.lines, self.fails, self.error = {}, [], set(), error

    def decision(self, record):
        """Keep a verdict by the id of its call."""
        if "decision" in self.fails:
            raise self.error
        self.verdicts.setdefault(record.call.call.id, []).append(record.verdict)

    def event(self, name, fields):
        """Keep a line."""
        if "event" in self.fails:
            raise self.error
        self.lines.append({"event": name, **fields})

    def named(self, name):
        """Return the lines of one name."""
        return [line for line in self.lines if line["event"] == name]


async def until(holds):
    """Wait for what nobody tells of; fail where it never is."""
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110  (it tells nobody)
            await asyncio.sleep(0)


async def down(*_):
    """Fail as a store that is gone."""
    raise StateError("down")


class Lines:
    """An audit log in memory, which raises what a test wants."""

    def __init__(self):
        self.events = []
        self.error = None

    def event(self, name, fields):
        """Keep a line."""
        if self.error is not None:
            raise self.error
        self.events.append((name, dict(fields)))


def guard_on(
    store,
    policy,
    *,
    metrics=None,
    gated=None,
    detectors=(),
    audit=None,
    seal=None,
    recorders=(),
    processes=None,
):
    """Return a guard with the labels of values.

    Args:
        store: where its state is.
        policy: in force.
        metrics: counts errors only, if left out.
        gated: namespace of the staged writes; None leaves the memory gate out.
        detectors: of the guard.
        audit: log of its decisions; none, if left out.
        seal: of its labels, if not that of the key here.
        recorders: of whole exchanges.
        processes: functions in other processes; threads, if left out.
    """
    audit, counted = audit or NoAuditLog(), metrics or ErrorCounter()
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
        Records(audit, counted, recorders=recorders),
        detectors=detectors,
        memory=memory,
        seal=seal or Seal(KEY),
        processes=processes,
    )


def enforcement_of(guard, metrics, audit, **parts):
    """Return the handlers of a guard's messages.

    Args:
        guard: that judges.
        metrics: of both.
        audit: log of both.
        parts: besides.
    """
    return Enforcement(
        guard=guard,
        protocols=discover_protocols(),
        telemetry=Telemetry(audit, metrics, Clock()),
        **parts,
    )


@cache
def shipped(name):
    """Return a shipped policy without the rule on the score, which needs a model."""
    policy = load_policies([policies_directory() / name])
    rules = tuple(rule for rule in policy.rules if rule.id != "suspicious-unknown-send")
    return replace(policy, rules=rules)
