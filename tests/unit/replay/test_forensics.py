"""`guard audit classify`: kinds of incident, by the order of calls alone."""

import itertools
import json

import pytest
from typer.testing import CliRunner

from guard import cli
from guard.core.errors import ModelError
from guard.core.model import Role
from guard.inference.onnx import load_models
from guard.replay.forensics import KINDS, classify_session
from guard.settings import models_directory

POISONING = ["list", "recall", "retrieve", "draft", "send", "send"]
RECALLS = ["list", "recall", "draft", "send"]
"""Order of an attack and of a benign use of memory alike."""
INJECTION = ["retrieve", "send"]
HARMLESS = ["retrieve", "save"]
TOOLS = {
    "list": "memory_list_all_facts",
    "recall": "memory_recall_fact",
    "draft": "email_draft_email",
    "send": "email_send_email",
    "retrieve": "rag_query",
    "save": "memory_save_fact",
}
CASES = [
    (POISONING, "memory_poisoning", "memory_poisoning"),
    (RECALLS, "undecided", "memory_poisoning"),
    (INJECTION, "undecided", "prompt_injection"),
    (HARMLESS, "neither", ""),
]


def _classify(*words):
    done = CliRunner().invoke(cli.app, ["audit", "classify", *map(str, words), "--json"])
    return done.exit_code, json.loads(done.stdout) if done.exit_code == 0 else done.output


@pytest.mark.parametrize(("roles", "kind", "if_incident"), CASES)
def test_a_session_of_a_log_and_a_recorded_run_are_classified(tmp_path, roles, kind, if_incident):
    """By the roles of its own calls, which the log has, and the policy gives to recorded tools."""
    log, traces = tmp_path / "audit.jsonl", tmp_path / "runs.jsonl"
    lines = [{"event": "guard.started"}]
    for role in roles:
        lines.append({"event": "guard.decision", "session": "s", "role": role})
        lines.append({"event": "guard.decision", "session": "other", "role": "send"})
    log.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    calls = [
        {"i": i, "session": "3", "tool": TOOLS[role], "args": {}, "result": ""}
        for i, role in enumerate(roles)
    ]
    traces.write_text(json.dumps({"run_id": "r", "calls": calls, "labels": {}}), encoding="utf-8")

    for name, file in (("s", log), ("r", traces), ("r/3", traces)):
        code, found = _classify(name, file)
        assert (code, found["verdict"], found["calls"]) == (0, kind, roles)
        assert found["if_incident"] == if_incident
        assert sum(found[one] for one in KINDS) == pytest.approx(1)
    assert [_classify(*one)[0] for one in (("unknown", log), ("r/4", traces))] == [3, 3]


def test_the_order_alone_clears_no_recall_before_a_send():
    """Whatever the model says of such a session: memory poisoning has the same order."""
    models = load_models(models_directory())
    for road in itertools.product(Role, repeat=3):
        found = classify_session(models, [*road, Role.RECALL, Role.SEND])
        assert found.verdict != "neither", road


def test_without_its_model_nothing_is_said():
    """An answer without the model would be a guess."""
    with pytest.raises(ModelError, match="forensic-19"):
        classify_session({}, [Role.RECALL, Role.SEND])
