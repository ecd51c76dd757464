"""Detection on real text: poisoned saves and injections against three benign sets, by source.

LoCoMo is used to evaluate only.  Beside the encoder stand a linear model on the same hashed text
and the rule that a poisoned item names somebody outside.  A detector that does not beat the better
of the two, with an interval that excludes zero, ships off.
"""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from guard.core.json_values import strings_in
from guard.propagation.evidence import evident_values
from guard.propagation.hashed_text import hashed
from guard.replay.reports import Check
from guard.replay.traces import read_traces
from lab.propagation.detectors import auc
from lab.propagation.encoder import Settings, linear, logistic, projection, train

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from guard.core.model import Destination
    from guard.replay.traces import Run
    from lab.propagation.encoder import Encoder

Texts = list[str]
LEONG: Final = "leong_dev.jsonl.gz"
DOJO: Final = "agentdojo_dev.jsonl.gz"
BENIGN: Final = "benign_memory_dev.jsonl"
SHORTEST: Final = 8
LONGEST: Final = 2000
EACH: Final = 1500
"""Texts of one set, at most."""
SAMPLES: Final = 2000
"""Of the bootstrap."""
INTERNAL: Final = frozenset({"example.com", "bluesparrowtech.com"})
FALSE_ALARMS: Final = 0.01
OWASP: Final = "owasp_guard"
SHARES: Final = {"0": 0.0, "1/3": 1 / 3, "1": 1.0}
"""Of benign items whose session had read untrusted text: it decides what provenance can tell."""
INJECTED_LINES: Final = 40


def real_text(data: Path) -> tuple[list[Check], dict[str, Any]]:
    """Return the figures, nulls with a reason where the data is not there."""
    wanted = [data / "traces" / LEONG, data / "traces" / DOJO, data / "locomo"]
    missing = [path.name for path in wanted if not path.exists()]
    if missing:
        reason = f"not there: {', '.join(missing)}"
        names = ("text_auc_encoder", "text_auc_linear", "text_auc_value_rule", "text_gain")
        return [Check(id=one, value=None, unit="auc", reason=reason) for one in names], {}
    sets = texts_of_data(data)
    encoder, weights = trained(sets, tools_of(data))
    poison = sets["poison_test"]
    benign_sets = ("benign_locomo", "benign_results", "benign_prompts")
    details: dict[str, Any] = {name: len(texts) for name, texts in sets.items()}
    benign = [text for name in benign_sets for text in sets[name]]
    scores = {
        "encoder": _encoded(encoder, poison + benign),
        "linear": linear(hashed(poison + benign), weights),
        "value_rule": np.array([float(names_outsider(text)) for text in poison + benign]),
    }
    owasp = by_owasp(poison + benign)
    if owasp is not None:
        scores[OWASP] = owasp
    truth = np.arange(len(poison) + len(benign)) < len(poison)
    checks = [
        Check(
            id=f"text_auc_{name}", value=round(auc(each, truth), 4), unit="auc", n=len(truth),
            interval=_interval([each], truth),
        )
        for name, each in scores.items()
    ]  # fmt: skip
    if OWASP not in scores:
        reason = "the extra `lab` is not installed (agent-memory-guard)"
        checks.append(Check(id=f"text_auc_{OWASP}", value=None, unit="auc", reason=reason))
    others = max((n for n in scores if n != "encoder"), key=lambda name: auc(scores[name], truth))
    gain = auc(scores["encoder"], truth) - auc(scores[others], truth)
    interval = _interval([scores["encoder"], scores[others]], truth)
    details |= {
        "by_benign_set": _by_set(scores, sets, poison, benign_sets),
        "recall_at_1_percent_false_positives": {
            name: round(_recall(each, truth), 4) for name, each in scores.items()
        },
        "better_of_the_others": others,
        "provenance_by_benign_untrusted_share": by_share(scores, truth),
        "ships": "on" if interval[0] > 0 else "off",
    }
    checks.append(
        Check(
            id="text_gain", value=round(gain, 4), unit="auc", n=len(truth), interval=interval,
            target="interval above 0, else it ships off",
        )
    )  # fmt: skip
    return checks, details


