"""The fixed check ids of ``guard eval classifier``.  Pure: no I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guard.lab.models import LARGEST_DIFFERENCE
from guard.lab.paper import Algorithm, FeatureSet
from guard.lab.protocols import Protocol
from guard.replay.reports import Check

if TYPE_CHECKING:
    from guard.core.model import Json
    from guard.lab.eval_classifier import Measured

TOLERANCE: Final = 0.02
TARGETS: Final = {
    "rule_auc": 0.735,
    "rf19_auc_random": 0.982,
    "rf19_auc_grouped": 0.734,
    "prefix13_auc_random": 0.942,
    "prefix13_auc_grouped": 0.698,
}
"""Measured once on the development traces, by `attack_success`, raw; no aim for other data."""
_FORESTS: Final = {
    "rf19_auc_random": (FeatureSet.FULL19, Protocol.RANDOM),
    "rf19_auc_grouped": (FeatureSet.FULL19, Protocol.GROUPED),
    "prefix13_auc_random": (FeatureSet.PREFIX13, Protocol.RANDOM),
    "prefix13_auc_grouped": (FeatureSet.PREFIX13, Protocol.GROUPED),
}


def checks(measured: Measured, runs: int) -> list[Check]:
    """Return the AUC checks and the export check; each is there, with a value or a reason.

    The intervals are over distinct runs; those over runs are in the details.
    """
    found: dict[str, Json] = {"rule_auc": measured.details.get("rule", {})}
    for name, (features, protocol) in _FORESTS.items():
        found[name] = measured.auc(Algorithm.RANDOM_FOREST, features, protocol)
    done = [_auc(name, figures, runs, measured.reason) for name, figures in found.items()]
    difference = measured.onnx_difference
    done.append(
        Check(
            id="onnx_max_difference",
            value=difference,
            unit="score",
            n=runs,
            target=f"<= {LARGEST_DIFFERENCE:g}",
            reason=None if difference is not None else measured.reason or "nothing was exported",
        )
    )
    return done


def _auc(name: str, figures: Json, runs: int, reason: str | None) -> Check:
    value = figures.get("auc")
    interval = figures.get("auc_interval_over_distinct_runs")
    return Check(
        id=name,
        value=value,
        unit="auc",
        n=runs,
        interval=tuple(interval) if interval else None,
        target=f"{TARGETS[name]} +- {TOLERANCE}",
        reason=None if value is not None else reason or figures.get("reason", "not measured"),
    )
