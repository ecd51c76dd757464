"""What a recall of a graph memory is worth, on a real store, with another library's PageRank."""

from __future__ import annotations

import asyncio
import json
from itertools import count
from typing import Any

import pytest

from guard.adapters.redis.store import RedisSessionStore
from guard.core.calls import ToolResult
from guard.core.errors import StateError
from guard.core.labels import Rung
from guard.core.model import Identity, Integrity, PrincipalRung, ToolCall
from guard.core.policy import Action
from guard.graph_memory.ledger import ledger_set
from guard.graph_memory.selectors.pagerank import PageRank
from guard.lab.selection.live import POLICY, Scene
from guard.lab.selection.server import GraphMemory
from guard.policy_files import load_policies
from guard.replay.run import ErrorCounter
from tests.guards import guard_on

SCENE = Scene(0)


class Counted(ErrorCounter):
    """Counts what the replays found."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def count(self, metric: Any, *labels: str) -> None:
        """Keep the outcomes of selections."""
        if metric.name == "guard_selections_total":
            self.found += labels
        else:
            super().count(metric, *labels)


class World:
    """A memory, a guard in front of it, and the agents that use both."""

    def __init__(self, store: RedisSessionStore, namespace: str, policy=None) -> None:
        self.store = store
        self.policy = policy or load_policies([POLICY])
        self.metrics = Counted()
        self.guard = guard_on(store, self.policy, metrics=self.metrics, gated=namespace)
        self.memory = GraphMemory()
        self.clock = count(1000.0)
        self.ids = count()

    async def call(self, who: str, tool: str, arguments: dict[str, Any], answer: Any = None):
        """Make a call and return its verdict; what the memory does with it happens in between."""
        at = float(next(self.clock))
        identity = Identity(who, f"{who}s", principal_rung=PrincipalRung.CREDENTIAL)
        asked = ToolCall(f"call{next(self.ids)}", identity, tool, arguments, "mcp", at)
        [(traced, verdict)] = await self.guard.authorize([asked])
        if not verdict.enforced.forwards:
            return traced, verdict, None
        content = self._answer(tool, arguments) if answer is None else answer
        at = float(next(self.clock))
        refused = await self.guard.observe(ToolResult(traced, content, at))
        return traced, verdict, refused

    def _answer(self, tool: str, arguments: dict[str, Any]) -> Any:
        if tool == "add_records":
            for record in arguments["records"]:
                self.memory.node(record["name"])
                self.memory.records[record["name"]] = record["text"]
                for entity in record["about"]:
                    self.memory.join(record["name"], entity)
        elif tool == "relate":
            for one in arguments["relations"]:
                self.memory.join(one["source"], one["target"], one.get("weight", 1.0))
        elif tool == "search_records":
            return {"content": [{"type": "text", "text": json.dumps(self.results(arguments))}]}
        return "saved"

    def results(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the memory's answer to a query."""
        found = self.memory.search(arguments["query"], 5)
        return {"results": [{"record": n, "text": self.memory.records[n]} for n in found]}

    async def curated(self) -> World:
        """Let the curator write the scene, and the operator label its accounts."""
        items = [("graph", account, Integrity.AUTHENTICATED) for account in accounts()]
        await self.guard.import_memory("default", items, 0.0)
        await self.call("curator", "add_records", {"records": SCENE.records()})
        await self.call("curator", "relate", {"relations": SCENE.around()})
        return self

    async def attacked(self) -> None:
        """Let the peer write its six relations."""
        await self.call("peer", "relate", {"relations": SCENE.attack()})

    async def recall(self, answer: Any = None):
        """Let the agent ask."""
        return await self.call("agent", "search_records", {"query": SCENE.query}, answer)

    async def pay(self, account: str):
        """Return the verdict on a transfer, and where its receiver stood."""
        traced, verdict, _ = await self.call("agent", "transfer", {"account": account, "amount": 1})
        return verdict, traced.targets[0].attestation


