"""The forensic model: memory poisoning, prompt injection or neither, from the order of calls.

The truth of a session follows from its texts, which the model never sees: a session that mails an
attacker is memory poisoning where a recall had returned the address before, else prompt injection.
"""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedGroupKFold

from guard.core.json_values import strings_in_order
from guard.core.model import Role
from guard.core.trajectory import FEATURES_19, Trajectory
from guard.policy import load_policies
from guard.replay.forensics import KINDS, MODEL
from guard.replay.traces import locate_runs
from guard.settings import policies_directory
from lab.dataset import names_attacker, read_truth, roles_by_time
from lab.models import bounded, softmax_onnx, verified_export
from lab.paper import CITATION, FOLDS, ONTOLOGY, SEED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from guard.core.model import Json
    from guard.replay.traces import Call, Located

FILES: Final = ("leong_dev.jsonl.gz", "benign_memory_dev.jsonl", "agentdojo_dev.jsonl.gz")
OTHER_TOOLS: Final = {"agentdojo_dev.jsonl.gz": "examples/agentdojo.yaml"}
"""Policies that say what the tools of a file do; the paper's names otherwise."""
SEND_COUNT: Final = FEATURES_19.index("send_count")
NEITHER, INJECTION, POISONING = range(len(KINDS))
RESAMPLES: Final = 2000
ACCURACY: Final = ">= 0.9"
"""Target of the accuracy on grouped splits, over sessions."""
SETTINGS: Final[dict[str, Any]] = {"C": 10, "max_iter": 5000, "class_weight": "balanced"}
_LIMITS: Final = (
    "Evidence about the order of calls, for an investigator. A session that recalls what its user "
    "wants and then sends looks like memory poisoning: see `right_by_source` of "
    "benign_memory_dev. Memory that is read without a tool call is not seen. Attacks through "
    "memory come from one corpus and eleven models, and prompt injections mostly from another: "
    "part of the accuracy tells the corpora apart."
)


@dataclass(frozen=True, slots=True)
class Session:
    """One session of a recorded run."""

    roles: tuple[Role, ...]
    kind: int
    source: str
    group: str
    """Sessions of one group are never on both sides of a split: a model, or a user's task."""


def read_sessions(folder: Path) -> Iterator[Session]:
    """Yield the sessions of the recorded runs in a folder."""
    for name in FILES:
        roles: Callable[[str], Role | None] = ONTOLOGY.get
        if name in OTHER_TOOLS:
            policy = load_policies([policies_directory() / OTHER_TOOLS[name]])
            roles = _roles(policy)
        for located in locate_runs([folder / name]):
            yield from _sessions(located, name.partition(".")[0], roles)


def _roles(policy: Any) -> Callable[[str], Role | None]:
    def role(tool: str) -> Role | None:
        mapping = policy.mapping(tool)
        return None if mapping is None else mapping.role

    return role


def _sessions(
    located: Located, source: str, roles: Callable[[str], Role | None]
) -> Iterator[Session]:
    labels, truth = located.run.labels, read_truth(located)
    group = f"{source}|{labels.get('suite', truth.model)}|{labels.get('user_task', '')}"
    injected = frozenset(labels.get("injected_calls", ()))
    for name in dict.fromkeys(call.session for call in located.run.calls):
        calls = roles_by_time(located.run.calls, name, roles)
        kind, recalled = NEITHER, False
        for call, role in calls:
            if role is Role.SEND and (names_attacker(call, truth) or call.i in injected):
                kind = POISONING if recalled else INJECTION
                break
            addresses = truth.attacker_recipients or ()
            recalled |= role is Role.RECALL and _holds(call, addresses)
        yield Session(tuple(role for _, role in calls), kind, source, group)


def _holds(call: Call, addresses: Sequence[str] | frozenset[str]) -> bool:
    text = " ".join(strings_in_order(call.result)).casefold()
    return any(address in text for address in addresses)


class ForensicModel:
    """A multinomial logistic model of bounded features; like a classifier of scikit-learn."""

    def fit(self, rows: np.ndarray, kinds: np.ndarray) -> Self:
        """Fit weights, each class of equal weight."""
        found = LogisticRegression(**SETTINGS).fit(bounded(rows.astype(float)), kinds)
        self.weights, self.bias = found.coef_.T, found.intercept_
        return self

    def predict_proba(self, rows: np.ndarray) -> np.ndarray:
        """Return the probability of each class, shape (rows, classes)."""
        logits = bounded(rows.astype(float)) @ self.weights + self.bias
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        found: np.ndarray = powers / powers.sum(axis=1, keepdims=True)
        return found

    def predict(self, rows: np.ndarray) -> np.ndarray:
        """Return the class of each row; a session without a send is of neither kind."""
        found: np.ndarray = self.predict_proba(rows).argmax(axis=1)
        return np.where(rows[:, SEND_COUNT] > 0, found, NEITHER)

    def onnx(self, name: str) -> bytes:
        """Return the model as ONNX."""
        return softmax_onnx(name, self.weights, self.bias)


def train_forensics(folder: Path) -> tuple[bytes, dict[str, Json]]:
    """Return the verified model as ONNX, and its card with grouped figures."""
    sessions = [*read_sessions(folder)]
    rows = np.array([Trajectory.of(s.roles).features_19() for s in sessions], dtype=np.float32)
    kinds = np.array([session.kind for session in sessions])
    groups = np.array([session.group for session in sessions])
    guessed = np.zeros(len(kinds), dtype=np.int64)
    folds = StratifiedGroupKFold(FOLDS, shuffle=True, random_state=SEED)
    for train, test in folds.split(rows, kinds, groups):
        guessed[test] = ForensicModel().fit(rows[train], kinds[train]).predict(rows[test])
    onnx, difference = verified_export(ForensicModel().fit(rows, kinds), MODEL, rows)
    sources = np.array([session.source for session in sessions])
    measured = _figures(kinds, guessed, groups, sources)
    distinct = np.unique(np.column_stack([rows, kinds]), axis=0, return_index=True)[1]
    measured["distinct_sessions"] = _figures(
        kinds[distinct], guessed[distinct], groups[distinct], sources[distinct]
    )
    digests = [hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in FILES]
    return onnx, {
        "name": MODEL,
        "sha256": hashlib.sha256(onnx).hexdigest(),
        "model": {"type": "multinomial logistic model of x / (1 + x)", **SETTINGS},
        "features": list(FEATURES_19),
        "classes": list(KINDS),
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
