"""The forensic model: memory poisoning, prompt injection or neither, from the order of calls.

The truth of a session follows from its texts, which the model never sees: a session that mails an
attacker is memory poisoning where a recall had returned the address before, else prompt injection.
"""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedGroupKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from guard.core.json_values import strings_in_order
from guard.core.model import Json, Role
from guard.core.trajectory import FEATURES_19, Trajectory
from guard.replay.forensics import KINDS, MODEL, UNDECIDED, verdict_of
from guard.replay.traces import Call, locate_runs
from guard.settings import policies_directory
from lab.dataset import Truth, names_attacker, read_truth, roles_by_time, roles_of
from lab.judged_runs import wilson
from lab.models import bounded, softmax_onnx, verified_export
from lab.paper import CITATION, FOLDS, SEED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path


FILES: Final = ("leong_dev.jsonl.gz", "benign_memory_dev.jsonl", "agentdojo_dev.jsonl.gz")
OTHER_TOOLS: Final = {"agentdojo_dev.jsonl.gz": "examples/agentdojo.yaml"}
"""Policies that say what the tools of a file do; the paper's names otherwise."""
BENIGN: Final = "benign_memory_dev"
SEND_COUNT: Final = FEATURES_19.index("send_count")
VERDICTS: Final = (*KINDS, UNDECIDED)
NEITHER, INJECTION, POISONING, UNNAMED = range(len(VERDICTS))
RESAMPLES: Final = 2000
ACCURACY: Final = ">= 0.9"
"""Target of the accuracy on grouped splits, over sessions."""
WRONGED: Final = 0.05
"""Largest share of any file's sessions of another kind that a verdict may take for its own."""
LEAST: Final = 20
"""Sessions of one file and kind below which they set no threshold."""
NEVER: Final = 1.01
_STEPS: Final = np.concatenate([np.arange(0.4, 0.95, 0.02), np.arange(0.95, 1.001, 0.005)])
SETTINGS: Final[dict[str, Any]] = {"C": 10, "max_iter": 5000, "class_weight": "balanced"}
_LIMITS: Final = (
    "Evidence about the order of calls, for an investigator. A session that recalls or reads what "
    "its user wants and then sends has the calls of an attack, so most sessions with a send are "
    "undecided: see `verdicts`. Memory that is read without a tool call is not seen. Attacks "
    "through memory come from one corpus and eleven models, and prompt injections mostly from "
    "another: part of the accuracy tells the corpora apart. The kind of an incident is easy: the "
    "label of poisoning demands a recall, and no recorded injection has one."
)


def read_sessions(folder: Path) -> Iterator[tuple[Sequence[float], int, str, str]]:
    """Yield features, kind, group and source of each recorded session in a folder.

    A group is a model, or a user's task: its sessions are never on both sides of a split.
    """
    for name in FILES:
        tools = policies_directory() / OTHER_TOOLS[name] if name in OTHER_TOOLS else None
        roles = roles_of(tools)
        for located in locate_runs([folder / name]):
            labels, truth = located.run.labels, read_truth(located)
            group = f"{labels.get('suite', truth.model)}|{labels.get('user_task', '')}"
            for session in dict.fromkeys(call.session for call in located.run.calls):
                calls = roles_by_time(located.run.calls, session, roles)
                row = Trajectory.of(role for _, role in calls).features_19()
                yield row, _kind(calls, labels, truth), group, name.partition(".")[0]


def _kind(calls: Iterable[tuple[Call, Role]], labels: Mapping[str, Any], truth: Truth) -> int:
    recalled, addresses = False, truth.attacker_recipients or ()
    for call, role in calls:
        if role is Role.SEND and (
            names_attacker(call, truth) or call.i in labels.get("injected_calls", ())
        ):
            return POISONING if recalled else INJECTION
        text = " ".join(strings_in_order(call.result)).casefold()
        recalled |= role is Role.RECALL and any(address in text for address in addresses)
    return NEITHER


def unfitted() -> Any:
    """Return a multinomial logistic model of bounded features."""
    return make_pipeline(FunctionTransformer(bounded), LogisticRegression(**SETTINGS))


