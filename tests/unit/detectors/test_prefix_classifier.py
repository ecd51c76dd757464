"""Tests of the prefix classifier."""

from dataclasses import replace

import pytest

from guard.core.calls import ClassifiedCall, Target
from guard.core.errors import ModelError
from guard.core.mappings import ToolMapping
from guard.core.model import Destination, DestinationStatus, Identity, Role, ToolCall
from guard.core.trajectory import FEATURES_13, FEATURES_19, Snapshot, Trajectory, Window
from guard.detectors import DetectorResources
from guard.detectors.prefix_classifier import PrefixClassifier
from guard.inference.onnx import load_models
from guard.settings import models_directory


class RecallModel:
    """Scores a row by its number of recalls."""

    name = "prefix-13"
    digest = ""

    def __init__(self, features=FEATURES_13):
        self.features = features

    def score(self, row):
        return min(row[0] / 10, 1.0)


def call(role, *, mapped=True):
    """Return a classified call of a role."""
    request = ToolCall("d", Identity("p", "s"), "tool", {}, "trace", 0.0)
    return ClassifiedCall(request, role, ToolMapping("*", bool, role) if mapped else None)


def snapshot(session, principal):
    """Return a snapshot with that many recalls in the session's and the principal's window."""
    windows = (
        Window(trajectory=Trajectory.of([Role.RECALL] * count)) for count in (session, principal)
    )
    return Snapshot(*windows)


def detector(model):
    """Return the detector around a model."""
    return PrefixClassifier.create(DetectorResources(models={"prefix-13": model}))


@pytest.mark.parametrize(
    ("role", "mapped", "session", "principal", "scores"),
    [
        (Role.SEND, True, 1, 4, [0.4]),
        (Role.SEND, True, 6, 2, [0.6]),
        (Role.OTHER, False, 2, 2, [0.2]),
        *((role, True, 5, 5, []) for role in Role if role is not Role.SEND),
    ],
)
def test_a_send_or_an_unmapped_call_is_scored(role, mapped, session, principal, scores):
    """On session and principal: the worse counts, and both are in the evidence."""
    found = detector(RecallModel()).inspect(call(role, mapped=mapped), snapshot(session, principal))
    assert [(one.code, one.score) for one in found] == [("prefix_score", s) for s in scores]
    for one in found:
        both = {"session": session / 10, "principal": principal / 10}
        assert one.data == {"model": "prefix-13", **both}


@pytest.mark.parametrize(
    ("models", "problem"),
    [
        ({}, "`prefix-13` is missing"),
        ({"prefix-13": RecallModel(FEATURES_19)}, "other features"),
    ],
)
def test_without_its_model_the_guard_does_not_start(models, problem):
    """Nineteen features would be scored as if they were thirteen others."""
    with pytest.raises(ModelError, match=problem):
        PrefixClassifier.create(DetectorResources(models=models))


INSIDE = Target(Destination("mail", "team@example.com"), DestinationStatus.INTERNAL)
OUTSIDE = Target(Destination("mail", "eve@evil.example"), DestinationStatus.EXTERNAL)
ALLOWED = Target(Destination("mail", "bob@partner.example"), DestinationStatus.ALLOWED)


@pytest.mark.parametrize(
    ("changes", "counts"),
    [
        ({"targets": (INSIDE,)}, False),
        ({"targets": (INSIDE, OUTSIDE)}, True),
        ({"targets": (INSIDE, ALLOWED)}, True),
        ({"targets": ()}, True),
        ({"targets": (INSIDE,), "suspects": (OUTSIDE,)}, True),
        ({"targets": (INSIDE,), "searched": False}, True),
        ({"targets": (INSIDE,), "contested": True}, True),
        ({"targets": (INSIDE,), "mapping": None}, True),
    ],
)
def test_recalls_count_unless_all_of_a_send_is_clearly_internal(changes, counts):
    """The signature is a recall before a send to the outside; what is unclear counts as outside."""
    send = replace(call(Role.SEND), **changes)
    [finding] = detector(RecallModel()).inspect(send, snapshot(3, 5))

    assert finding.score == (0.5 if counts else 0.0)


def test_the_shipped_model_tells_roads_apart():
    """The artefact in the path is the trained one: recall before the draft, or none."""
    model = load_models(models_directory())["prefix-13"]
    scores = []
    for road in ([Role.LIST, Role.RECALL, Role.RETRIEVE, Role.DRAFT], [Role.LIST, Role.DRAFT]):
        window = Window(trajectory=Trajectory.of(road))
        [finding] = detector(model).inspect(call(Role.SEND), Snapshot(window, window))
        scores.append(finding.score)
    assert scores[0] > 0.5 > scores[1]
