"""Training the artefact that the guard loads: fit, export, verify, evaluate, describe.

The paper scores one trigger session per run.  The guard scores every send, and the principal's
window as well, which holds the sessions before; the card has the figures of that use too.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import defaultdict
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from pydantic import TypeAdapter

from guard.core.errors import ModelError
from guard.core.model import Json, Role
from guard.core.trajectory import FEATURES_13, Trajectory, without_recalls
from guard.inference.onnx import MANIFEST
from lab import signature
from lab.dataset import Dataset, Reading, counts, trap_notes
from lab.models import scores, verified_export
from lab.paper import CITATION, THRESHOLD, WITHDRAWN, FeatureSet
from lab.protocols import Protocol, measure, require_two_classes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

NAME: Final = "prefix-13"
"""Name by which the guard loads the artefact."""
_MANIFEST: Final = TypeAdapter(dict[str, Any])
_LIMITS: Final = (
    "Evidence about the road to a send, not about malice: do not block on it alone. Runs at "
    "temperature 0 repeat, so random folds flatter; the grouped figures are the ones to expect on "
    "an unseen agent. The model saw first sends of one session only; later sends, and the "
    "principal's window over several sessions, are longer prefixes than it was trained on, and it "
    "flags nearly all of them."
)
_SIGNATURE: Final = (
    "Recalls count before a send that leaves the house, and raise the score: before a send whose "
    "recipients are all internal the features of recalls are 0. The earlier forest of this name "
    "scored a recall and a send at 0.25, and a benign recall before an internal send at 0.60."
)


def score_sends(model: Any, data: Dataset) -> np.ndarray:
    """Return the score of every send, the worse of session and principal's window.

    Recalls count before a send to the outside alone.
    """
    rows: list[tuple[float, ...]] = []
    for example in data.examples:
        sessions: defaultdict[str, Trajectory] = defaultdict(Trajectory)
        principal = Trajectory()
        for step in example.steps:
            if step.role is Role.SEND:
                pair = [sessions[step.session].features_13(), principal.features_13()]
                rows += map(without_recalls, pair) if step.inward else pair
            sessions[step.session] = sessions[step.session].append(step.role)
            principal = principal.append(step.role)
    every = np.array(rows, dtype=np.float32).reshape(-1, len(FEATURES_13))
    found: np.ndarray = scores(model, every).reshape(-1, 2).max(axis=1, initial=0.0)
    return found


def flagged_first_sends(model: Any, data: Dataset) -> dict[str, Json]:
    """Return how many first sends a model flags, one per run that sends."""
    sending = [example for example in data.examples if Role.SEND in example.trigger]
    rows = Dataset(tuple(sending)).rows(FeatureSet.SIGNATURE13)
    flagged = scores(model, rows) >= THRESHOLD
    return {"first_sends": len(sending), "flagged": int(flagged.sum())}


def _cost(measured: dict[str, Json]) -> str:
    """Return in words what the threshold costs, by the grouped figures."""
    grouped = measured[Protocol.GROUPED.value]
    if "reason" in grouped:
        return f"not measured: {grouped['reason']}"
    missed = 1 - grouped["recall_at_threshold"]
    wrong = grouped["false_positive_rate_at_threshold"]
    return (
        f"on unseen model x defence cells {missed:.0%} of the positives are missed and "
        f"{wrong:.0%} of the others are flagged"
    )


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
    try:
        found: dict[str, Json] = _MANIFEST.validate_json(path.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        message = f"`{path}` is not a model manifest, remove it or choose another directory"
        raise ModelError(message) from error
    return found


def train(
    reading: Reading,
    data: Dataset,
    benign: Dataset | None = None,
    advance: Callable[[], object] = lambda: None,
) -> tuple[bytes, dict[str, Json]]:
    """Return the verified model as ONNX, and its card.

    Args:
        reading: how the runs were read.
        data: the runs to learn from.
        benign: runs without an attack whose first sends are scored for the card.
        advance: called after each protocol.

    Raises:
        InputError: the runs hold one class only.
        ModelError: the export differs from the fitted model.
    """
    features, labelling = FeatureSet.SIGNATURE13, reading.labelling
    rows, labels = data.rows(features), data.labels(labelling)
    require_two_classes(labels)
    model = signature.SignatureModel().fit(rows, labels)
    onnx, difference = verified_export(model, model.onnx(NAME), NAME, rows)
    measured: dict[str, Json] = {}
    for protocol in Protocol:
        measured[protocol.value] = measure(
            signature.SignatureModel, data, features, labelling, protocol
        )
        advance()
    kept, pairs = signature.respected(partial(_score, model))
    scored = score_sends(model, data)
    weights = zip(FEATURES_13, model.weights.round(4).tolist(), strict=True)
    measured |= {
        "onnx_max_difference": difference,
        "importances": dict(weights),
        "signature_respected": {"pairs": pairs, "share": kept / pairs},
    }
    if benign is not None:
        measured["benign_memory_grounded"] = flagged_first_sends(model, benign)
    card: dict[str, Json] = {
        "name": NAME,
        "sha256": hashlib.sha256(onnx).hexdigest(),
        "model": {"type": "monotone logistic model", **signature.SETTINGS},
        "features": list(FEATURES_13),
        "session": (
            f"calls of the trigger session (`{reading.session}`), by time, cut immediately before "
            "its first send; whole where nothing was sent"
        ),
        "label": labelling.value,
        "training_data": {
            "files": [{"file": name, "sha256": digest} for name, digest in data.files],
            **counts(data, labelling),
            "traps": trap_notes(data),
        },
        "threshold": {"value": THRESHOLD, "cost": _cost(measured)},
        "evaluation": measured,
        "limits": _LIMITS,
        "signature": _SIGNATURE,
        "paper": {"citation": CITATION, "withdrawn": WITHDRAWN},
        "versions": {
            "python": ".".join(str(part) for part in sys.version_info[:3]),
            **{name: version(name) for name in ("scikit-learn", "onnx", "numpy")},
        },
    }
    if len(scored):
        card["score_histogram"] = _histogram(scored)
    return onnx, card


def _histogram(scored: np.ndarray) -> dict[str, Json]:
    """Return how the scores of sends are distributed, to compare live traffic with."""
    counted, bounds = np.histogram(scored, np.linspace(0.0, 1.0, 11))
    return {
        "of": "every send of the training runs, the worse of session and principal's window",
        "le": bounds[1:].round(1).tolist(),
        "counts": counted.tolist(),
    }


def _score(model: Any, row: Sequence[float]) -> float:
    return float(scores(model, np.array([row], dtype=np.float32))[0])
