"""Texts of recorded runs and conversations by source: own writes, and poisoned saves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guard.core.json_values import strings_in
from guard.replay.traces import Run, read_traces
from lab.selection.corpora import read_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


Texts = list[str]
LEONG: Final = "leong_dev.jsonl.gz"
DOJO: Final = "agentdojo_dev.jsonl.gz"
BENIGN: Final = "benign_memory_dev.jsonl"
SHORTEST: Final = 8
LONGEST: Final = 2000
EACH: Final = 1500
"""Texts of one set, at most."""
SHARES: Final = {"0": 0.0, "1/3": 1 / 3, "1": 1.0}
"""Shares of benign items whose session had read untrusted text: provenance depends on them."""
INJECTED_LINES: Final = 40


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
        "poison_test": poison_test - injected,
        "benign_locomo": set(strings_in(read_json(data / "locomo" / "locomo_dev.json.gz"))),
        "benign_results": {t for t in elsewhere if not attackers.intersection(t.split())} - read,
        "benign_prompts": prompts,
    }
    return {name: _some(found, each) for name, found in sets.items()}


def _some(texts: Iterable[str], each: int) -> Texts:
    """Return some texts of usable length, always the same."""
    kept = sorted({text.strip()[:LONGEST] for text in texts if len(text.strip()) >= SHORTEST})
    return kept[:: max(1, len(kept) // each)][:each]


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
    return (text for call in run.calls for text in strings_in(call.result))


def _poisoned_saves(run: Run) -> Iterator[str]:
    named = [str(one).lower() for one in run.labels.get("attacker_recipients", ())]
    saved = (call.args.get("value") for call in run.calls if call.tool == "memory_save_fact")
    texts = (value for value in saved if isinstance(value, str))
    return (text for text in texts if any(one in text.lower() for one in named))
