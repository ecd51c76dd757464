"""Tests of the features that a model may know of a send."""

from dataclasses import replace

import pytest

from guard.core.labels import Attestation, Rung
from guard.core.model import (
    ClassifiedCall,
    Destination,
    DestinationStatus,
    Identity,
    Role,
    Target,
    ToolCall,
)
from guard.core.trajectory import FEATURES_13, Snapshot, Trajectory, Window
from guard.lab.provenance_features import FEATURES, features


def target(rung, kind="mail", **more):
    """Build a traced destination."""
    destination = Destination(kind, "somebody")
    return Target(destination, DestinationStatus.EXTERNAL, "$.to", Attestation(rung, "why", **more))


def call(*targets, guarded=()):
    """Build a send with destinations."""
    asked = ToolCall("id", Identity("p", "s"), "send", {}, "test", 0.0)
    return ClassifiedCall(asked, Role.SEND, mapped=True, targets=targets, guarded=guarded)


def named(row):
    """Return a row by feature."""
    return dict(zip(FEATURES, row, strict=True))


def test_a_row_begins_with_the_paper_and_has_a_number_per_feature():
    """The first 13 are the prefix model's, so the two can be compared."""
    window = Window(Trajectory.of([Role.LIST, Role.RECALL]))

    row = features(call(target(Rung.UNKNOWN)), Snapshot(window, window))

    assert FEATURES[:13] == FEATURES_13
    assert row[:13] == window.trajectory.features_13()
    assert len(row) == len(FEATURES)
    assert named(row)["principal_recall_count"] == 1.0


def test_destinations_are_counted_by_rung_kind_and_vector():
    """One colleague, one that the user named, one out of untrusted text."""
    found = named(
        features(
            call(
                target(Rung.LISTED),
                target(Rung.PROMPTED, kind="url"),
                target(Rung.TAINTED, vector="memory"),
                guarded=(target(Rung.TAINTED), target(Rung.UNKNOWN)),
            ),
            Snapshot(),
        )
    )

    assert (found["listed_count"], found["vouched_count"], found["tainted_count"]) == (1, 1, 1)
    assert (found["weakest_rung"], found["destination_count"]) == (8, 3)
    assert (found["vector_memory"], found["vector_in_session"]) == (1, 0)
    assert found["guarded_tainted_count"] == 1
    assert (found["mail_count"], found["url_count"]) == (2, 1)


def test_a_destination_that_nobody_traced_is_an_error():
    """A count that silently leaves one out would look like an honest send."""
    untraced = replace(target(Rung.UNKNOWN), attestation=None)

    with pytest.raises(ValueError, match="not looked up"):
        features(call(untraced), Snapshot())
