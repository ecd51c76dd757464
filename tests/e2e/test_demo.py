"""The demo as a user runs it: real processes, every route, and odd attacker addresses."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FIGURES_WORDS = "Q3 revenue"

pytestmark = pytest.mark.e2e


def run_demo(tmp_path, *options):
    """Run the demo with its temporary files under ``tmp_path``."""
    return subprocess.run(
        [sys.executable, "-m", "guard", "demo", *options],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def outbox(directory):
    """Return recipients and bodies straight from the mail server's table."""
    with closing(sqlite3.connect(Path(directory) / "mail.sqlite")) as database:
        return database.execute("SELECT recipient, body FROM outbox").fetchall()


def play_kept(tmp_path, *options):
    """Run with ``--json --keep`` and return the report, the outbox and the audit lines."""
    done = run_demo(tmp_path, "--json", "--keep", *options)
    assert done.returncode == 0, done.stderr + done.stdout
    report = json.loads(done.stdout)
    directory = Path(report["details"]["kept"])
    audit = [
        json.loads(line)
        for line in (directory / "audit.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    sent, text = outbox(directory), (directory / "audit.jsonl").read_text(encoding="utf-8")
    shutil.rmtree(directory)
    return report, sent, audit, text


@pytest.mark.parametrize("via", ["memory", "session-split"])
def test_the_mail_arrives_and_the_attack_does_not(tmp_path, via):
    """On every route the outbox holds the everyday mail alone and the agent can read why."""
    report, sent, audit, text = play_kept(tmp_path, "--via", via)

    values = {check["id"]: check["value"] for check in report["checks"]}
    assert set(values) == {"benign_delivered", "attack_refused", "attack_delivered", "seconds"}
    assert values["benign_delivered"] == 1
    assert values["attack_refused"] == 1
    assert values["attack_delivered"] == 0
    assert [recipient for recipient, _ in sent] == ["team@example.com"]
    assert report["name"] == "demo"
    assert report["details"]["observation"] or report["details"]["observation_text"]
    refused = [line for line in audit if line.get("enforced") in {"block", "ask"}]
    assert {line["tool"] for line in refused} == {"email_send_email", "notes.share"}
    assert report["details"]["notes"] == {"delivered": 1, "refused": 1, "leaked": 0}
    assert FIGURES_WORDS not in text
    assert "collector.example.net" not in text


def test_the_story_is_told_and_nothing_is_left_behind(tmp_path):
    """A newcomer reads what happened; the temporary directory is gone."""
    done = run_demo(tmp_path, "--via", "document")

    assert done.returncode == 0, done.stderr
    assert "✓" in done.stdout
    assert "✗" in done.stdout
    assert "what the agent is told instead" in done.stdout
    assert list(tmp_path.glob("guard-demo*")) == []
