"""Training one artefact: fit, export, verify, evaluate, describe.

The paper scores one trigger session per run.  The guard scores every send, and the principal's
window as well, which holds the sessions before; the card has the figures of that use too.
"""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from guard.core.errors import ModelError
from guard.core.model import Json, Role
from guard.core.trajectory import Trajectory, without_recalls
from guard.inference.onnx import MANIFEST
from lab import signature
from lab.dataset import Dataset, Labelling, counts, trap_notes
from lab.intervals import bca_interval, rounded
from lab.models import SETTINGS, make, scores, verified_export
from lab.paper import (
    CITATION,
    RESAMPLES,
    THRESHOLD,
    TRIGGER_SESSION,
    WITHDRAWN,
    FeatureSet,
)
from lab.protocols import (
    NotMeasuredError,
    Protocol,
    figures,
    out_of_fold,
    require_two_classes,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


def score_sends(
    model: Any, data: Dataset, *, signature: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores of every send and whether it names an attacker.

    Scores have shape (sends, 2): by the session and by the principal's window.  ``model`` takes
    the 13 prefix features; with ``signature`` recalls count before a send to the outside alone.
    """
    rows: list[tuple[float, ...]] = []
    attacks: list[bool] = []
    for example in data.examples:
        sessions: dict[str, Trajectory] = {}
        principal = Trajectory()
        for step in example.steps:
            session = sessions.get(step.session, Trajectory())
            if step.role is Role.SEND:
                pair = [session.features_13(), principal.features_13()]
                rows += map(without_recalls, pair) if step.inward and signature else pair
                attacks.append(step.to_attacker)
            sessions[step.session] = session.append(step.role)
            principal = principal.append(step.role)
    if not rows:
        return np.zeros((0, 2)), np.zeros(0, dtype=bool)
    answer = scores(model, np.array(rows, dtype=np.float32)).reshape(-1, 2)
    return answer, np.array(attacks, dtype=bool)


def describe_sends(scored: np.ndarray, attack: np.ndarray, threshold: float) -> dict[str, Json]:
    """Return how many sends are flagged, those to an attacker apart from the others."""
    return {
        name: {
            "sends": int(chosen.sum()),
            "flagged_by_session": int((scored[chosen, 0] >= threshold).sum()),
            "flagged_by_either": int((scored[chosen].max(axis=1) >= threshold).sum()),
        }
        for name, chosen in (("to_attacker", attack), ("other", ~attack))
    }


def flagged_first_sends(
    model: Any, data: Dataset, threshold: float, features: FeatureSet
) -> dict[str, Json]:
    """Return how many first sends a model of the 13 features flags, one per run that sends."""
    sending = np.array([Role.SEND in example.trigger for example in data.examples], dtype=bool)
    chosen = data.where(sending)
    if not len(chosen):
        return {"first_sends": 0, "flagged": 0}
    flagged = scores(model, chosen.rows(features)) >= threshold
    return {"first_sends": len(chosen), "flagged": int(flagged.sum())}


_LABELS = {
    Labelling.MAILED: "a send of the trigger session names an attacker's address",
    Labelling.SUCCESS: "the run's own label: the attack succeeded, in whichever session",
}
_LIMITS = (
    "Evidence about the road to a send, not about malice: do not block on it alone. Runs at "
    "temperature 0 repeat, so random folds flatter; the grouped figures are the ones to expect on "
    "an unseen agent. The model saw first sends of one session only; later sends, and the "
    "principal's window over several sessions, are longer prefixes than it was trained on, and it "
    "flags nearly all of them."
)


_SIGNATURE = (
    "Recalls count before a send that leaves the house, and raise the score: before a send whose "
    "recipients are all internal the features of recalls are 0. The earlier forest of this name "
    "scored a recall and a send at 0.25, and a benign recall before an internal send at 0.60."
)


@dataclass(frozen=True, slots=True)
class Artefact:
    """A trained model, its data and settings."""

    name: str
    onnx: bytes
    features: FeatureSet
    labelling: Labelling
    session: str
    threshold: float


def describe_cost(measured: dict[str, Json]) -> str:
    """Return in words what the threshold costs, by the grouped figures where there are any."""
    grouped, where = measured[Protocol.GROUPED.value], "unseen model x defence cells"
    if "reason" in grouped:
        grouped, where = measured[Protocol.RANDOM.value], "random folds, which flatter,"
    if "reason" in grouped:
        return f"not measured: {grouped['reason']}"
    missed = 1 - grouped["recall_at_threshold"]
    wrong = grouped["false_positive_rate_at_threshold"]
    text = f"on {where} {missed:.0%} of the positives are missed and {wrong:.0%} of the others "
    text += "are flagged"
    benign = measured.get("benign_memory_grounded")
    if benign is None:
        return text
    return f"{text}; so are {benign['flagged']} of {benign['first_sends']} benign first sends"


def make_card(artefact: Artefact, data: Dataset, measured: dict[str, Json]) -> dict[str, Json]:
    """Return the model card.

    Args:
        artefact: what it is about.
        data: what it was trained on.
        measured: figures by protocol, and others.
    """
    return {
        "name": artefact.name,
        "sha256": hashlib.sha256(artefact.onnx).hexdigest(),
        "model": {"type": "monotone logistic model", **signature.SETTINGS}
        if artefact.features is FeatureSet.SIGNATURE13
        else {"type": "random forest", **SETTINGS},
        "features": list(artefact.features.names),
        "session": (
            f"calls of the trigger session (`{artefact.session}`), by time"
            + (
                ", cut immediately before its first send; whole where nothing was sent"
                if artefact.features is not FeatureSet.FULL19
                else ", whole: these features do not exist before the send"
            )
        ),
        "label": {"name": artefact.labelling.value, "meaning": _LABELS[artefact.labelling]},
        "training_data": {
            "files": [{"file": name, "sha256": digest} for name, digest in data.files],
            **counts(data, artefact.labelling),
            "traps": trap_notes(data, artefact.labelling),
        },
        "threshold": {"value": artefact.threshold, "cost": describe_cost(measured)},
        "evaluation": measured,
        "limits": _LIMITS,
        **({"signature": _SIGNATURE} if artefact.features is FeatureSet.SIGNATURE13 else {}),
        "paper": {"citation": CITATION, "withdrawn": WITHDRAWN},
        "versions": {
            "python": ".".join(str(part) for part in sys.version_info[:3]),
            **{name: version(name) for name in ("scikit-learn", "skl2onnx", "onnx", "numpy")},
        },
    }


def write_artefact(directory: Path, onnx: bytes, card: dict[str, Json]) -> None:
    """Write the model, its card and the manifest; other models of the manifest stay.

    Raises:
        ModelError: there is a manifest that cannot be read; nothing was written.
        OSError: a file cannot be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    manifest, name = _read_manifest(directory), card["name"]
    card_text = (json.dumps(card, indent=2) + "\n").encode()
    manifest[name] = {
        "file": f"{name}.onnx",
        "sha256": hashlib.sha256(onnx).hexdigest(),
        "card": f"{name}.card.json",
        "card_sha256": hashlib.sha256(card_text).hexdigest(),
        "features": card["features"],
    }
    (directory / f"{name}.onnx").write_bytes(onnx)
    (directory / f"{name}.card.json").write_bytes(card_text)
    # Last and in one step: until then a guard refuses what the old manifest does not pin.
    fresh = directory / f"{MANIFEST}.new"
    fresh.write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    fresh.replace(directory / MANIFEST)


def _read_manifest(directory: Path) -> dict[str, Json]:
    path = directory / MANIFEST
    if not path.is_file():
        return {}
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        manifest = None
    if not isinstance(manifest, dict):
        message = f"`{path}` is not a model manifest, remove it or choose another directory"
        raise ModelError(message)
    return manifest


DEFAULT_NAMES: Final = {
    FeatureSet.PREFIX13: "prefix-13",
    FeatureSet.FULL19: "full-19",
    FeatureSet.SIGNATURE13: "prefix-13",
}
"""Name of the artefact by its features."""


@dataclass(frozen=True, slots=True)
class Order:
    """Settings of one training."""

    features: FeatureSet = FeatureSet.PREFIX13
    labelling: Labelling = Labelling.MAILED
    session: str = TRIGGER_SESSION
    threshold: float = THRESHOLD
    name: str | None = None
    trees: int | None = None
    """In place of the paper's number."""
    resamples: int = RESAMPLES
    """Resamples for the intervals; 0 leaves the intervals out."""

    @property
    def artefact_name(self) -> str:
        """Name of the artefact, by default that of its features."""
        return self.name or DEFAULT_NAMES[self.features]

    def build(self) -> Any:
        """Return an unfitted classifier."""
        if self.features is FeatureSet.SIGNATURE13:
            return signature.SignatureModel()
        return make(trees=self.trees)


def train(
    order: Order,
    data: Dataset,
    benign: Dataset | None = None,
    advance: Callable[[], object] = lambda: None,
) -> tuple[bytes, dict[str, Json]]:
    """Return the verified model as ONNX, and its card.

    Args:
        order: what to train.
        data: the runs to learn from.
        benign: runs without an attack whose first sends are scored for the card.
        advance: called after each protocol.

    Raises:
        NotMeasuredError: the runs hold one class only.
        ModelError: the export differs from scikit-learn's model.
    """
    rows, labels = data.rows(order.features), data.labels(order.labelling)
    require_two_classes(labels)
    model = order.build().fit(rows, labels)
    onnx, difference = verified_export(model, order.artefact_name, rows)
    measured: dict[str, Json] = {}
    histogram: dict[str, Json] | None = None
    for protocol in Protocol:
        measured[protocol.value] = measure(order, data, protocol)
        advance()
    measured["onnx_max_difference"] = difference
    measured["importances"] = named_importances(model, order)
    if order.features is not FeatureSet.FULL19:
        is_signature = order.features is FeatureSet.SIGNATURE13
        scored, attack = score_sends(model, data, signature=is_signature)
        if is_signature:
            kept, pairs = signature.respected(partial(_score, model))
            measured["signature_respected"] = {"pairs": pairs, "share": kept / pairs}
        measured["every_send_of_the_training_runs"] = describe_sends(
            scored, attack, order.threshold
        )
        histogram = _histogram(scored)
        if benign is not None:
            measured["benign_memory_grounded"] = flagged_first_sends(
                model, benign, order.threshold, order.features
            )
    artefact = Artefact(
        order.artefact_name,
        onnx,
        order.features,
        order.labelling,
        order.session,
        order.threshold,
    )
    card = make_card(artefact, data, measured)
    return onnx, card | ({"score_histogram": histogram} if histogram is not None else {})


def _histogram(scored: np.ndarray) -> dict[str, Json] | None:
    """Return how the scores of sends are distributed, to compare live traffic with."""
    if not len(scored):
        return None
    bounds = np.linspace(0.0, 1.0, 11)
    counts, _ = np.histogram(scored.max(axis=1), bounds)
    return {
        "of": "every send of the training runs, the worse of session and principal's window",
        "le": [round(float(bound), 1) for bound in bounds[1:]],
        "counts": counts.tolist(),
    }


def _score(model: Any, row: Sequence[float]) -> float:
    return float(scores(model, np.array([row], dtype=np.float32))[0])


def measure(
    order: Order, data: Dataset, protocol: Protocol, *, distinct: bool = True
) -> dict[str, Json]:
    """Return one protocol's figures, with intervals; without a figure, ``reason`` says why.

    Args:
        order: which classifier.
        data: the runs.
        protocol: how to divide them.
        distinct: whether to train and test on distinct runs as well.
    """
    labels = data.labels(order.labelling)
    try:
        pooled = out_of_fold(order.build, data, data.rows(order.features), labels, protocol)
    except NotMeasuredError as error:
        return {"auc": None, "reason": str(error)}
    repeats = data.repeats
    found: dict[str, Json] = figures(labels, pooled.scores, order.threshold)
    found["auc_interval_over_runs"] = rounded(
        bca_interval(labels, pooled.scores, resamples=order.resamples)
    )
    found["auc_interval_over_distinct_runs"] = rounded(
        bca_interval(labels, pooled.scores, repeats, order.resamples)
    )
    found["groups"] = None if pooled.groups is None else len(np.unique(pooled.groups))
    if distinct and len(np.unique(repeats)) < len(data):
        once = measure(order, data.distinct(), protocol, distinct=False)
        found["distinct_runs"] = once
    return found


def named_importances(model: Any, order: Order) -> dict[str, float]:
    """Return the weight of each feature, the largest first."""
    weights = model.feature_importances_.tolist()
    pairs = sorted(zip(order.features.names, weights, strict=True), key=lambda p: -abs(p[1]))
    return {name: round(weight, 4) for name, weight in pairs}
