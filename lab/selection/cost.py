"""The cost of replays by the size of the graph, and of answers that stand without one."""

from __future__ import annotations

import asyncio
import secrets
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from guard.core.calls import ClassifiedCall, ToolResult, untraced
from guard.core.errors import GuardError
from guard.core.model import Identity, Integrity, Role, ToolCall
from guard.extensions.graph_memory.graph import Recall
from guard.extensions.graph_memory.ledger import Change, Write, Writer, ledger_set, seal_writes
from guard.extensions.graph_memory.selectors.pagerank import PageRank
from guard.pipeline.selection import SelectionReplays
from guard.pipeline.stores import Stores
from guard.policy import load_policies
from guard.provenance.seal import KEY_BYTES, Seal
from guard.replay.reports import Check
from guard.replay.run import ErrorCounter
from guard.store.store import RedisSessionStore
from guard.telemetry.audit_log import NoAuditLog
from lab.judged_runs import mean
from lab.selection.corpora import generated
from lab.selection.live import POLICY

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from guard.core.labels import LabelSet

QUERIES: Final = 200
RESAMPLES: Final = 1000
LOADING: Final = 600.0
"""Seconds for which an answer may wait for its replay."""


def asked(nodes: int, queries: int) -> list[Recall]:
    """Return recalls of three random seeds each."""
    rng = np.random.default_rng(1)
    return [
        Recall({int(node): 1.0 for node in rng.choice(nodes, 3, replace=False)})
        for _ in range(queries)
    ]


def timing(nodes: int, queries: int = QUERIES) -> tuple[list[float], list[bool]]:
    """Time the selection of five on a generated graph, three random seeds a query.

    Returns:
        processor seconds of the one thread that ranks, in which what the machine does besides does
        not count; and which queries were certified.
    """
    graph, selector = generated(nodes, 5 * nodes, 0), PageRank()
    recalls = asked(nodes, queries)
    selector.rank(graph, recalls[0])
    spent, certified = [], []
    for recall in recalls:
        began = time.thread_time()
        certified.append(selector.rank(graph, recall).certified)
        spent.append(time.thread_time() - began)
    return spent, certified


class _InMemory:
    """A ledger without a store: one list of entries."""

    def __init__(self, entries: Sequence[bytes]) -> None:
        self._entries = entries

    async def append(self, _tenant: str, _area: LabelSet, _entries: Sequence[bytes]) -> int:
        """Refuse to append: nothing writes during the measurement.

        Raises:
            GuardError: always.
        """
        raise GuardError("this ledger is only read")

    async def read(
        self, _tenant: str, _area: LabelSet, start: int
    ) -> AsyncGenerator[list[object], None]:
        """Yield what there is from an index on."""
        yield list(self._entries[start:])


async def noop(nodes: int, queries: int = QUERIES) -> list[float]:
    """Return the processor seconds of recalls of a store where nothing is untrusted.

    All that the guard does for the selection of an answer: it reads what the ledger has gained,
    the items and the nodes of the question, and compares every eighth with the replica.  Of a read
    of Redis only the reading is in it.

    Raises:
        GuardError: an answer did not stand, so something else would be measured.
    """
    graph = generated(nodes, 5 * nodes, 0)
    seal, policy = Seal(secrets.token_bytes(KEY_BYTES)), load_policies([POLICY])
    # The first answer waits until the replica has the whole ledger, however busy the machine is.
    [(store_name, selection)] = policy.selections.items()
    policy = replace(policy, selections={store_name: replace(selection, deadline=LOADING)})
    area = ledger_set("default", store_name)
    writer = Writer("curator", bytes(8), 0, 0.0, "model_inference", Integrity.ADVISORY)
    names = [f"entity {node}" for node in range(nodes)]
    for item in graph.items:
        names[item] = f"item {item}"
    writes = [Write(Change.NODE, names[item], item=True, writer=writer) for item in graph.items]
    ends = zip(graph.source, graph.target, strict=True)
    writes += [Write(Change.EDGE, names[one], names[two], writer=writer) for one, two in ends]
    kept = _InMemory(seal_writes(seal, area, "0", writes))
    # Never connected to: nothing is stored of an answer that stands.
    store = RedisSessionStore.at("redis://127.0.0.1:1")
    replays = SelectionReplays(Stores(store, ledger=kept), seal, NoAuditLog(), ErrorCounter())
    selector, spent = PageRank(), []
    for number, recall in enumerate(asked(nodes, queries)):
        served = selector.rank(graph, recall).items
        found = [{"record": names[item], "text": "a record"} for item in served]
        query = {"query": " and ".join(names[seed] for seed in recall.seeds)}
        call = ToolCall(str(number), Identity("agent", "s"), "search_records", query, "mcp", 1.0)
        classified = ClassifiedCall(call, Role.RECALL, policy.mapping(call.tool))
        result = ToolResult(untraced(classified), {"results": found}, 2.0)
        began = time.process_time()
        selected = await replays.learn(policy, result)
        spent.append(time.process_time() - began)
        if selected.writes:
            raise GuardError("an answer of a graph without strangers did not stand")
    return spent[1:]


def cost(progress: Callable[[str, float], object]) -> list[Check]:
    """Return the percentiles of replays and of answers without one, and the certified share."""
    checks: list[Check] = []
    certified: list[float] = []
    for label, nodes, p50, p95 in (
        ("10k", 10_000, "<= 2", "<= 5"),
        ("100k", 100_000, "<= 10", "<= 30"),
    ):
        progress(f"a replay on {nodes:,} nodes", 0.8)
        spent, proved = timing(nodes)
        certified += map(float, proved)
        checks += [
            _milliseconds(f"replay_p50_ms_{label}", spent, 50, p50),
            _milliseconds(f"replay_p95_ms_{label}", spent, 95, p95),
        ]
    spent = asyncio.run(noop(10_000))
    checks.insert(2, _milliseconds("noop_p50_ms", spent, 50, "<= 0.2"))
    return [*checks, mean("certified_share", certified, ">= 0.99")]


def _milliseconds(name: str, seconds: Sequence[float], share: float, target: str) -> Check:
    """Return a percentile with its 95 % bootstrap interval."""
    times = 1e3 * np.asarray(seconds)
    drawn = np.random.default_rng(0).choice(times, (RESAMPLES, len(times)))
    low, high = np.percentile(np.percentile(drawn, share, axis=1), [2.5, 97.5])
    return Check(
        id=name,
        value=round(float(np.percentile(times, share)), 4),
        unit="ms",
        n=len(times),
        interval=(float(low), float(high)),
        target=target,
    )
