"""`guard audit classify`: kinds of incident, by the order of calls alone."""

import json

import pytest
from typer.testing import CliRunner

from guard import cli
from guard.core.errors import ModelError
from guard.core.model import Role
from guard.replay.forensics import KINDS, classify_session

POISONING = ["list", "recall", "draft", "send"]
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
    (POISONING, "memory_poisoning"),
    (INJECTION, "prompt_injection"),
    (HARMLESS, "neither"),
]


def _classify(*words):
    done = CliRunner().invoke(cli.app, ["audit", "classify", *map(str, words), "--json"])
    return done.exit_code, json.loads(done.stdout) if done.exit_code == 0 else done.output


@pytest.mark.parametrize(("roles", "kind"), CASES)
def test_a_session_of_an_audit_log_is_classified(tmp_path, roles, kind):
    """By the roles of its own calls; another session's and other lines do not count."""
    log = tmp_path / "audit.jsonl"
    lines = [{"event": "guard.started"}]
    for role in roles:
        lines += [
            {"event": "guard.decision", "session": "s", "role": role},
            {"event": "guard.decision", "session": "other", "role": "send"},
        ]
    log.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")

    code, found = _classify("s", log)
    assert (code, found["verdict"], found["calls"]) == (0, kind, roles)
    assert sum(found[name] for name in KINDS) == pytest.approx(1)
    assert _classify("unknown", log)[0] == 3


@pytest.mark.parametrize(("roles", "kind"), CASES)
def test_a_recorded_run_is_classified(tmp_path, roles, kind):
    """Whole, or one session of it; the policy gives its tools their roles."""
    calls = [
        {"i": i, "session": "3", "tool": TOOLS[role], "args": {}, "result": ""}
        for i, role in enumerate(roles)
    ]
    traces = tmp_path / "runs.jsonl"
    traces.write_text(json.dumps({"run_id": "r", "calls": calls, "labels": {}}), encoding="utf-8")

    for name in ("r", "r/3"):
        code, found = _classify(name, traces)
        assert (code, found["verdict"], found["calls"]) == (0, kind, roles)
    assert _classify("r/4", traces)[0] == 3


def test_without_its_model_nothing_is_said():
    """An answer without the model would be a guess."""
    with pytest.raises(ModelError, match="forensic-19"):
        classify_session({}, [Role.RECALL, Role.SEND])
