"""The demo as a user runs it: real processes, every route, and odd attacker addresses."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from guard.demo.scenario import Story, seed
from guard.demo.stage import Places, Via, stage
from guard.settings import policies_directory

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


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """Start the servers and the guard once for all addresses."""
    places = Places(tmp_path_factory.mktemp("demo"), policies_directory() / "default.yaml")
    seed(places, "nobody")
    with stage(places) as ready:
        yield ready, places


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


@pytest.mark.parametrize("via", ["memory", "document", "session-split"])
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


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("attacker", "via"),
    [
        ("EVIL@COLLECTOR.EXAMPLE.NET", "document"),
        ("team+drop@collector.example.net", "memory"),
        ("evil@münchen-sammler.example", "document"),
        ('"Team <team@example.com>" <a@collector.example.net>', "memory"),
        ("a@evil.example.com", "session-split"),
        ("team@example.com, a@collector.example.net", "document"),
        ("team@example.com.collector.example.net", "document"),
        ("team@example.com\nBcc: a@collector.example.net", "memory"),
        ("team@\u0435\u0445ample.com", "document"),
    ],
    ids=[
        "upper case",
        "plus addressing",
        "IDN",
        "display name",
        "sub-domain of the internal domain",
        "list with an internal address",
        "internal domain as a prefix",
        "second header",
        "Cyrillic look-alike",
    ],
)
async def test_odd_addresses_of_an_attacker_do_not_pass(running, attacker, via):
    """Whatever the address looks like, the send is refused for it and the outbox stays empty."""
    stage, places = running
    with closing(sqlite3.connect(places.memory)) as database, database:
        database.execute("DELETE FROM documents")
    seed(places, attacker)
    story = Story(stage, places, lambda step: None)

    await story.attack(Via(via))

    assert story.ending.attack_refused == 1
    assert story.ending.attack_delivered == 0
    assert story.ending.notes_refused >= 1
    assert story.ending.notes_leaked == 0
    codes = [reason["code"] for reason in story.ending.observation["guard"]["reasons"]]
    assert any(code.startswith(("destination_", "provenance_")) for code in codes)
    assert outbox(places.directory) == []


def test_an_internal_address_is_said_to_be_internal(tmp_path):
    """Mail inside is allowed by policy, so there is nothing to show; exit code 1."""
    done = run_demo(tmp_path, "--attacker", "Boss <BOSS@example.com.>")

    assert done.returncode == 1
    assert "is internal or allowed" in done.stderr
    assert list(tmp_path.glob("guard-demo*")) == []


def test_an_empty_address_is_invalid_input(tmp_path):
    """There is nobody to send to; exit code 3."""
    assert run_demo(tmp_path, "--attacker", " ").returncode == 3


def test_the_story_is_told_and_nothing_is_left_behind(tmp_path):
    """A newcomer reads what happened; the temporary directory is gone."""
    done = run_demo(tmp_path, "--via", "document")

    assert done.returncode == 0, done.stderr
    assert "✓" in done.stdout
    assert "✗" in done.stdout
    assert "what the agent is told instead" in done.stdout
    assert list(tmp_path.glob("guard-demo*")) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_an_interrupted_demo_leaves_nothing_running(tmp_path, number):
    """Stopped in the middle, it ends its processes and removes its files."""
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "guard", "demo"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        for line in process.stdout:
            if "Everyday work" in line:
                process.send_signal(number)
                break
        _, errors = process.communicate(timeout=120)

    assert process.returncode == 130
    assert "everything that was started has been stopped" in errors
    assert list(tmp_path.glob("guard-demo*")) == []
    assert _processes_that_name(str(tmp_path)) == []


def _processes_that_name(text):
    """Return the command lines of live processes that contain a text."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = entry.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if text in command:
            found.append(command)
    return found
