"""The figures of ``guard lab eval classifier``: every protocol, every classifier, and the rule."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from guard.core.errors import ModelError
from guard.replay.reports import Check
from lab.dataset import Labelling, counts, trap_notes
from lab.intervals import bca_interval, rounded
from lab.models import LARGEST_DIFFERENCE, TITLES, verified_export
from lab.paper import (
    ABLATIONS,
    PUBLISHED,
    RESAMPLES,
    THRESHOLD,
    TRIGGER_SESSION,
    WITHDRAWN,
    Algorithm,
    FeatureSet,
)
from lab.protocols import (
    NotMeasuredError,
    Protocol,
    figures,
    out_of_fold,
    require_two_classes,
    transfer_between_models,
)
from lab.training import Order, measure, named_importances

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from guard.core.model import Json
    from guard.core.ports import ModelRunner
    from lab.dataset import Dataset

RULE: Final = "recall_before_send"
PAPERS_FOLDS: Final = (Protocol.RANDOM, Protocol.GROUPED)


@dataclass(frozen=True, slots=True)
class Options:
    """What to measure."""

    labelling: Labelling = Labelling.SUCCESS
    session: str = TRIGGER_SESSION
    threshold: float = THRESHOLD
    quick: bool = False
    """Only what the checks need."""
    trees: int | None = None
    resamples: int = RESAMPLES

    def order(self, algorithm: Algorithm, features: FeatureSet) -> Order:
        """Return the order for one classifier."""
        return Order(
            algorithm,
            features,
            self.labelling,
            self.session,
            self.threshold,
            trees=self.trees,
            resamples=self.resamples,
        )

    @property
    def steps(self) -> int:
        """How often progress is reported."""
        return 2 if self.quick else 10


@dataclass(slots=True)
class Measured:
    """What was measured, and the scores that plots are drawn from."""

    details: dict[str, Json]
    curves: dict[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)
    """By name: labels and scores."""
    onnx_difference: float | None = None
    reason: str | None = None
    """Why there are no figures at all."""

    def auc(self, algorithm: Algorithm, features: FeatureSet, protocol: Protocol) -> Json:
        """Return the figures of one protocol, an empty object where there are none."""
        found = self.details.get("classifiers", {}).get(algorithm.value, {})
        return found.get(features.value, {}).get(protocol.value, {})


def eval_classifier(
    data: Dataset, options: Options, advance: Callable[[], object] = lambda: None
) -> Measured:
    """Measure everything on one data set.

    Where the runs hold one class only, ``reason`` says so and there are no figures.
    """
    labels = data.labels(options.labelling)
    measured = Measured(
        {
            "labelling": options.labelling.value,
            "trigger_session": options.session,
            "files": [{"file": name, "sha256": digest} for name, digest in data.files],
            "data": counts(data, options.labelling),
            "traps": trap_notes(data, options.labelling),
            "paper": {"published": PUBLISHED, "withdrawn": WITHDRAWN},
        }
    )
    try:
        require_two_classes(labels)
    except NotMeasuredError as error:
        measured.reason = str(error)
        return measured
    _rule(data, options, measured)
    _classifiers(data, options, measured, advance)
    if not options.quick:
        _more(data, options, measured, advance)
    return measured


def _rule(data: Dataset, options: Options, measured: Measured) -> None:
    """Score 1 where a recall comes before a send in the trigger session, else 0."""
    names = FeatureSet.FULL19.names
    labels = data.labels(options.labelling)
    fired = data.rows(FeatureSet.FULL19)[:, names.index(RULE)]
    found = figures(labels, fired)
    found["auc_interval_over_runs"] = rounded(
        bca_interval(labels, fired, resamples=options.resamples)
    )
    found["auc_interval_over_distinct_runs"] = rounded(
        bca_interval(labels, fired, data.repeats, options.resamples)
    )
    distinct = data.distinct()
    found["distinct_runs"] = figures(
        distinct.labels(options.labelling),
        distinct.rows(FeatureSet.FULL19)[:, names.index(RULE)],
    )
    measured.details["rule"] = found
    measured.curves[RULE] = (labels, fired)


def _classifiers(
    data: Dataset, options: Options, measured: Measured, advance: Callable[[], object]
) -> None:
    differences = []
    table: dict[str, Json] = {}
    for algorithm in Algorithm:
        forest = algorithm is Algorithm.RANDOM_FOREST
        for features in FeatureSet:
            order = options.order(algorithm, features)
            if forest or not options.quick:
                chosen = tuple(Protocol) if forest and not options.quick else PAPERS_FOLDS
                found = _protocols(data, order, chosen, (measured, forest))
                table.setdefault(algorithm.value, {})[features.value] = found
                advance()
            differences.append(_export(data, order, measured))
    measured.details["classifiers"] = table
    measured.onnx_difference = max(differences)


def _protocols(
    data: Dataset, order: Order, protocols: tuple[Protocol, ...], sink: tuple[Measured, bool]
) -> dict[str, Json]:
    measured, distinct = sink
    found: dict[str, Json] = {}
    for protocol in protocols:
        found[protocol.value], pooled = measure(order, data, protocol, distinct=distinct)
        if pooled is not None and order.algorithm is Algorithm.RANDOM_FOREST:
            name = f"{order.features.value}, {protocol.value}"
            measured.curves[name] = (pooled.labels, pooled.scores)
    return found


def _export(data: Dataset, order: Order, measured: Measured) -> float:
    rows, labels = data.rows(order.features), data.labels(order.labelling)
    model = order.build().fit(rows, labels)
    _, difference = verified_export(model, order.artefact_name, rows)
    section = measured.details.setdefault("models", {})
    section[order.artefact_name] = {
        "type": TITLES[order.algorithm],
        "onnx_max_difference": difference,
        "importances": named_importances(model, order),
    }
    return difference


def _more(
    data: Dataset, options: Options, measured: Measured, advance: Callable[[], object]
) -> None:
    details = measured.details
    details["ablations"] = {}
    for features in FeatureSet:
        order = options.order(Algorithm.RANDOM_FOREST, features)
        details["ablations"][features.value] = ablate(data, order)
        advance()
    order = options.order(Algorithm.RANDOM_FOREST, FeatureSet.PREFIX13)
    rows, labels = data.rows(order.features), data.labels(order.labelling)
    details["train_here_test_there"] = {
        "between_agent_models": transfer_between_models(order.build, data, rows, labels)
    }
    advance()
    details["other_labelling"] = _other_labelling(data, options)
    advance()


def ablate(data: Dataset, order: Order) -> dict[str, Json]:
    """Return the AUC without each group of features, on random and grouped folds."""
    labels, rows = data.labels(order.labelling), data.rows(order.features)
    found: dict[str, Json] = {}
    for group, dropped in ABLATIONS.items():
        kept = [i for i, name in enumerate(order.features.names) if name not in dropped]
        if len(kept) == len(order.features.names):
            continue
        found[group] = {"features_left": len(kept)}
        for protocol in PAPERS_FOLDS:
            try:
                pooled = out_of_fold(order.build, data, rows[:, kept], labels, protocol)
                found[group][protocol.value] = figures(labels, pooled.scores)["auc"]
            except NotMeasuredError as error:
                found[group][protocol.value] = None
                found[group]["reason"] = str(error)
    return found


def _other_labelling(data: Dataset, options: Options) -> dict[str, Json]:
    """Return the forests' figures under the labelling that was not asked for."""
    other = next(item for item in Labelling if item is not options.labelling)
    known = [
        example.truth.attacker_recipients is not None
        if other is Labelling.MAILED
        else example.truth.attack_success is not None
        for example in data.examples
        if example.truth.attack
    ]
    if not all(known):
        return {"labelling": other.value, "reason": "some runs lack the label it needs"}
    found: dict[str, Json] = {"labelling": other.value}
    for features in FeatureSet:
        order = replace(
            options.order(Algorithm.RANDOM_FOREST, features), labelling=other, resamples=0
        )
        found[features.value] = {
            protocol.value: measure(order, data, protocol, distinct=False)[0]
            for protocol in PAPERS_FOLDS
        }
    return found


