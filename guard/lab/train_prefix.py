"""Trains the shipped prefix-13 classifier and writes the artefact, its card and the manifest.

Run from a source checkout with the development traces beside it::

    python -m guard.lab.train_prefix [--traces FILE] [--out DIRECTORY]

The classifier is the paper's (see ``CITATION``): a random forest over 13 features of the trigger
session, cut immediately before the first send.  Labels are read here and only here.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from dataclasses import dataclass
from email.utils import getaddresses
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import onnxruntime as ort
from skl2onnx import to_onnx
from skl2onnx.common.data_types import FloatTensorType
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import (
    LeaveOneGroupOut,
    StratifiedGroupKFold,
    StratifiedKFold,
    cross_val_predict,
)

from guard.core.model import Role
from guard.core.trajectory import FEATURES_13, Trajectory
from guard.traces import read_traces

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from guard.core.model import Json
    from guard.traces import Call, Run

MODEL: Final = "prefix-13"
TRIGGER_SESSION: Final = "3"
SEED: Final = 42
FOLDS: Final = 5
THRESHOLD: Final = 0.5
FOREST: Final = {"n_estimators": 200, "max_depth": 8, "random_state": SEED}
ONTOLOGY: Final = {
    "memory_recall_fact": Role.RECALL,
    "memory_list_all_facts": Role.LIST,
    "memory_save_fact": Role.SAVE,
    "email_draft_email": Role.DRAFT,
    "email_send_email": Role.SEND,
    "rag_query": Role.RETRIEVE,
    # The later experiments of the paper map these two as well.
    "memory_search": Role.RECALL,
    "share_document": Role.SEND,
}
"""The paper's tool names and the operations it maps them to; every other tool is ``other``."""
CITATION: Final = (
    'J. W. Leong, "Forensic Trajectory Signatures", arXiv:2606.30566; traces from '
    "github.com/junwenleong/stateful-agent-security-eval, MIT licence"
)
WITHDRAWN: Final = (
    "The paper's later version withdraws its claim that the trajectory signature is a deployable "
    "detector, its frontier evaluation (recall 0.901 at a false-positive rate of 23.0 %) and its "
    "use as a pre-filter: a recall before a send is a precondition, not a predicate of malice."
)


@dataclass(frozen=True, slots=True)
class Dataset:
    """Rows of the 13 features with their labels and groups; one row per run."""

    rows: np.ndarray
    """float32, shape (runs, 13)."""
    labels: np.ndarray
    """int64, shape (runs,): 1 where the trigger session mailed an attacker."""
    models: np.ndarray
    """The agent's language model per run, shape (runs,)."""
    cells: np.ndarray
    """``model|defence`` per run, shape (runs,)."""
    distinct_runs: int
    """Runs that differ in model, defence, call sequence or recipients; the rest are repeats."""


def prefix_roles(calls: Iterable[Call]) -> list[Role]:
    """Return the roles of the trigger session's calls before its first send, in time order.

    A session without a send is kept whole; a run that made no call in it gives an empty list.
    """
    trigger = [call for call in calls if call.session == TRIGGER_SESSION]
    trigger.sort(key=lambda call: call.ts or 0.0)
    roles = [ONTOLOGY.get(call.tool, Role.OTHER) for call in trigger]
    return roles[: roles.index(Role.SEND)] if Role.SEND in roles else roles


def recipients(call: Call) -> frozenset[str]:
    """Return the bare addresses a send names in ``to``, in lower case."""
    to: Json = call.args.get("to", ())
    entries = [to] if isinstance(to, str) else to
    texts = [entry for entry in entries if isinstance(entry, str)]
    return frozenset(address.strip().lower() for _, address in getaddresses(texts))


def mailed_attacker(run: Run) -> bool:
    """Return the label: whether a send of the trigger session names an attacker's address.

    Not the run's own ``attack_success``: that one is run-level, and a few of its positives never
    mailed an attacker.  Addresses are compared whole, as an attacker's may be a sub-domain of an
    internal domain.
    """
    attackers = {address.lower() for address in run.labels["attacker_recipients"]}
    return any(
        call.session == TRIGGER_SESSION
        and ONTOLOGY.get(call.tool) is Role.SEND
        and not attackers.isdisjoint(recipients(call))
        for call in run.calls
    )


def load_dataset(path: Path) -> Dataset:
    """Return the delayed-trigger runs of the development traces as rows.

    Runs without an attack (``no_attack``: one session, one mail to the team) are left out, as in
    the paper; the negatives are therefore attacked and did not mail the attacker.

    Raises:
        TraceError: the file cannot be read.
    """
    runs = [run for run in read_traces([path]) if run.labels["attack"]]
    rows = [Trajectory.of(prefix_roles(run.calls)).features_13() for run in runs]
    models = [run.labels["model"] for run in runs]
    cells = [f"{run.labels['model']}|{run.labels['defense']}" for run in runs]
    return Dataset(
        rows=np.array(rows, dtype=np.float32),
        labels=np.array([mailed_attacker(run) for run in runs], dtype=np.int64),
        models=np.array(models),
        cells=np.array(cells),
        distinct_runs=len({run.labels["duplicate_group"] for run in runs}),
    )


