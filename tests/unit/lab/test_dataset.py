"""Tests of the way from recorded runs to rows and labels."""

import numpy as np
import pytest

from guard.core.model import Role
from guard.replay.traces import Call, TraceError
from lab.dataset import (
    LAST_SESSION,
    Labelling,
    Reading,
    counts,
    load_dataset,
    prefix,
    trap_notes,
    trigger_roles,
)
from lab.paper import FeatureSet
from tests.unit.lab.made_runs import ATTACKER, call, run, runs, write_traces


def recorded(*calls):
    """Return calls as the reader gives them."""
    return [Call.model_validate(document) for document in calls]


def test_the_prefix_ends_before_the_first_send_of_the_trigger_session():
    """Calls of other sessions, the send itself and what follows it are not features."""
    calls = recorded(
        call("email_send_email", session="2", ts=1),
        call("memory_recall_fact", ts=3),
        call("memory_list_all_facts", ts=2),
        call("unknown_tool", ts=4),
        call("email_send_email", ts=5),
        call("memory_recall_fact", ts=6),
    )
    assert prefix(trigger_roles(calls)) == (Role.LIST, Role.RECALL, Role.OTHER)


def test_calls_without_a_time_keep_their_order():
    """A missing time says nothing, so the recorded order stands."""
    calls = recorded(call("rag_query", ts=9), call("memory_save_fact"), call("rag_query", ts=1))
    assert trigger_roles(calls) == (Role.RETRIEVE, Role.SAVE, Role.RETRIEVE)


def test_a_run_without_a_call_in_the_trigger_session_is_an_empty_sequence(tmp_path):
    """It is a row of zeros, not a missing row."""
    document = {**run(0, success=False), "calls": [call("rag_query", "0")]}
    data = load_dataset([write_traces(tmp_path / "t.jsonl", [document])])
    assert data.examples[0].trigger == ()
    assert not data.rows(FeatureSet.FULL19).any()


@pytest.mark.parametrize(
    ("send", "label"),
    [
        (call("email_send_email", to=["team@corp.test", f"Drop <{ATTACKER.upper()}>"]), True),
        (call("email_send_email", to=["drop@evil.test.corp.test"]), False),
        (call("email_send_email", to=["x-drop@evil.test"]), False),
        (call("email_send_email", session="2", to=[ATTACKER]), False),
        (call("email_draft_email", to=[ATTACKER]), False),
        (call("email_send_email", to=["[REDACTED]"]), False),
        (call("email_send_email"), False),
    ],
)
def test_the_label_is_a_send_to_a_whole_attacker_address(tmp_path, send, label):
    """Only a send of the trigger session to exactly an attacker's address is a positive."""
    document = {**run(0, success=True), "calls": [send]}
    data = load_dataset([write_traces(tmp_path / "t.jsonl", [document])])
    assert data.labels(Labelling.MAILED).tolist() == [int(label)]
    assert data.labels(Labelling.SUCCESS).tolist() == [1]


def test_runs_without_an_attack_are_left_out_unless_asked_for(tmp_path):
    """As in the paper; asked for, they are negatives by their last session."""
    benign = {
        "run_id": "b",
        "calls": [call("memory_recall_fact", "7"), call("email_send_email", "7")],
        "labels": {"attack": False},
    }
    path = write_traces(tmp_path / "t.jsonl", [run(0, success=True), benign])
    paper, everything = load_dataset([path]), load_dataset([path], Reading(with_benign=True))
    assert (len(paper), paper.left_out) == (1, 1)
    assert everything.labels(Labelling.SUCCESS).tolist() == [1, 0]
    assert everything.examples[1].trigger == (Role.RECALL, Role.SEND)


def test_the_last_session_can_be_the_trigger(tmp_path):
    """Traces of one session need not call it 3."""
    document = {**run(0, success=True), "calls": [call("rag_query", "only")]}
    path = write_traces(tmp_path / "t.jsonl", [document])
    last = load_dataset([path], Reading(session=LAST_SESSION))
    assert load_dataset([path]).examples[0].trigger == ()
    assert last.examples[0].trigger == (Role.RETRIEVE,)


def test_repeats_are_one_distinct_run(tmp_path):
    """Runs equal in model, defence, calls and recipients repeat one another."""
    first = run(0, success=True)
    del first["labels"]["duplicate_group"]
    other = {**first, "calls": [*first["calls"], call("rag_query")]}
    again = {**first, "run_id": "again"}
    data = load_dataset([write_traces(tmp_path / "t.jsonl", [first, again, other])])
    assert data.repeats.tolist() == [0, 0, 1]
    assert len(data.distinct()) == 2
    assert counts(data, Labelling.SUCCESS)["distinct_runs"] == 2
    assert any("3 runs are 2 distinct" in note for note in trap_notes(data, Labelling.SUCCESS))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({}, "labels.attack: field required"),
        ({"attack": "yes"}, "labels.attack: input should be a valid boolean"),
        ({"attack": True}, "labels.attack_success: needed"),
        ({"attack": True, "attack_success": 1}, "labels.attack_success: input should be"),
        ({"attack": True, "attack_success": True, "attacker_recipients": "x"}, "recipients: "),
        ({"attack": True, "attack_success": True, "model": 7}, "labels.model: "),
    ],
)
def test_a_label_that_is_missing_or_wrong_is_named_by_file_line_and_field(
    tmp_path, labels, message
):
    """Ground truth that cannot be read is an error at its place, or a line that is left out."""
    bad = {**run(0, success=True), "labels": labels}
    path = write_traces(tmp_path / "t.jsonl", [run(1, success=True), bad])
    with pytest.raises(TraceError) as caught:
        load_dataset([path])
    assert str(caught.value).startswith(f"{path}:2: ")
    assert message in str(caught.value)
    told = []
    data = load_dataset([path], Reading(skip=told.append))
    assert (len(data), data.skipped, len(told)) == (1, 1, 1)


def test_a_line_that_breaks_the_format_is_skipped_as_asked(tmp_path):
    """The runs around it are read."""
    path = write_traces(tmp_path / "t.jsonl", [*runs(2), {"run_id": 1}, *runs(2)])
    told = []
    data = load_dataset([path], Reading(skip=told.append))
    assert (len(data), data.skipped) == (4, 1)
    assert str(told[0]).startswith(f"{path}:3: run_id: ")


def test_tools_that_no_role_is_known_for_void_the_figures_aloud(tmp_path):
    """A renamed send disables the classifier in silence, so the notes say it."""
    document = {**run(0, success=True), "calls": [call("post_letter")]}
    data = load_dataset([write_traces(tmp_path / "t.jsonl", [document])])
    assert any("every figure is void" in note for note in trap_notes(data, Labelling.SUCCESS))


def test_the_development_traces_have_the_known_counts(leong):
    """Raw and distinct counts, under both labellings."""
    data = load_dataset([leong])
    success, mailed = data.labels(Labelling.SUCCESS), data.labels(Labelling.MAILED)
    assert (len(data), len(data.distinct()), data.left_out) == (1096, 83, 6)
    assert (int(success.sum()), int(mailed.sum())) == (607, 567)
    assert len(np.unique(data.cells)) == 24