def by_owasp(texts: Texts) -> NDArray[np.float64] | None:
    """Return 1 for each text that OWASP's Agent Memory Guard does not store as it is.

    As its own benchmark hardens it: strict, and its detector of instructions that are to persist.
    None where it is not installed.
    """
    try:
        from agent_memory_guard.bench.adapter import RememberOutcome
        from agent_memory_guard.bench.adapters import AMGHardenedAdapter
    except ImportError:
        return None
    found = np.zeros(len(texts))
    for place, text in enumerate(texts):
        # One guard each: what it has stored before is no part of what a text says.
        done = AMGHardenedAdapter().remember(f"note.{place}", text, source_class="unknown")
        found[place] = float(done is not RememberOutcome.STORED)
    return found


def by_share(
    scores: dict[str, NDArray[np.float64]], truth: NDArray[np.bool_]
) -> dict[str, dict[str, dict[str, float]]]:
    """Return what provenance tells at shares of benign items that are untrusted as well.

    Poisoned items are untrusted: in the recorded runs every one was saved by a session that had
    read untrusted text.  Provenance alone, and each detector on what is untrusted.
    """
    order = np.random.default_rng(0).permutation(np.flatnonzero(~truth))
    found: dict[str, dict[str, dict[str, float]]] = {}
    for name, share in SHARES.items():
        untrusted = truth.copy()
        untrusted[order[: round(share * len(order))]] = True
        arms = {"provenance": untrusted.astype(np.float64)}
        # Below every untrusted item, whatever a detector says of it.
        arms |= {f"provenance_and_{n}": np.where(untrusted, 1 + s, 0.0) for n, s in scores.items()}
        found[name] = {
            arm: {
                "auc": round(auc(score, truth), 4),
                "recall_at_1_percent_false_positives": round(_recall(score, truth), 4),
            }
            for arm, score in arms.items()
        }
        fires = untrusted & (scores["value_rule"] > 0)
        found[name]["rule_of_detection"] = {
            "recall": round(float(fires[truth].mean()), 4),
            "false_positive_rate": round(float(fires[~truth].mean()), 4),
        }
    return found