@dataclass(frozen=True, slots=True)
class Sessions:
    """Sessions as arrays, one entry each."""

    rows: np.ndarray
    """Features, shape (sessions, 19)."""
    kinds: np.ndarray
    groups: np.ndarray
    sources: np.ndarray

    @classmethod
    def read(cls, folder: Path) -> Sessions:
        """Return the sessions of the recorded runs in a folder."""
        return cls(*map(np.array, zip(*read_sessions(folder), strict=True)))

    def __getitem__(self, chosen: np.ndarray) -> Sessions:
        """Return some of them."""
        return Sessions(
            self.rows[chosen], self.kinds[chosen], self.groups[chosen], self.sources[chosen]
        )

    def folds(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the places of both sides of each split."""
        split = StratifiedGroupKFold(FOLDS, shuffle=True, random_state=SEED)
        yield from split.split(self.rows, self.kinds, self.groups)

    def scores_of_unseen(self) -> np.ndarray:
        """Return probabilities by models that were fitted on other groups."""
        found: np.ndarray = cross_val_predict(
            unfitted(), self.rows, self.kinds, cv=[*self.folds()], method="predict_proba"
        )
        return found

    def thresholds(self) -> np.ndarray:
        """Return the least probability of each kind with which a session is called that.

        Below it a verdict wrongs more than :data:`WRONGED` of one file's sessions with a send:
        an incident is taken for none, or a session without one for an incident.
        """
        scores, found = self.scores_of_unseen(), np.full(len(KINDS), NEVER)
        first = verdicts(self.rows, scores, np.zeros(len(KINDS)))
        sends = self.rows[:, SEND_COUNT] > 0
        for kind in range(len(KINDS)):
            others = [n for n in range(len(KINDS)) if (n == NEITHER) != (kind == NEITHER)]
            wronged = [
                chosen
                for source in np.unique(self.sources)
                for other in others
                if (chosen := sends & (self.sources == source) & (self.kinds == other)).sum()
                >= LEAST
            ]
            for step in _STEPS:
                said = (first == kind) & (scores[:, kind] >= step)
                if max(float(said[chosen].mean()) for chosen in wronged) <= WRONGED:
                    found[kind] = step
                    break
        return found


def verdicts(rows: np.ndarray, scores: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Return the place of each session's verdict in :data:`VERDICTS`."""
    least = dict(zip(KINDS, thresholds, strict=True))
    said = (verdict_of(*one, least) for one in zip(rows, scores, strict=True))
    return np.array([VERDICTS.index(one) for one in said])


def train_forensics(folder: Path) -> tuple[bytes, dict[str, Json]]:
    """Return the verified model as ONNX, and its card with grouped figures."""
    sessions = Sessions.read(folder)
    rows, kinds, groups, sources = sessions.rows, sessions.kinds, sessions.groups, sessions.sources
    scores = sessions.scores_of_unseen()
    guessed = np.where(rows[:, SEND_COUNT] > 0, scores.argmax(axis=1), NEITHER)
    said = np.zeros_like(guessed)
    for train, test in sessions.folds():
        said[test] = verdicts(rows[test], scores[test], sessions[train].thresholds())
    thresholds = sessions.thresholds()
    model = unfitted().fit(rows, kinds)
    exported = softmax_onnx(MODEL, model[-1].coef_.T, model[-1].intercept_)
    onnx, difference = verified_export(model, exported, MODEL, rows)
    measured = _figures(kinds, guessed, groups, sources)
    distinct = np.unique(np.column_stack([rows, kinds]), axis=0, return_index=True)[1]
    measured["distinct_sessions"] = _figures(
        kinds[distinct], guessed[distinct], groups[distinct], sources[distinct]
    )
    measured["verdicts"] = _verdict_figures(sessions, scores, said)
    digests = [hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in FILES]
    return onnx, {
        "name": MODEL,
        "sha256": hashlib.sha256(onnx).hexdigest(),
        "model": {"type": "multinomial logistic model of x / (1 + x)", **SETTINGS},
        "features": list(FEATURES_19),
        "classes": list(KINDS),
        "thresholds": {
            kind: round(float(one), 3) for kind, one in zip(KINDS, thresholds, strict=True)
        },
        "session": "all calls of one session, by time; one without a send is of neither kind",
        "label": {
            "memory_poisoning": "it mails an attacker whose address a recall had returned before",
            "prompt_injection": "it mails an attacker otherwise, or makes an injected send",
        },
        "training_data": {
            "files": [
                {"file": name, "sha256": digest}
                for name, digest in zip(FILES, digests, strict=True)
            ],
            "sessions": {kind: int((kinds == n).sum()) for n, kind in enumerate(KINDS)},
            "distinct_sessions": len(distinct),
            "groups": len(np.unique(groups)),
        },
        "evaluation": {"grouped_folds": measured, "onnx_max_difference": difference},
        "limits": _LIMITS,
        "paper": {"citation": CITATION},
        "versions": {
            "python": ".".join(str(part) for part in sys.version_info[:3]),
            **{name: version(name) for name in ("scikit-learn", "onnx", "numpy")},
        },
    }


def _verdict_figures(sessions: Sessions, scores: np.ndarray, said: np.ndarray) -> dict[str, Json]:
    """Return what is decided of sessions with a send, by thresholds of the training folds."""
    kinds, sources = sessions.kinds, sessions.sources
    sends, names = sessions.rows[:, SEND_COUNT] > 0, VERDICTS

    def row(chosen: np.ndarray) -> dict[str, Json]:
        return {name: int((said[chosen] == n).sum()) for n, name in enumerate(names)}

    def share(hits: np.ndarray, chosen: np.ndarray) -> dict[str, Json]:
        count, total = int((hits & chosen).sum()), int(chosen.sum())
        low, high = wilson(count, total)
        return {"count": count, "of": total, "interval": [round(low, 4), round(high, 4)]}

    benign, incident = sends & (kinds == NEITHER), sends & (kinds != NEITHER)
    accused, decided = (said == INJECTION) | (said == POISONING), said != UNNAMED
    is_kind = np.where(scores[:, INJECTION] >= scores[:, POISONING], INJECTION, POISONING) == kinds
    memory = benign & (sources == BENIGN)
    known, new = sessions[sources != BENIGN], sessions[memory]
    fitted = unfitted().fit(known.rows, known.kinds).predict_proba(new.rows)
    unseen = verdicts(new.rows, fitted, known.thresholds())
    wrong = (unseen == INJECTION) | (unseen == POISONING)
    return {
        "of": "sessions with a send; the others are of neither kind",
        "confusion": {name: row(sends & (kinds == n)) for n, name in enumerate(KINDS)},
        "benign_by_source": {str(n): row(benign & (sources == n)) for n in np.unique(sources)},
        "benign_accused": share(accused, benign),
        "benign_memory_accused": share(accused, memory),
        "benign_memory_accused_if_unseen_file": share(wrong, np.ones_like(wrong)),
        "incidents_cleared": share(said == NEITHER, incident),
        "decided": share(decided, sends),
        "right_where_decided": share(said == kinds, sends & decided),
        "kind_of_incidents": share(is_kind, incident),
    }


def _figures(
    kinds: np.ndarray, guessed: np.ndarray, groups: np.ndarray, sources: np.ndarray
) -> dict[str, Json]:
    """Return accuracy with its interval over groups, recall by kind, and accuracy by source."""
    right = guessed == kinds
    by_group = [right[groups == group] for group in np.unique(groups)]
    draw = np.random.default_rng(SEED)
    drawn = (draw.integers(0, len(by_group), len(by_group)) for _ in range(RESAMPLES))
    means = [float(np.concatenate([by_group[i] for i in chosen]).mean()) for chosen in drawn]
    return {
        "accuracy": round(float(right.mean()), 4),
        "accuracy_interval_over_groups": [
            round(float(value), 4) for value in np.quantile(means, [0.025, 0.975])
        ],
        "recall": {
            kind: round(float(right[kinds == number].mean()), 4)
            for number, kind in enumerate(KINDS)
        },
        "right_by_source": {
            str(name): round(float(right[sources == name].mean()), 4) for name in np.unique(sources)
        },
        "confusion": [
            [int(((kinds == truth) & (guessed == guess)).sum()) for guess in range(len(KINDS))]
            for truth in range(len(KINDS))
        ],
        "sessions": len(kinds),
        "largest_kind": round(float(np.bincount(kinds).max() / len(kinds)), 4),
    }
