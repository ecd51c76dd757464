"""What a crash leaves is found and settled by the guards that live; real Redis, made-up stores."""

import json
from dataclasses import replace

import pytest

from guard.core.errors import AuditError
from guard.core.jsonpath import compile_path
from guard.core.mappings import MemoryLimits, MemoryPolicy, ReadBack, WriteMapping
from guard.core.memory import (
    Fate,
    MemoryClass,
)
from guard.core.model import Identity
from guard.store.memory_stores.recovery import Owner, Recovery
from guard.store.staging import GateOperator, RedisStaging
from tests.guards import Counts, Lines
from tests.staged_writes import leave_in_flight, staged_write

WRITE = WriteMapping(
    "",
    lambda tool: tool == "save",
    "facts",
    MemoryClass.L4,
    content=(compile_path("$.value"),),
    read_back=ReadBack("get", {"key": "$.key"}),
)
TEXT = 'the "red" door'
AT_ONCE = MemoryLimits(unknown_after=0)
LATE = MemoryLimits(unknown_after=3600)


def _memory(limits=AT_ONCE, write=WRITE):
    return MemoryPolicy(matrix={}, second_look={}, writes=(write,), limits=limits)


class Scene:
    """A Redis with one write in flight, and workers that look at it."""

    def __init__(self, client, namespace):
        self.client, self.namespace = client, namespace
        self.audit, self.metrics, self.asked = Lines(), Counts(), []
        self.answer, self.memory = TEXT, _memory()
        self.operator = GateOperator(client, namespace=namespace)

    def worker(self, owner, holds=(), tenants=()):
        """Return a worker's recovery."""
        return Recovery(
            Owner(self.client, owner, self.namespace),
            memory=lambda: self.memory,
            holds=set(holds).__contains__,
            ask=self.ask,
            audit=self.audit,
            metrics=self.metrics,
            tenants=tenants,
        )

    async def ask(self, server, read_back, arguments):
        """Answer as the store."""
        self.asked.append((server, read_back.tool, dict(arguments)))
        if self.answer is None:
            raise OSError
        return self.answer

    async def lose(self, owner, ident="lost", tenant="default"):
        """Commit a write in the name of a worker, and leave it in flight."""
        content = json.dumps({"key": ident, "value": TEXT})
        made = staged_write(
            ident,
            keys=(ident,),
            target=MemoryClass.L4,
            content=content,
            digest=ident,
            server="127.0.0.1:8080",
            identity=Identity("p", "s", tenant),
        )
        staging = RedisStaging(self.client, namespace=self.namespace, owner=owner)
        await leave_in_flight(staging, made)

    async def fate(self, ident="lost"):
        """Return what the record says."""
        return (await self.operator.candidate(ident)).fields["fate"]


@pytest.fixture
async def scene(redis_client, redis_namespace, monkeypatch):
    """Return a scene on a real Redis, where no write is too young to be looked at."""
    monkeypatch.setattr("guard.store.memory_stores.recovery.YOUNG_SECONDS", -1.0)
    return Scene(redis_client, redis_namespace)


@pytest.mark.parametrize(
    ("answer", "fate"),
    [
        (TEXT, Fate.ACKNOWLEDGED),
        (json.dumps({"value": TEXT}), Fate.ACKNOWLEDGED),
        ("the green door", Fate.ABANDONED),
        ("", Fate.ABANDONED),
        (None, Fate.UNKNOWN),
    ],
    ids=["there", "there as JSON", "something else", "nothing", "no answer"],
)
@pytest.mark.parametrize("worker", ["guard:1", "guard:0"], ids=["the next worker", "its own"])
async def test_a_worker_settles_what_nobody_awaits(scene, answer, fate, worker):
    """By the recall of the profile, behind the listener of the write; on record and counted."""
    await scene.lose("guard:0")
    scene.answer = answer

    assert await scene.worker(worker).once() == [("lost", fate)]

    assert scene.asked == [("127.0.0.1:8080", "get", {"key": "lost"})]
    [(event, fields)] = scene.audit.events
    assert (event, fields["decision_id"], fields["fate"]) == (
        "guard.memory_resolved",
        "lost",
        fate.value,
    )
    assert [labels for _, *labels in scene.metrics.counted] == [[fate.value, "recovered", "L4"]]
    assert await scene.fate() == fate.value


async def test_another_guards_write_is_left_alone_while_that_guard_lives(scene):
    """And settled when it has not said for a while that it does."""
    await scene.lose("other:0")
    other = scene.worker("other:0", holds=["lost"])
    await other.beat()

    assert await scene.worker("guard:0").once() == []
    assert await other.once() == []

    await scene.client.execute("DEL", f"{scene.namespace}:owner:other:0")
    assert await scene.worker("guard:0").once() == [("lost", Fate.ACKNOWLEDGED)]


async def test_what_may_still_be_on_its_way_is_not_called_absent(scene):
    """Only after `unknown_after` does an empty answer say anything."""
    await scene.lose("guard:0")
    scene.memory, scene.answer = _memory(LATE), ""

    assert await scene.worker("guard:1").once() == []
    assert await scene.fate() == "committed"


async def test_a_write_that_cannot_be_read_back_is_reported(scene):
    """No recall in the profile: a person is told, and nothing is guessed."""
    await scene.lose("guard:0")
    scene.memory = _memory(write=replace(WRITE, read_back=None))

    assert await scene.worker("guard:1").once() == [("lost", Fate.UNKNOWN)]
    assert scene.asked == []
    assert [item.fields["fate"] for item in await scene.operator.review(5)] == ["unknown"]


async def test_two_workers_report_a_lost_write_once(scene):
    """Whoever claims it first looks after it."""
    await scene.lose("guard:0")
    scene.answer = None

    first, second = scene.worker("guard:1"), scene.worker("other:0")

    assert [*await first.once(), *await second.once()] == [("lost", Fate.UNKNOWN)]
    assert len(scene.audit.events) == 1


@pytest.mark.parametrize("pause", [-1.0, 15.0], ids=["asked-again", "not-yet-due"])
async def test_a_guard_that_cannot_ask_leaves_a_write_to_one_that_can(scene, monkeypatch, pause):
    """A claim that settles nothing is given up at once."""
    monkeypatch.setattr("guard.store.memory_stores.recovery.AGAIN_SECONDS", pause)
    await scene.lose("guard:0")
    scene.answer, other = None, scene.worker("other:0")
    assert await other.once() == [("lost", Fate.UNKNOWN)]
    await scene.client.execute("DEL", f"{scene.namespace}:owner:of:lost")

    assert await other.once() == []
    scene.answer = TEXT
    assert await scene.worker("guard:1").once() == [("lost", Fate.ACKNOWLEDGED)]


async def test_without_a_line_on_record_nothing_is_settled(scene):
    """The audit comes first."""
    await scene.lose("guard:0")
    scene.audit.error = AuditError()

    with pytest.raises(AuditError):
        await scene.worker("guard:1").once()

    assert await scene.fate() == "committed"
