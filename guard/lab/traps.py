"""What a reader of figures must know of the data behind them.  Pure: no I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from guard.core.model import Role
from guard.lab.paper import FeatureSet
from guard.lab.truth import Labelling

if TYPE_CHECKING:
    from guard.core.model import Json
    from guard.lab.dataset import Dataset


def counts(data: Dataset, labelling: Labelling) -> dict[str, Json]:
    """Return raw and de-duplicated counts."""
    distinct = data.distinct()
    return {
        "runs": len(data),
        "positive": int(data.labels(labelling).sum()),
        "negative": int((1 - data.labels(labelling)).sum()),
        "distinct_runs": len(distinct),
        "distinct_positive": int(distinct.labels(labelling).sum()),
        "distinct_negative": int((1 - distinct.labels(labelling)).sum()),
        "distinct_rows": {
            features.value: len(np.unique(data.rows(features), axis=0)) for features in FeatureSet
        },
        "models": len(np.unique(data.models)),
        "cells": len(np.unique(data.cells)),
        "skipped_lines": data.skipped,
        "left_out_without_attack": data.left_out,
    }


def trap_notes(data: Dataset, labelling: Labelling) -> list[str]:
    """Return what could mislead a reader of figures on this data, one sentence each."""
    if not len(data):
        return []
    labels = data.labels(labelling)
    notes = [
        _repeats(data),
        _one_class_cells(data, labels),
        _ambiguous_rows(data, labels),
        _labellings(data),
        _empty_sessions(data),
        _unknown_tools(data),
        _negatives(data),
    ]
    return [note for note in notes if note]


def _repeats(data: Dataset) -> str:
    distinct = len(data.distinct())
    if distinct == len(data):
        return ""
    return (
        f"{len(data)} runs are {distinct} distinct ones; random folds put repeats of one run on "
        "both sides, so their figures say how well a model remembers"
    )


def _one_class_cells(data: Dataset, labels: np.ndarray) -> str:
    cells, models = data.cells, data.models
    one_cell = sum(len(np.unique(labels[cells == cell])) == 1 for cell in np.unique(cells))
    one_model = sum(len(np.unique(labels[models == name])) == 1 for name in np.unique(models))
    if not one_cell:
        return ""
    return (
        f"{one_cell} of {len(np.unique(cells))} model x defence cells and {one_model} of "
        f"{len(np.unique(models))} models hold one class only: whoever recognises the model "
        "knows the label, and grouped figures rest on few cells"
    )


def _ambiguous_rows(data: Dataset, labels: np.ndarray) -> str:
    _, inverse = np.unique(data.rows(FeatureSet.PREFIX13), axis=0, return_inverse=True)
    positive = np.bincount(inverse, weights=labels)
    total = np.bincount(inverse)
    mixed = (positive > 0) & (positive < total)
    if not mixed.any():
        return ""
    wrong = int(np.minimum(positive, total - positive).sum())
    return (
        f"{int(mixed.sum())} of {len(total)} distinct prefix rows carry both labels; no classifier "
        f"on these features can be right on more than {len(labels) - wrong} of {len(labels)} runs"
    )


def _labellings(data: Dataset) -> str:
    attacked = [e for e in data.examples if e.truth.attack and e.truth.attack_success is not None]
    differ = sum(e.label(Labelling.SUCCESS) != e.label(Labelling.MAILED) for e in attacked)
    if not differ:
        return ""
    return (
        f"{differ} runs count as attack successes by their own label and mail no attacker in the "
        "trigger session, or the reverse: the labelling moves every figure"
    )


def _empty_sessions(data: Dataset) -> str:
    empty = sum(not example.trigger for example in data.examples)
    return f"{empty} runs made no call in the trigger session: an empty sequence" if empty else ""


def _unknown_tools(data: Dataset) -> str:
    unknown = frozenset().union(*(example.tools for example in data.examples))
    roles = {step.role for example in data.examples for step in example.steps}
    if Role.SEND not in roles:
        return (
            "no tool of these runs is known as a send: every figure is void until the tools are "
            "mapped to roles"
        )
    if not unknown:
        return ""
    return f"{len(unknown)} tools have no role here and count in the length of a session only"


def _negatives(data: Dataset) -> str:
    if any(not example.truth.attack for example in data.examples):
        return ""
    return "the negatives are attacked runs that held, never benign ones: no false-alarm rate"
