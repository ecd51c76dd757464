"""The demo as a user runs it: real processes, what arrives, and what is told."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
REFUSED = {"block", "ask"}

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


def test_the_mail_arrives_and_the_attack_does_not(tmp_path):
    """The everyday mail alone arrives, and the agent can read why."""
    done = run_demo(tmp_path, "--json", "--keep")
    assert done.returncode == 0, done.stderr + done.stdout
    report = json.loads(done.stdout)
    details = report["details"]
    text = (Path(details["kept"]) / "audit.jsonl").read_text(encoding="utf-8")
    shutil.rmtree(details["kept"])

    values = {check["id"]: check["value"] for check in report["checks"]}
    assert values.pop("seconds") > 0
    assert values == {"benign_delivered": 1, "attack_refused": 1, "attack_delivered": 0}
    assert details["observation"] or details["observation_text"]
    refused = [x for x in map(json.loads, text.splitlines()) if x.get("enforced") in REFUSED]
    assert {line["tool"] for line in refused} == {"email_send_email"}
    assert "Q3 revenue" not in text
    assert "collector.example.net" not in text


def test_the_story_is_told_and_nothing_is_left_behind(tmp_path):
    """A newcomer reads what happened; the temporary directory is gone."""
    done = run_demo(tmp_path)

    assert done.returncode == 0, done.stderr
    assert "what the agent is told instead" in done.stdout
    assert list(tmp_path.glob("guard-demo*")) == []
