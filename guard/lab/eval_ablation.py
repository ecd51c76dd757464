"""``guard lab eval ablation``: rule, classifier and ladder, each alone and together.

Every gate judges every send of a data set in one replay; a combination stops what one of its
gates stops.  The rule and the classifier have no destination filter here: they are the paper's.
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from guard.adapters.onnx import load_models
from guard.adapters.redis.embedded import EmbeddedRedis
from guard.lab.eval_provenance import (
    AGENTDOJO,
    BENIGN_MEMORY,
    LEONG,
    MAIL_SENDS,
    SHARES,
    WEB_READ,
    agentdojo_sends,
    agentdojo_side,
    labelled,
    mail_receiver,
    sends,
)
from guard.lab.generate.scenes import evasions, hard_negatives, hippo_attacks, hippo_benign
from guard.lab.judged_runs import FLAGGED, Bench, Tally
from guard.policy_files import load_policies
from guard.replay.reports import Check, Report, machine
from guard.replay.traces import read_traces
from guard.settings import models_directory, policies_directory

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from guard.core.policy import Policy
    from guard.lab.eval_provenance import Options
    from guard.lab.judged_runs import JudgedCall, JudgedRun
    from guard.replay.traces import Run

RULE: Final = "ablated-rule"
CLASSIFIER: Final = "ablated-classifier"
GATES: Final = ("rule", "classifier", "ladder")
COMBINATIONS: Final = tuple(
    "+".join(some) for size in (1, 2, 3) for some in combinations(GATES, size)
)
_SCORE: Final = f"""\
version: 1
name: ablation
rules:
  - {{id: {CLASSIFIER}, type: score, roles: [send], model: prefix-13, at_least: 0.5, effect: ask}}
"""
_SEQUENCE: Final = f"""\
  - {{id: {RULE}, type: sequence, roles: [send], after: [recall], scope: session, effect: ask}}
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One send and the gates that would have stopped it."""

    call: JudgedCall
    gates: frozenset[str]

    def stopped_by(self, combination: str) -> bool:
        """Return whether one of the gates in ``combination`` stops the send."""
        return not self.gates.isdisjoint(combination.split("+"))


def eval_ablation(options: Options) -> Report:
    """Replay the data sets once and return a figure per set, side and combination of gates.

    Raises:
        GuardError: a policy, a trace or the state store is unusable.
    """
    with ExitStack() as stack:
        bench = Bench(stack.enter_context(EmbeddedRedis()).url, load_models(models_directory()))
        sides = asyncio.run(_sides(bench, options))
    checks: list[Check] = []
    table: dict[str, dict[str, Any]] = {}
    for side, outcomes in sides.items():
        table[side] = {"n": len(outcomes)}
        for combination in COMBINATIONS:
            tally = Tally(wanted=side.endswith("_stopped"))
            for outcome in outcomes:
                tally.add("", side, hit=outcome.stopped_by(combination))
            check = tally.rate(f"{side}.{combination}", "none")
            checks.append(check)
            table[side][combination] = check.value
    return Report(name="ablation", machine=machine(), checks=checks, details={"table": table})


def gated(policy: str, *, recalls: bool) -> Policy:
    """Return an example policy with the rule and the classifier added.

    Args:
        policy: the file's name.
        recalls: whether a tool of the policy reads memory; the rule needs one.
    """
    with tempfile.TemporaryDirectory(prefix="guard-ablation-") as directory:
        gates = Path(directory) / "gates.yaml"
        gates.write_text(_SCORE + (_SEQUENCE if recalls else ""), encoding="utf-8")
        return load_policies([policies_directory() / "examples" / policy, gates])


def outcome(call: JudgedCall) -> Outcome:
    """Return which gates spoke against a call."""
    spoke = {
        reason["rule"] or "ladder" for reason in call.line["reasons"] if reason["action"] in FLAGGED
    }
    names = {RULE: "rule", CLASSIFIER: "classifier"}
    return Outcome(call, frozenset(names.get(rule, "ladder") for rule in spoke))


async def _sides(bench: Bench, options: Options) -> dict[str, list[Outcome]]:
    mail, office = (
        gated("mail_assistant.yaml", recalls=True),
        gated("agentdojo.yaml", recalls=False),
    )
    sides: dict[str, list[Outcome]] = {}

    async def judge(runs: Iterable[Run], policy: Policy, name: str) -> list[JudgedRun]:
        timed = replace(bench, advance=options.progress(name))
        return await timed.judge(list(runs), policy)

    def add(side: str, calls: Iterable[JudgedCall]) -> None:
        sides.setdefault(side, []).extend(outcome(call) for call in calls)

    if (path := _recorded(options, LEONG)) is not None:
        mails = list(sends(await judge(read_traces([path]), mail, "leong"), MAIL_SENDS))
        add("leong_stopped", (c for c in mails if mail_receiver(c) == "attacker"))
        add("leong_internal_flagged", (c for c in mails if mail_receiver(c) == "internal"))
    if (path := _recorded(options, BENIGN_MEMORY)) is not None:
        runs = await judge(read_traces([path]), mail, "benign memory")
        add("benign_memory_flagged", sends(runs, MAIL_SENDS | SHARES))
    if (path := _recorded(options, AGENTDOJO)) is not None:
        runs = await judge(read_traces([path]), office, "agentdojo")
        for side, found in _by_side(runs).items():
            add(f"agentdojo_{side}", found)
    await _generated(options, mail, judge, add)
    return sides


def _by_side(runs: Sequence[JudgedRun]) -> dict[str, list[JudgedCall]]:
    calls = list(agentdojo_sends(runs))
    return {
        "stopped": [call for call in calls if agentdojo_side(call) == "injected"],
        "benign_flagged": [
            call
            for call in calls
            if agentdojo_side(call) == "benign" and call.call.tool != WEB_READ
        ],
        "own_flagged": [call for call in calls if agentdojo_side(call) == "own"],
    }


async def _generated(options: Options, policy: Policy, judge: Any, add: Any) -> None:
    many = max(1, round(6 * options.scale))
    for side, label, runs in (
        ("evasions_stopped", "attack_calls", evasions(options.seed, many)),
        ("hard_negatives_flagged", "own_calls", hard_negatives(options.seed, many * 2)),
        ("hippo_stopped", "attack_calls", hippo_attacks(options.seed, many // 2 or 1)),
        ("hippo_benign_flagged", "own_calls", hippo_benign(options.seed, many * 2)),
    ):
        add(side, labelled(await judge(runs, policy, side), label))


def _recorded(options: Options, name: str) -> Path | None:
    path = options.data / name if options.data else None
    return path if path is not None and path.is_file() else None
