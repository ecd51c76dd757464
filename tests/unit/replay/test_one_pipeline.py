"""Live traffic, replay, ``guard test`` and ``guard explain`` decide every call alike.

Recorded and generated runs are replayed; each call, with the state before it, is then described in
the words of a test file and judged again.
"""

import asyncio
import itertools
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from guard.cli.running import shipped_detectors
from guard.core.labels import Rung
from guard.core.memory import TokenState
from guard.core.model import DestinationStatus, Integrity
from guard.policy import load_policies
from guard.replay.described_calls import DescribedCall, judge
from guard.replay.explanation import explained
from guard.replay.policy_tests import CaseEntry, Coverage, Suite, run_suite
from guard.replay.run import Replay, fresh_store
from guard.replay.traces import read_traces
from guard.values.canonical import read_destinations
from lab.generate import scenes

ROOT = Path(__file__).resolve().parents[3]
TRACES = ROOT.parent / "shared/data/traces"
RECORDED = ("leong_dev.jsonl.gz", "agentdojo_dev.jsonl.gz", "benign_memory_dev.jsonl")
GENERATED = {"evasions": 12, "hard_negatives": 20, "hippo_attacks": 6, "hippo_benign": 20}
"""Runs of each kind that are generated, by family."""
SAMPLE = 3
"""Runs of each source."""
POLICIES = {
    "default": ["policies/default.yaml"],
    "mail": ["policies/examples/mail_assistant.yaml"],
    "agentdojo": ["policies/examples/agentdojo.yaml"],
    "gated": ["policies/profiles/fact-store.yaml"],
}


@dataclass
class Judged:
    """One call of a run: what was decided, and a description of all that was looked at."""

    request: Any
    traced: Any
    verdict: Any
    snapshot: Any = None
    session: tuple[str, ...] = ()
    earlier: tuple[str, ...] = ()
    staged: dict[str, Any] = field(default_factory=dict)


class Spy:
    """A detector that finds nothing and keeps the state that it is first shown for each call."""

    name = "spy"

    def __init__(self):
        self.snapshots = {}

    def inspect(self, call, snapshot):
        self.snapshots.setdefault(call.call.id, snapshot)
        return ()


def replayed(url, policy, runs, *, until_refused):
    """Return every call of some runs as the guard judged it.

    Args:
        url: of a Redis.
        policy: in force.
        runs: to replay.
        until_refused: whether refusals are marked as live traffic marks them, so that a run ends
            with its first.
    """
    spy, found, staged = Spy(), [], {}
    roles = defaultdict(list)
    over = set()

    async def go():
        async with fresh_store(url, policy.limits) as store:
            replay = Replay(policy, store, (*detectors_of_live(), spy))
            guard = replay._guard
            guard._refused._open_loop = not until_refused
            judge, observe = guard.judge, guard.observe
            if guard._memory is not None:
                stage = guard._memory._staging.stage

                async def noted(candidate, receipt):
                    staged[candidate.id] = await stage(candidate, receipt)
                    return staged[candidate.id]

                guard._memory._staging.stage = noted

            async def keep(asked):
                answers = await judge(asked)
                for request, (traced, verdict) in zip(asked.calls, answers, strict=True):
                    owner = request.identity.principal
                    if owner in over:
                        continue
                    before = roles[owner]
                    session = request.identity.session
                    here = tuple(role for name, role in before if name == session)
                    earlier = tuple(role for name, role in before if name != session)
                    found.append(Judged(request, traced, verdict, None, here, earlier, staged))
                    if until_refused and not verdict.enforced.forwards:
                        over.add(owner)
                return answers

            async def note(result):
                identity = result.call.call.identity
                roles[identity.principal].append(
                    (identity.session, result.call.classified.role.value)
                )
                return await observe(result)

            guard.judge, guard.observe = keep, note
            await replay.run(runs, lambda _: None)

    asyncio.run(go())
    for one in found:
        one.snapshot = spy.snapshots[one.request.id]
    return found


def texts_of(target):
    """Return a text under which a description names a destination; None where there is none."""
    destination = target.destination
    for text in (destination.canonical, f"handle:{destination.canonical}"):
        if destination.kind in {"text", "number", "reply"}:
            return destination.canonical.removeprefix("number:")
        if destination in read_destinations(text):
            return text
    return None