def trained(
    sets: dict[str, Texts], tools: dict[str, str], temperature: float = 0.1, seed: int = 0
) -> tuple[Encoder, NDArray[np.float64]]:
    """Return the encoder and the linear model, both trained on AgentDojo alone.

    Args:
        sets: of texts.
        tools: by text the tool that it came from; texts of one tool in runs without an attack share
            provenance and outcome, and make positive pairs.  What only attacked runs have read is
            of low credibility: the negatives.
        temperature: of NT-Xent.
        seed: of what is drawn.
    """
    texts = sets["poison_train"] + sets["benign_train"]
    labels = np.arange(len(texts)) < len(sets["poison_train"])
    rows = hashed(texts)
    how = Settings(temperature=temperature, steps=120, pairs=min(128, len(texts) // 3), seed=seed)
    numbers = {tool: number for number, tool in enumerate(sorted(set(tools.values())))}
    groups = np.array([numbers.get(tools.get(text, ""), -1) for text in texts])
    return train(rows @ projection(), labels, groups, labels, how), logistic(rows, labels)


def tools_of(data: Path) -> dict[str, str]:
    """Return by text of AgentDojo the suite and tool that it came from."""
    return {
        _usable(text): f"{run.labels.get('suite')} {call.tool}"
        for run in read_traces([data / "traces" / DOJO])
        for call in run.calls
        for text in strings_in(call.result)
    }


def _encoded(encoder: Encoder, texts: Texts) -> NDArray[np.float64]:
    return encoder.recognise(hashed(texts) @ projection())


def texts_of_data(data: Path, each: int = EACH) -> dict[str, Texts]:
    """Return at most so many texts of each set, de-duplicated, none of a source in two of them."""
    leong = list(read_traces([data / "traces" / LEONG]))
    dojo = list(read_traces([data / "traces" / DOJO]))
    injected = set(_injections(dojo))
    read = {text for run in dojo if not run.labels.get("attack") for text in _results(run)}
    poison_test = {text for run in leong for text in _poisoned_saves(run)}
    prompts = {prompt.text for run in (*leong, *dojo) for prompt in run.prompts}
    elsewhere = {t for run in read_traces([data / "traces" / BENIGN]) for t in _results(run)}
    elsewhere |= {text for run in leong for text in _results(run)} - poison_test
    attackers = {str(a) for run in leong for a in run.labels.get("attacker_recipients", ())}
    sets = {
        "poison_train": injected,
        "benign_train": read - injected,
        "poison_test": poison_test - injected,
        "benign_locomo": set(_locomo(data / "locomo" / "locomo_dev.json.gz")),
        "benign_results": {t for t in elsewhere if not attackers.intersection(t.split())} - read,
        "benign_prompts": prompts,
    }
    return {name: _some(found, each) for name, found in sets.items()}


def _some(texts: Iterable[str], each: int) -> Texts:
    """Return some texts of usable length, always the same."""
    kept = sorted({_usable(text) for text in texts if len(text.strip()) >= SHORTEST})
    step = max(1, len(kept) // each)
    return kept[::step][:each]


def _usable(text: str) -> str:
    return text.strip()[:LONGEST]


def _injections(runs: list[Run]) -> Iterator[str]:
    """Yield what attacked results say and no benign run's do, line by line."""
    usual = {
        line.strip()
        for run in runs
        if not run.labels.get("attack")
        for text in _results(run)
        for line in text.splitlines()
    }
    for run in runs:
        if run.labels.get("attack"):
            for text in _results(run):
                new = [line for line in text.splitlines() if line.strip() not in usual]
                # What only a tool that was injected into has answered is no text of an attacker.
                if 0 < len(new) <= INJECTED_LINES and len(new) < len(text.splitlines()):
                    yield "\n".join(new)


def _results(run: Run) -> Iterator[str]:
    for call in run.calls:
        yield from strings_in(call.result)


def _poisoned_saves(run: Run) -> Iterator[str]:
    for call in run.calls:
        value = call.args.get("value")
        if call.tool == "memory_save_fact" and isinstance(value, str) and _of(run, value):
            yield value


def _of(run: Run, text: str) -> bool:
    named = run.labels.get("attacker_recipients", ())
    return any(str(one).lower() in text.lower() for one in named)


def _locomo(path: Path) -> Iterator[str]:
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        yield from strings_in(json.load(stream))


def names_outsider(text: str) -> bool:
    """Return whether a text names somebody outside of the internal domains."""

    def outside(destination: Destination) -> bool:
        return destination.host not in INTERNAL

    return next(evident_values(text, outside), None) is not None


def _interval(scores: list[NDArray[np.float64]], truth: NDArray[np.bool_]) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of an AUC, or of the difference of two."""
    chance = np.random.default_rng(0)
    good, bad = np.flatnonzero(~truth), np.flatnonzero(truth)
    found: list[float] = []
    for _ in range(SAMPLES):
        chosen = np.concatenate((chance.choice(good, len(good)), chance.choice(bad, len(bad))))
        values = [auc(each[chosen], truth[chosen]) for each in scores]
        found.append(values[0] - (values[1] if len(values) > 1 else 0.0))
    low, high = np.percentile(found, (2.5, 97.5))
    return round(float(low), 4), round(float(high), 4)


def _recall(scores: NDArray[np.float64], truth: NDArray[np.bool_]) -> float:
    threshold = np.quantile(scores[~truth], 1 - FALSE_ALARMS)
    return float((scores[truth] > threshold).mean())


def _by_set(
    scores: dict[str, NDArray[np.float64]],
    sets: dict[str, Texts],
    poison: Texts,
    names: tuple[str, ...],
) -> dict[str, dict[str, float]]:
    """Return the AUC of each detector against each benign set alone."""
    found: dict[str, dict[str, float]] = {}
    start = len(poison)
    for name in names:
        end = start + len(sets[name])
        chosen = np.concatenate((np.arange(len(poison)), np.arange(start, end)))
        truth = chosen < len(poison)
        found[name] = {
            detector: round(auc(each[chosen], truth), 4) for detector, each in scores.items()
        }
        start = end
    return found