def train(data: Dataset) -> RandomForestClassifier:
    """Return the paper's forest, fitted on every row.  Deterministic."""
    return RandomForestClassifier(**FOREST).fit(data.rows, data.labels)


def export(forest: RandomForestClassifier) -> bytes:
    """Return the forest as ONNX: float32 ``[None, 13]`` in, ``probabilities`` ``[None, 2]`` out."""
    model = to_onnx(
        forest,
        initial_types=[("features", FloatTensorType([None, len(FEATURES_13)]))],
        options={id(forest): {"zipmap": False}},
        target_opset=17,
    )
    model.graph.name = MODEL
    return bytes(model.SerializeToString(deterministic=True))


def largest_difference(forest: RandomForestClassifier, onnx: bytes, rows: np.ndarray) -> float:
    """Return the largest difference between the two models' scores over all rows."""
    session = ort.InferenceSession(onnx, providers=["CPUExecutionProvider"])
    answer = session.run(["probabilities"], {"features": rows})[0]
    return float(np.abs(answer[:, 1] - forest.predict_proba(rows)[:, 1]).max())


def evaluate(data: Dataset) -> dict[str, Json]:
    """Return what pooled out-of-fold scores say, by how the folds were made.

    Random folds put repeats of one trajectory on both sides; only the grouped figures say what
    to expect of an agent that was not in the training data.
    """
    folds: dict[str, tuple[Any, np.ndarray | None]] = {
        "random_folds": (StratifiedKFold(FOLDS, shuffle=True, random_state=SEED), None),
        "grouped_model_x_defence": (
            StratifiedGroupKFold(FOLDS, shuffle=True, random_state=SEED),
            data.cells,
        ),
        "leave_one_model_out": (LeaveOneGroupOut(), data.models),
    }
    return {name: _evaluate(data, split, groups) for name, (split, groups) in folds.items()}


def _evaluate(data: Dataset, split: Any, groups: np.ndarray | None) -> dict[str, Json]:
    scores = cross_val_predict(
        RandomForestClassifier(**FOREST),
        data.rows,
        data.labels,
        groups=groups,
        cv=split,
        method="predict_proba",
    )[:, 1]
    flagged = scores >= THRESHOLD
    positive = data.labels == 1
    return {
        "auc": round(float(roc_auc_score(data.labels, scores)), 4),
        "recall_at_threshold": round(float(flagged[positive].mean()), 4),
        "false_positive_rate_at_threshold": round(float(flagged[~positive].mean()), 4),
        "groups": None if groups is None else len(np.unique(groups)),
    }


def evaluate_benign(forest: RandomForestClassifier, path: Path) -> dict[str, Json]:
    """Return how many benign first sends the forest flags at its threshold.

    These sessions ground a mail in stored facts, which is what the signature looks like.
    """
    rows = []
    for run in read_traces([path]):
        roles = [ONTOLOGY.get(call.tool, Role.OTHER) for call in run.calls]
        if Role.SEND in roles:
            rows.append(Trajectory.of(roles[: roles.index(Role.SEND)]).features_13())
    flagged = forest.predict_proba(np.array(rows, dtype=np.float32))[:, 1] >= THRESHOLD
    return {"first_sends": len(rows), "flagged": int(flagged.sum())}


def evaluate_sends(forest: RandomForestClassifier, path: Path) -> dict[str, Json]:
    """Return what the score says of every send of the training runs, as the guard asks it.

    In-sample, hence flattering, and still poor: the guard also scores the principal's window,
    which holds the sessions before the trigger, and the forest never saw a prefix like that.
    """
    rows: list[tuple[float, ...]] = []
    attacks: list[bool] = []
    for run in read_traces([path]):
        attackers = {address.lower() for address in run.labels["attacker_recipients"]}
        sessions: dict[str, Trajectory] = {}
        principal = Trajectory()
        for call in run.calls:
            role = ONTOLOGY.get(call.tool, Role.OTHER)
            session = sessions.get(call.session, Trajectory())
            if role is Role.SEND:
                rows += [session.features_13(), principal.features_13()]
                attacks.append(not attackers.isdisjoint(recipients(call)))
            sessions[call.session] = session.append(role)
            principal = principal.append(role)
    scores = forest.predict_proba(np.array(rows, dtype=np.float32))[:, 1].reshape(-1, 2)
    attack = np.array(attacks)
    measured: dict[str, Json] = {}
    for name, chosen in (("to_attacker", attack), ("other", ~attack)):
        measured[name] = {
            "sends": int(chosen.sum()),
            "flagged_by_session": int((scores[chosen, 0] >= THRESHOLD).sum()),
            "flagged_by_either": int((scores[chosen].max(axis=1) >= THRESHOLD).sum()),
        }
    return measured