def description(one):
    """Return a judged call in the words of a test file; None where it has none for it."""
    traced, snapshot, identity = one.traced, one.snapshot, one.request.identity
    rungs, saturated = {}, snapshot.full or snapshot.incomplete
    for target in (*traced.targets, *traced.guarded):
        attestation = target.attestation
        if target.status is not DestinationStatus.EXTERNAL or attestation is None:
            continue
        saturated = saturated or attestation.saturated
        if attestation.rung is Rung.UNKNOWN:
            continue
        text = texts_of(target)
        if text is None:
            return None
        rungs[text] = attestation.rung.label
    described = {
        "trajectory": {
            "session": list(one.session),
            "principal": list(one.earlier),
            "refused": snapshot.session.refused_in_a_row,
        },
        "provenance": rungs,
        "saturated": saturated,
        "private": traced.private is not None,
        "item": None if traced.memory_label is None else traced.memory_label.name.lower(),
        "call": {
            "tool": one.request.tool,
            "arguments": dict(one.request.arguments),
            "session": identity.session,
            "principal": identity.principal,
            "protocol": one.request.protocol,
            "identity": {
                "principal_rung": identity.principal_rung.name.lower(),
                "session_rung": identity.session_rung.name.lower(),
            },
        },
    }
    if traced.saved is not None:
        if traced.saved.prompted:
            return None
        described["read_untrusted"] = traced.saved.label is Integrity.UNTRUSTED
    facts = one.staged.get(one.request.id)
    if facts is not None:
        described["memory"] = {
            "trust": facts.trust.name.lower(),
            "closed": facts.quarantined,
            "item": next((one.name for one in facts.item_classes), None),
            "promotion": max(facts.tokens.values(), default=TokenState.NONE).value,
            "nonce_used": facts.nonce_used,
        }
    return described


def outcome(verdict, traced):
    """Return what must be the same whoever asks: verdict, reasons and what goes out."""
    reasons = [(reason.code, reason.rule, reason.action.label) for reason in verdict.reasons]
    return verdict.action.label, reasons, len(verdict.errors), dict(traced.call.arguments)


def runs_of(name):
    """Return the runs of one source, a sample of them."""
    if name in GENERATED:
        every = list(scenes.runs_of(name, "0", GENERATED[name]))
        return every[:: max(1, len(every) // SAMPLE)]
    if not (TRACES / name).is_file():
        pytest.skip(f"the recorded runs `{name}` are absent")
    return list(islice(read_traces([TRACES / name]), 0, 40 * SAMPLE, 40))


@cache
def detectors_of_live():
    """Return the detectors of live traffic, their models loaded once."""
    return tuple(shipped_detectors(None))


@pytest.mark.parametrize(
    ("name", "source"),
    [
        *itertools.product(POLICIES, RECORDED),
        *itertools.product(("default", "gated"), GENERATED),
        ("mail", "hippo_benign"),
    ],
)
def test_every_way_to_judge_a_call_gives_the_same_answer(redis_server, name, source):
    """Verdict, reasons, errors and redactions, call by call."""
    policy = load_policies([ROOT / path for path in POLICIES[name]])
    runs = runs_of(source)
    detectors = detectors_of_live()
    open_loop = replayed(redis_server.url, policy, runs, until_refused=False)
    live = replayed(redis_server.url, policy, runs, until_refused=True)
    recorded = {one.request.id: one for one in open_loop}

    for one in live:
        other = recorded[one.request.id]
        assert outcome(one.verdict, one.traced) == outcome(other.verdict, other.traced)
    undescribed = Counter()
    for one in open_loop:
        described = description(one)
        if described is None:
            undescribed["no words"] += 1
            continue
        judged = judge(policy, detectors, DescribedCall.model_validate(described))
        if judged.snapshot.session.trajectory != one.snapshot.session.trajectory:
            undescribed["expired"] += 1
            continue
        expected = outcome(one.verdict, one.traced)
        assert outcome(judged.verdict, judged.call) == expected, described
        case = CaseEntry.model_validate(
            {**described, "name": "x", "verdict": expected[0], "reasons": ("x",)}
        )
        [tested] = run_suite(Suite("x", policy, (case,), (1,)), detectors, Coverage(policy))
        assert tested.verdict == judged.verdict
        document = explained(policy, judged)
        assert [reason["code"] for reason in document["reasons"]] == [r[0] for r in expected[1]]
    assert undescribed.total() <= len(open_loop) // 10, undescribed
