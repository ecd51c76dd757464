"""Saves are judged after commit; a finding asks before a send, and withholds only where it may."""

from dataclasses import replace

import pytest

from guard.core.mappings import DetectionSettings
from guard.core.model import Integrity
from guard.core.policy import Action, StateLimits
from guard.extensions.propagation.containment import CURSOR, contained_set
from guard.extensions.propagation.detection import BY_RULE, CLEAN, Calibration, PoisoningDetector
from guard.extensions.propagation.events import Edge
from guard.extensions.propagation.evidence import Kind
from guard.operations.detection import Model, Watch
from guard.operations.incidents import Given
from guard.operations.labels import LabelOperator
from guard.provenance.approvals import Grant
from tests.unit.extensions.propagation.test_graph import SAVED, node
from tests.unit.extensions.propagation.test_incidents import HONEST, NOW, POISON, shown

ASKS = DetectionSettings(withholds=False, threshold=0.5)
WITHHOLDS = DetectionSettings(withholds=True, threshold=0.5)


@pytest.fixture
def sections():
    """Return a policy that has findings asked about."""
    return "propagation: {events: 20000, versions: 100, detection: {threshold: 0.5}}\n"


def watch(store, seal, settings=ASKS, model=None):
    """Return a detector that has not looked yet."""
    return Watch(store, seal, settings, model=model)


async def poison(agent):
    """Have alice save an honest item, then poison from a page; return her."""
    await agent.call("save", {"key": "meeting", "value": HONEST}, "ok")
    reader = agent.in_session("reads")
    await reader.call("read", {"page": "x"}, POISON)
    await reader.call("save", {"key": "rule", "value": POISON}, "ok")
    return reader


async def test_a_finding_asks_before_what_follows_is_sent(agent, store, seal):
    """The user named the receiver, so nothing else would ask; the item is still recalled."""
    await poison(agent)
    bob = agent.as_principal("bob").in_session("b")
    await bob.say("Tell ops@partner.test what we do with reports")
    body = "finance reports: forward them to drop@evil.test"
    before = await bob.send(["ops@partner.test"], body=body)
    done = await watch(store, seal).round(NOW)
    classified, after = await bob.ask("send", {"to": ["ops@partner.test"], "body": body})

    assert before.action is Action.ALLOW
    assert (done.saves, len(done.findings)) == (2, 1)
    assert (after.action, after.reasons[0].code) == (Action.ASK, "memory_suspected")
    assert await shown(bob, "rule", POISON) is None
    honest = await bob.send(["ops@partner.test"], body="we meet on tuesday")
    assert honest.action is Action.ALLOW

    labels = LabelOperator(store, seal, StateLimits())
    await labels.approve(classified.call.id, agent.at, Grant())
    assert (await bob.send(["ops@partner.test"], body=body)).action is Action.ALLOW


async def test_a_cleared_finding_asks_no_more(agent, store, seal):
    """Nor do items that a person has cleared come back when the detector starts anew."""
    await poison(agent)
    [finding] = (await watch(store, seal).round(NOW)).findings
    bob = agent.as_principal("bob").in_session("b")
    await bob.say("Tell ops@partner.test what we do with reports")

    assert await watch(store, seal).clear([finding.node]) == 1
    sent = await bob.send(["ops@partner.test"], body="forward them to drop@evil.test")
    assert sent.action is Action.ALLOW

    await bob.call("save", {"key": "copy", "value": POISON}, "ok")
    again = await watch(store, seal).round(NOW)
    assert finding.node not in {one.node for one in await watch(store, seal).findings()}
    assert not [one for one in again.findings if one.follows]


async def test_a_detector_that_was_away_catches_up(agent, store, seal, operator):
    """What nobody has looked at shows in the scope; no event is judged twice."""
    first = watch(store, seal)
    await agent.call("save", {"key": "meeting", "value": HONEST}, "ok")
    assert (await first.round(NOW)).saves == 1
    await poison(agent)
    incident = await operator.open(Given(item="rule", store="facts"), NOW, "op")
    _, scope = await operator.scope(incident.id)
    assert scope.unknown == {"events_not_judged": 2}

    late = await watch(store, seal).round(NOW)
    assert (late.saves, len(late.findings)) == (2, 1)
    assert (await first.round(NOW)).saves == 0
    assert (await watch(store, seal).round(NOW)).saves == 0
    _, scope = await operator.scope(incident.id)
    assert scope.unknown == {}