def accounts() -> tuple[str, str]:
    """Return the right account and the rival's."""
    return SCENE.right, SCENE.rival


@pytest.fixture
async def store(redis_client, redis_namespace):
    """Return a store of the test's own."""
    made = RedisSessionStore(redis_client, namespace=redis_namespace)
    await made.verify()
    return made


@pytest.fixture
async def world(store, redis_namespace):
    """Return a world after the curator's work."""
    return await World(store, redis_namespace).curated()


async def test_without_an_attack_both_accounts_can_be_paid(world):
    """Nothing untrusted, nothing asked."""
    await world.recall()
    for account in accounts():
        verdict, attestation = await world.pay(account)
        assert verdict.action is Action.ALLOW
        assert attestation.rung is Rung.REMEMBERED
    assert world.metrics.found == ["stands"]


async def test_a_transfer_that_six_edges_misdirect_is_asked_about(world):
    """The record that rose vouches for nothing; the one that fell still does."""
    await world.attacked()
    await world.recall()
    verdict, attestation = await world.pay(SCENE.rival)
    assert verdict.action is Action.ASK
    assert verdict.reasons[0].code == "selection_diverged"
    assert attestation.rung is Rung.UNKNOWN
    verdict, _ = await world.pay(SCENE.right)
    assert verdict.action is Action.ALLOW
    assert world.metrics.found == ["diverged"]


async def test_without_a_selection_block_the_same_transfer_goes_out(
    store, redis_namespace, tmp_path
):
    """What stops it is the replay, and nothing else."""
    text = POLICY.read_text(encoding="utf-8")
    start, end = text.index("    selection:\n"), text.index("memory:\n")
    file = tmp_path / "policy.yaml"
    file.write_text(text[:start] + text[end:], encoding="utf-8")
    world = await World(store, redis_namespace, load_policies([file])).curated()
    await world.attacked()
    await world.recall()
    verdict, _ = await world.pay(SCENE.rival)
    assert verdict.action is Action.ALLOW
    assert world.metrics.found == []


async def test_the_users_own_naming_of_a_receiver_holds(world):
    """A person who says whom to pay is not overruled by a memory."""
    await world.attacked()
    await world.recall()
    who = Identity("agent", "agents", principal_rung=PrincipalRung.CREDENTIAL)
    await world.guard.note_prompt(who, f"Pay 1 to {SCENE.rival}", float(next(world.clock)))
    verdict, attestation = await world.pay(SCENE.rival)
    assert verdict.action is Action.ALLOW
    assert attestation.rung is Rung.PROMPTED


async def test_it_holds_for_the_principal_in_every_session_and_ends(world):
    """A new session of the same agent does not get rid of it; time does."""
    await world.attacked()
    await world.recall()
    other = Identity("agent", "another", principal_rung=PrincipalRung.CREDENTIAL)
    arguments = {"account": SCENE.rival, "amount": 1}

    async def judged(at: float):
        asked = ToolCall(f"x{at}", other, "transfer", arguments, "mcp", at)
        [(_, verdict)] = await world.guard.authorize([asked])
        return verdict.action

    assert await judged(float(next(world.clock))) is Action.ASK
    assert await judged(next(world.clock) + world.policy.limits.session_idle + 1) is Action.ALLOW


@pytest.mark.parametrize("reason", ["unfaithful", "unknown_item"])
async def test_structure_that_was_written_around_the_guard_vouches_for_nothing(world, reason):
    """The replica's order is another, or it has never heard of an item."""
    if reason == "unfaithful":
        for one in SCENE.attack():
            world.memory.join(one["source"], one["target"])
    else:
        world.memory.records["invoice new"] = f"Pay {SCENE.rival}"
        world.memory.join("invoice new", SCENE.topics[1], 50.0)
    await world.recall()
    for account in accounts():
        verdict, _ = await world.pay(account)
        assert verdict.reasons[0].code == "selection_unreplayed"
    assert world.metrics.found == [reason]