def measure_there(
    data: Dataset, elsewhere: Mapping[str, Dataset], options: Options
) -> dict[str, Json]:
    """Return the figures of forests fitted on all of one data set and tested on others.

    Raises:
        NotMeasuredError: the data to learn from hold one class only.
    """
    labels = data.labels(options.labelling)
    require_two_classes(labels)
    found: dict[str, Json] = {}
    for features in FeatureSet:
        order = options.order(Algorithm.RANDOM_FOREST, features)
        model = order.build().fit(data.rows(features), labels)
        for name, there in elsewhere.items():
            if not len(there):
                found[name] = {"reason": "no run"}
                continue
            scored = model.predict_proba(there.rows(features))[:, 1]
            section = found.setdefault(name, {"runs": len(there)})
            section[features.value] = figures(
                there.labels(options.labelling), scored, options.threshold
            )
    return found


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


def features_of(model: ModelRunner) -> FeatureSet:
    """Return the features a model takes.

    Raises:
        ModelError: traces do not give them, or give them in another order.
    """
    for features in FeatureSet:
        if model.features == features.names:
            return features
    known = set(FeatureSet.FULL19.names)
    unknown = next((name for name in model.features if name not in known), None)
    what = f"`{unknown}`, which traces do not give" if unknown else "another choice or order"
    message = (
        f"the features of model `{model.name}` do not match: it takes {what}; "
        f"train it with --features {' or '.join(FeatureSet)}"
    )
    raise ModelError(message)


def score_frozen(
    models: Mapping[str, ModelRunner], data: Dataset, labelling: Labelling, threshold: float
) -> dict[str, Json]:
    """Return the figures of each model on the runs.

    Raises:
        ModelError: a model's features do not match, or it fails.
    """
    wanted = {name: features_of(model) for name, model in models.items()}
    labels = data.labels(labelling)
    found: dict[str, Json] = {}
    for name, features in wanted.items():
        distinct, inverse = np.unique(data.rows(features), axis=0, return_inverse=True)
        scored = np.array([models[name].score(row) for row in distinct.tolist()])
        found[name] = {
            "sha256": models[name].digest,
            "features": features.value,
            **figures(labels, scored[inverse.reshape(-1)], threshold),
        }
    return found
