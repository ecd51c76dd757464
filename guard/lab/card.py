"""The model card, and writing an artefact: model, card, and the manifest that pins both."""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING

from guard.adapters.onnx import MANIFEST
from guard.core.errors import ModelError
from guard.lab.models import SETTINGS, TITLES
from guard.lab.paper import CITATION, WITHDRAWN, FeatureSet
from guard.lab.protocols import Protocol
from guard.lab.traps import counts, trap_notes
from guard.lab.truth import Labelling

if TYPE_CHECKING:
    from pathlib import Path

    from guard.core.model import Json
    from guard.lab.dataset import Dataset
    from guard.lab.paper import Algorithm

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


@dataclass(frozen=True, slots=True)
class Artefact:
    """What was trained, on what, and how well it did."""

    name: str
    onnx: bytes
    algorithm: Algorithm
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
        measured: ``evaluation`` by protocol, and ``score_histogram``.
    """
    evaluation = {key: value for key, value in measured.items() if key != "score_histogram"}
    kind = {"type": TITLES[artefact.algorithm], **SETTINGS[artefact.algorithm]}
    return {
        "name": artefact.name,
        "sha256": hashlib.sha256(artefact.onnx).hexdigest(),
        "model": kind,
        "features": list(artefact.features.names),
        "session": (
            f"calls of the trigger session (`{artefact.session}`), by time"
            + (
                ", cut immediately before its first send; whole where nothing was sent"
                if artefact.features is FeatureSet.PREFIX13
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
        "evaluation": evaluation,
        "score_histogram": measured["score_histogram"],
        "limits": _LIMITS,
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
