"""Figures of ``guard lab eval classifier``: the rule, and forests under every protocol."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sklearn.ensemble import RandomForestClassifier

from guard.replay.reports import Check, Report, machine
from lab.dataset import Dataset, Labelling, counts, trap_notes
from lab.models import LARGEST_DIFFERENCE, verified_export
from lab.paper import SEED, WITHDRAWN, FeatureSet
from lab.protocols import Protocol, figures, measure, require_two_classes
from lab.signature import SignatureModel

if TYPE_CHECKING:
    from guard.core.model import Json

RULE: Final = "recall_before_send"
SETTINGS: Final = {"n_estimators": 200, "max_depth": 8, "random_state": SEED}
"""The paper's hyper-parameters."""
TOLERANCE: Final = 0.02
TARGETS: Final = {
    "rule_auc": 0.735,
    "rf19_auc_random": 0.982,
    "rf19_auc_grouped": 0.734,
    "prefix13_auc_random": 0.942,
    "prefix13_auc_grouped": 0.698,
}
"""Measured once on the development traces, by `attack_success`, raw; no aim for other data."""
_NAMES: Final = {FeatureSet.FULL19: "rf19", FeatureSet.PREFIX13: "prefix13"}


def eval_classifier(data: Dataset, labelling: Labelling) -> Report:
    """Measure everything on one data set.

    Raises:
        InputError: the runs hold one class only.
    """
    labels = data.labels(labelling)
    require_two_classes(labels)
    fired = data.rows(FeatureSet.FULL19)[:, FeatureSet.FULL19.names.index(RULE)]
    found: dict[str, Json] = {"rule_auc": figures(labels, fired, data.repeats)}
    forest = partial(RandomForestClassifier, **SETTINGS)
    for features, name in _NAMES.items():
        for protocol, way in ((Protocol.RANDOM, "random"), (Protocol.GROUPED, "grouped")):
            measured = measure(forest, data, features, labelling, protocol)
            found[f"{name}_auc_{way}"] = measured
    rows = data.rows(FeatureSet.SIGNATURE13)
    model = SignatureModel().fit(rows, labels)
    _, difference = verified_export(model, model.onnx("prefix-13"), "prefix-13", rows)
    exported = Check(
        id="onnx_max_difference",
        value=difference,
        unit="score",
        n=len(data),
        target=f"<= {LARGEST_DIFFERENCE:g}",
    )
    return Report(
        name="classifier",
        machine=machine(),
        checks=[*(_auc(name, one, len(data)) for name, one in found.items()), exported],
        details={
            "labelling": labelling.value,
            "files": [{"file": name, "sha256": digest} for name, digest in data.files],
            "data": counts(data, labelling),
            "traps": trap_notes(data),
            "figures": found,
            "paper": {"withdrawn": WITHDRAWN},
        },
    )


def _auc(name: str, found: dict[str, Any], runs: int) -> Check:
    interval = found.get("auc_interval_over_distinct_runs")
    return Check(
        id=name,
        value=found["auc"],
        unit="auc",
        n=runs,
        interval=tuple(interval) if interval else None,
        target=f"{TARGETS[name]} +- {TOLERANCE}",
        reason=found.get("reason"),
    )
