"""Readers of requested actions, compared on recorded prompts: vocabulary and trained classifier.

The truth of a prompt is the set of actions that its solved benign runs called, by the mappings of
their tools.  Both readers get the clear sentences of the prompt.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, LeaveOneGroupOut
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import MultiLabelBinarizer

from guard.policy import load_policies
from guard.policy.vocabulary import read_vocabulary
from guard.provenance.prompt_reader import read_prompt
from guard.replay.reports import Check, Report, machine
from guard.replay.traces import Run, read_traces
from guard.settings import policies_directory
from lab.intent.evaluation import POLICY, SUITE, rate_of
from lab.judged_runs import Tally
from lab.paper import FOLDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from guard.core.policy import Policy

AGENTDOJO: Final = "agentdojo_dev.jsonl.gz"
SPLITS: Final = ("task", "suite")
"""Groups that are left out: a task with its variants, or a suite with its tools."""
FIGURES: Final = ("found", "vouched")
"""Share of the actions that the user asked for, and of attacks' other actions, that are read."""


@dataclass(slots=True)
class Example:
    """A prompt with the actions that its runs called."""

    suite: str
    task: str
    text: str
    """Clear sentences of the prompt."""
    named: frozenset[str]
    """Actions that the vocabulary reads in the prompt."""
    asked: frozenset[str]
    """Actions that at least half of the solved benign runs called."""
    injected: frozenset[tuple[str, str]]
    """Injection tasks, each with an action that it made a run call and that nobody asked for."""


def read_examples(folder: Path) -> list[Example]:
    """Return the prompts of the recorded suites that have a solved benign run.

    Raises:
        GuardError: a policy or a trace is unusable, or missing.
    """
    found: list[Example] = []
    for name, path in (
        (SUITE, POLICY),
        (AGENTDOJO, policies_directory() / "examples" / "agentdojo.yaml"),
    ):
        policy = load_policies([path])
        by_prompt: defaultdict[tuple[str, str, str], list[Run]] = defaultdict(list)
        for run in read_traces([folder / name]):
            text = "\n".join(prompt.text for prompt in run.prompts)
            by_prompt[run.labels["suite"], run.labels["user_task"], text].append(run)
        for (suite, task, text), runs in by_prompt.items():
            found += _examples(suite, f"{suite}/{task}", text, runs, policy)
    return found


def _examples(
    suite: str, task: str, text: str, runs: Sequence[Run], policy: Policy
) -> Iterator[Example]:
    """Yield the example of a prompt, if one of its benign runs is solved."""
    benign = [run for run in runs if not run.labels["attack"] and run.labels.get("utility", True)]
    if benign:
        called = Counter(
            action for run in benign for action in {a for _, a in _actions(run, policy)}
        )
        asked = frozenset(action for action, count in called.items() if 2 * count >= len(benign))
        injected = frozenset(
            (run.labels["injection_task"], action)
            for run in runs
            for index, action in _actions(run, policy)
            if index in run.labels.get("injected_calls", ()) and action not in asked
        )
        words, prompt = read_vocabulary(()), read_prompt(text)
        refused = {action for sentence in prompt.negated for action in words(sentence)}
        named = {action for sentence in prompt.clear for action in words(sentence)} - refused
        clear = "\n".join(prompt.clear)
        yield Example(suite, task, clear, frozenset(named), asked, injected)


def _actions(run: Run, policy: Policy) -> Iterator[tuple[int, str]]:
    for call in run.calls:
        mapping = policy.mapping(call.tool)
        if mapping is not None and mapping.action is not None:
            yield call.i, mapping.action.name


def left_out_scores(examples: Sequence[Example], split: str) -> list[dict[str, float]]:
    """Return the probability of each action per prompt, by models fitted without its group.

    An action that no fitted prompt asks for has none.
    """
    texts = np.array([example.text for example in examples], dtype=object)
    groups = [getattr(example, split) for example in examples]
    folds = LeaveOneGroupOut() if split == "suite" else GroupKFold(FOLDS)
    found: list[dict[str, float]] = [{} for _ in examples]
    for fitted, left_out in folds.split(texts, groups=groups):
        labels = MultiLabelBinarizer()
        wanted = labels.fit_transform([examples[index].asked for index in fitted])
        model = make_pipeline(
            make_union(
                TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True),
                TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True),
            ),
            OneVsRestClassifier(LogisticRegression(C=10, class_weight="balanced", max_iter=1000)),
        ).fit(texts[fitted], wanted)
        for index, row in zip(left_out, model.predict_proba(texts[left_out]), strict=True):
            found[index] = dict(zip(labels.classes_, row.tolist(), strict=True))
    return found


def figures(examples: Sequence[Example], read: Sequence[frozenset[str]]) -> tuple[Tally, Tally]:
    """Return the counts of the two figures for the actions that a reader takes as requested."""
    found, vouched = Tally(wanted=True), Tally(wanted=False)
    for example, actions in zip(examples, read, strict=True):
        for action in sorted(example.asked):
            found.add(f"{example.task} {action}", example.task, hit=action in actions)
        for injection, action in sorted(example.injected):
            name = f"{example.task} {injection} {action}"
            vouched.add(name, example.task, hit=action in actions)
    return found, vouched


def threshold_for(
    examples: Sequence[Example], scores: Sequence[dict[str, float]], allowed: int
) -> float:
    """Return the lowest threshold at which not more than ``allowed`` attacks are vouched for."""
    pairs = zip(examples, scores, strict=True)
    ranks = sorted((row.get(a, 0.0) for one, row in pairs for _, a in one.injected), reverse=True)
    return ranks[allowed] if allowed < len(ranks) else 0.0


def compare(examples: Sequence[Example]) -> Report:
    """Return the report on both readers.

    ``matched`` is the classifier at the threshold, chosen in hindsight, at which it vouches for no
    more attacks than the vocabulary: that flatters the classifier.
    """
    checks: list[Check] = []
    details: dict[str, Any] = {"prompts": Counter(example.suite for example in examples)}

    def add(name: str, read: Sequence[frozenset[str]]) -> tuple[Tally, Tally]:
        tallies = figures(examples, read)
        for figure, tally in zip(FIGURES, tallies, strict=True):
            checks.append(rate_of(tally, f"{name}_{figure}", None))
            details[checks[-1].id] = tally.detail()
        return tallies

    found, vouched = add("vocabulary", [example.named for example in examples])
    for split in SPLITS:
        scores = left_out_scores(examples, split)
        matched = threshold_for(examples, scores, vouched.hits)
        for name, threshold in (("classifier", 0.5), ("matched", matched)):
            read = [frozenset(a for a, p in row.items() if p > threshold) for row in scores]
            better = add(f"{name}_without_{split}", read)[0].hits > found.hits
    details["ships"] = "classifier" if better else "vocabulary"
    return Report(name="actions", machine=machine(), checks=checks, details=details)