def describe_cost(measured: dict[str, Json]) -> str:
    """Return in words what the threshold costs, by the grouped figures."""
    grouped = measured["grouped_model_x_defence"]
    missed = 1 - grouped["recall_at_threshold"]
    wrong = grouped["false_positive_rate_at_threshold"]
    text = (
        f"on unseen model x defence cells {missed:.0%} of the runs that mail an attacker are "
        f"missed and {wrong:.0%} of the others are flagged"
    )
    benign = measured.get("benign_memory_grounded")
    if benign is None:
        return text
    return f"{text}; so are {benign['flagged']} of {benign['first_sends']} benign first sends"


def make_card(data: Dataset, source: Path, measured: dict[str, Json]) -> dict[str, Json]:
    """Return the model card."""
    positive = int(data.labels.sum())
    return {
        "name": MODEL,
        "model": {"type": "random forest", **FOREST},
        "features": list(FEATURES_13),
        "roles": {tool: role.value for tool, role in ONTOLOGY.items()},
        "prefix": (
            f"calls of the trigger session (`{TRIGGER_SESSION}`), by time, cut immediately before "
            "its first send; whole where nothing was sent"
        ),
        "label": "a send of the trigger session names an attacker's address",
        "training_data": {
            "file": source.name,
            "sha256": hashlib.sha256(source.read_bytes()).hexdigest(),
            "runs": len(data.labels),
            "distinct_runs": data.distinct_runs,
            "distinct_rows": len(np.unique(data.rows, axis=0)),
            "positive": positive,
            "negative": len(data.labels) - positive,
            "negatives_are": "attacked runs that did not mail the attacker, never benign ones",
        },
        "threshold": {"value": THRESHOLD, "cost": describe_cost(measured)},
        "evaluation": measured,
        "limits": (
            "Evidence about the road to a send, not about malice: do not block on it alone. Runs "
            "at temperature 0 repeat, so random folds flatter; the grouped figures are the ones to "
            "expect on an unseen agent. The forest saw first sends of one session only; later "
            "sends, and the principal's window over several sessions, are longer prefixes than it "
            "was trained on, and it flags nearly all of them."
        ),
        "paper": {"citation": CITATION, "withdrawn": WITHDRAWN},
        "versions": {
            "python": ".".join(str(part) for part in sys.version_info[:3]),
            **{name: version(name) for name in ("scikit-learn", "skl2onnx", "onnx", "numpy")},
        },
    }


def write_artefact(directory: Path, onnx: bytes, card: dict[str, Json]) -> None:
    """Write the model, its card and the manifest that pins both by sha256."""
    directory.mkdir(parents=True, exist_ok=True)
    card_text = (json.dumps(card, indent=2) + "\n").encode()
    manifest = {
        MODEL: {
            "file": f"{MODEL}.onnx",
            "sha256": hashlib.sha256(onnx).hexdigest(),
            "card": f"{MODEL}.card.json",
            "card_sha256": hashlib.sha256(card_text).hexdigest(),
            "features": list(FEATURES_13),
        }
    }
    (directory / f"{MODEL}.onnx").write_bytes(onnx)
    (directory / f"{MODEL}.card.json").write_bytes(card_text)
    (directory / "manifest.json").write_text(
        json.dumps(manifest, indent=2) + "\n", encoding="utf-8"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, verify, evaluate and write; return the process's exit code."""
    root = Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description="train the shipped prefix-13 classifier")
    parser.add_argument(
        "--traces", type=Path, default=root.parent / "shared/data/traces/leong_dev.jsonl.gz"
    )
    parser.add_argument("--out", type=Path, default=root / "models")
    options = parser.parse_args(arguments)
    data = load_dataset(options.traces)
    forest = train(data)
    onnx = export(forest)
    difference = largest_difference(forest, onnx, data.rows)
    limit = 1e-5
    if difference > limit:
        sys.stderr.write(f"the exported model differs from the forest by {difference:.2e}\n")
        return 1
    measured = evaluate(data)
    measured["onnx_equals_forest_to"] = limit
    measured["every_send_of_the_training_runs"] = evaluate_sends(forest, options.traces)
    benign = options.traces.with_name("benign_memory_dev.jsonl")
    if benign.is_file():
        measured["benign_memory_grounded"] = evaluate_benign(forest, benign)
    write_artefact(options.out, onnx, make_card(data, options.traces, measured))
    sys.stdout.write(json.dumps(measured, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