async def test_an_edge_of_a_peer_that_changes_nothing_costs_nothing(world):
    """Untrusted structure elsewhere in the graph: the order stands, and so does the recall."""
    await world.call("peer", "relate", {"relations": [{"source": "tea", "target": "milk"}]})
    await world.recall()
    verdict, _ = await world.pay(SCENE.right)
    assert verdict.action is Action.ALLOW
    assert world.metrics.found == ["stands"]


async def test_a_merge_of_a_strangers_moves_no_query(store, redis_namespace, tmp_path):
    """The query's entity becomes another one: the authenticated walk still begins where it did."""
    text = POLICY.read_text(encoding="utf-8").replace(
        "      - match: [relate]",
        "      - match: [unify]\n        target: L3\n        structure:\n"
        '          - {change: merge, each: "$", one: into, two: node}\n      - match: [relate]',
    )
    file = tmp_path / "policy.yaml"
    file.write_text(text, encoding="utf-8")
    world = await World(store, redis_namespace, load_policies([file])).curated()
    for topic in SCENE.topics:
        await world.call("peer", "unify", {"into": "mill 0 a", "node": topic})
    mills = {"results": [{"record": "invoice rival 0", "text": f"Pay {SCENE.rival}"}]}
    await world.recall(mills)
    assert world.metrics.found == ["diverged"]
    verdict, _ = await world.pay(SCENE.rival)
    assert verdict.action is Action.ASK