async def calibrated(store, seal, **given):
    """Put a calibration on record."""
    fields = {"saves": CLEAN, "fired": 10, "threshold": 0.5, "model": BY_RULE} | given
    raw = Calibration(**fields).sealed(seal, "default")
    key = store.key_of("default", contained_set("default"))
    await store.client.execute("HSET", key, b"q", raw)


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(None, id="never tried"),
        pytest.param({"saves": CLEAN - 1, "fired": 0}, id="on too few"),
        pytest.param({"fired": 11}, id="fired too often"),
        pytest.param({"threshold": 0.6}, id="another threshold"),
        pytest.param({"model": "other"}, id="another model"),
    ],
)
async def test_it_does_not_withhold_before_it_was_tried(given, agent, store, seal):
    """The policy's wish is not enough; people are asked instead, and it says why."""
    if given is not None:
        await calibrated(store, seal, **given)
    await poison(agent)
    done = await watch(store, seal, WITHHOLDS).round(NOW)

    assert done.findings
    assert not done.contained
    assert "--calibrate" in done.why_asked
    assert await shown(agent, "rule", POISON) is None


async def test_it_withholds_where_it_may_and_that_can_be_undone(agent, store, seal, operator):
    """By an incident like any other."""
    await calibrated(store, seal)
    await poison(agent)
    done = await watch(store, seal, WITHHOLDS).round(NOW)
    [incident] = done.contained
    erin = agent.as_principal("erin")

    assert incident.opened_by == "detector"
    assert (await shown(erin, "rule", POISON)).action is Action.BLOCK
    assert await shown(erin, "meeting", HONEST) is None
    await operator.undo(incident.id, 1, NOW, "op")
    assert await shown(erin, "rule", POISON) is None


async def test_a_calibration_counts_what_is_on_record(agent, store, seal):
    """And an altered one allows nothing."""
    await poison(agent)
    found = await watch(store, seal).calibrate()
    key = store.key_of("default", contained_set("default"))
    raw = await store.client.execute("HGET", key, b"q")

    assert (found.saves, found.fired) == (2, 1)
    assert Calibration.read(seal, "default", raw) == found
    assert Calibration.read(seal, "default", raw[:-1] + b"x") is None


async def test_a_model_of_texts_judges_what_is_kept(agent, store, seal):
    """Where the texts are kept its probability takes the place of the rule."""
    seen = []

    def probabilities(texts):
        seen.extend(texts)
        return [0.99 if "tuesday" in text else 0.0 for text in texts]

    await agent.call("read", {"page": "x"}, HONEST)
    await poison(agent)
    settings = DetectionSettings(threshold=0.4)
    done = await watch(store, seal, settings, Model("m", probabilities)).round(NOW)
    held = {one.node: one.recognised for one in done.findings}

    assert any("tuesday" in text for text in seen)
    assert set(held.values()) == {0.99}


async def test_an_altered_cursor_judges_everything_again(agent, store, seal):
    """Whoever changes it can hide nothing."""
    await poison(agent)
    await watch(store, seal).round(NOW)
    key = store.key_of("default", contained_set("default"))
    await store.client.execute("HSET", key, CURSOR, b"forged")

    assert (await watch(store, seal).round(NOW)).saves == 2


def test_what_follows_from_a_finding_is_one():
    """By confirmed edges only; a resemblance or an exposure follows from nothing."""
    detector = PoisoningDetector(0.5)
    bad = replace(SAVED, node=node(1), values=(b"v" * 12,))
    assert detector.judge(bad) is not None
    honest = replace(SAVED, node=node(2), label=Integrity.ADVISORY)
    copy = detector.judge(replace(honest, edges=(Edge(bad.node, Kind.RUN),)))
    alike = detector.judge(replace(honest, edges=(Edge(bad.node, Kind.RESEMBLANCE),)))

    assert copy.follows == bad.node
    assert alike is None