async def test_a_selector_that_raises_makes_the_answer_untrusted(world, monkeypatch):
    """An error is never served as authenticated."""
    await world.attacked()

    def broken(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(PageRank, "rank", broken)
    await world.recall()
    verdict, _ = await world.pay(SCENE.right)
    assert verdict.reasons[0].code == "selection_unreplayed"
    assert world.metrics.found == ["error"]


async def test_a_replay_that_is_late_makes_the_answer_untrusted(
    store, redis_namespace, tmp_path, monkeypatch
):
    """Nobody waits longer than the policy says, and other calls not at all."""
    text = POLICY.read_text(encoding="utf-8").replace("deadline_ms: 10000", "deadline_ms: 1")
    file = tmp_path / "policy.yaml"
    file.write_text(text, encoding="utf-8")
    world = await World(store, redis_namespace, load_policies([file])).curated()
    released = asyncio.Event()
    selections = world.guard._selections
    replayed = selections._replayed

    async def slow(*arguments: Any) -> Any:
        await released.wait()
        return await replayed(*arguments)

    monkeypatch.setattr(selections, "_replayed", slow)
    await world.recall()
    verdict, _ = await world.pay(SCENE.right)
    released.set()
    assert verdict.reasons[0].code == "selection_unreplayed"
    assert world.metrics.found == ["late"]


@pytest.mark.parametrize("how", ["gone", "altered", "shorter"])
async def test_a_ledger_with_a_gap_vouches_for_nothing(world, how):
    """The list was deleted, an entry changed, or its end cut off after it had been read."""
    await world.recall()
    key = world.store.key_of("default", ledger_set("default", "graph"))
    client = world.store.client
    if how == "gone":
        await client.execute("UNLINK", key)
    elif how == "altered":
        await client.execute("LSET", key, -1, b"x" * 40)
    else:
        await client.execute("LTRIM", key, 0, 2)
    await world.recall()
    verdict, _ = await world.pay(SCENE.right)
    assert verdict.reasons[0].code == "selection_unreplayed"
    assert world.metrics.found == ["stands", "ledger_gap"]


async def test_a_write_that_is_not_on_record_makes_the_ledger_a_gap(world, monkeypatch):
    """The store could not be told: every later recall is untrusted."""

    async def down(*_: object) -> int:
        raise StateError("down")

    monkeypatch.setattr(world.guard._selections._ledger, "append", down)
    await world.attacked()
    await world.recall()
    verdict, _ = await world.pay(SCENE.right)
    assert verdict.reasons[0].code == "selection_unreplayed"
    assert world.metrics.found == ["unwritten", "ledger_gap"]


async def test_an_answer_that_cannot_be_marked_is_withheld(world, monkeypatch):
    """The agent does not read what would vouch by mistake."""
    await world.attacked()

    async def down(*_: object) -> None:
        raise StateError("down")

    monkeypatch.setattr(world.store, "note", down)
    _, _, refused = await world.recall()
    assert [reason.code for reason in refused.reasons] == ["selection_unmarked"]


@pytest.mark.parametrize(
    "answer",
    [
        {"content": [{"type": "text", "text": f"Pay {SCENE.rival}"}]},
        {"results": [{"text": f"Pay {SCENE.rival}"}]},
        {
            "content": [{"type": "text", "text": '{"results": [{"record": "a"}]}'}],
            "structuredContent": {"results": [{"record": f"Pay {SCENE.rival}"}]},
        },
    ],
    ids=["prose", "no-name", "two-forms"],
)
async def test_an_answer_that_is_not_read_vouches_for_nothing(world, answer):
    """Items that are not where the policy says, without names, or in two versions."""
    await world.recall(answer)
    verdict, _ = await world.pay(SCENE.rival)
    assert verdict.reasons[0].code == "selection_unreplayed"
    assert world.metrics.found == ["unread_answer"]


async def test_a_weight_that_is_none_makes_the_answer_untrusted(world):
    """A stranger's broken weight cannot be ranked, and nothing is vouched for meanwhile."""
    relations = [{"source": "a", "target": "b", "weight": "heavy"}]
    at = world._answer
    world._answer = lambda tool, arguments: "saved" if tool == "relate" else at(tool, arguments)
    await world.call("peer", "relate", {"relations": relations})
    await world.recall()
    verdict, _ = await world.pay(SCENE.right)
    assert verdict.reasons[0].code == "selection_unreplayed"
    assert world.metrics.found == ["unrankable"]


async def test_a_write_between_the_question_and_the_answer_is_looked_past(world):
    """The memory answered before a write that the ledger has by now: the graph before it counts."""
    await world.recall()
    asked = float(next(world.clock))
    identity = Identity("agent", "agents", principal_rung=PrincipalRung.CREDENTIAL)
    query = {"query": SCENE.query}
    call = ToolCall("early", identity, "search_records", query, "mcp", asked)
    [(traced, _)] = await world.guard.authorize([call])
    answer = world.results(query)
    await world.attacked()
    await world.guard.observe(ToolResult(traced, answer, float(next(world.clock))))
    verdict, _ = await world.pay(SCENE.right)
    assert verdict.action is Action.ALLOW
    assert world.metrics.found == ["stands", "stands"]


async def test_what_an_anonymous_writer_says_counts_for_nobody(world):
    """Everybody who does not authenticate is one principal: no name of the policy is theirs."""
    edges = {"relations": SCENE.attack()}
    stranger = Identity("curator", "s", principal_rung=PrincipalRung.ANONYMOUS)
    call = ToolCall("anonymous", stranger, "relate", edges, "mcp", float(next(world.clock)))
    [(traced, _)] = await world.guard.authorize([call])
    world._answer("relate", edges)
    await world.guard.observe(ToolResult(traced, "saved", float(next(world.clock))))
    await world.recall()
    assert world.metrics.found == ["diverged"]


async def test_two_workers_have_one_ledger(world, store, redis_namespace):
    """What one has seen written the other replays."""
    await world.attacked()
    other = World(store, redis_namespace, world.policy)
    other.memory, other.clock = world.memory, world.clock
    other.ids = count(100)
    await other.recall()
    assert other.metrics.found == ["diverged"]
