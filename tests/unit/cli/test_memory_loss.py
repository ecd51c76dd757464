"""``guard memory accept-loss`` against a real Redis."""

import asyncio
import json

import pytest
from typer.testing import CliRunner

from guard import cli
from guard.credentials.label_key import load_label_key
from guard.provenance.seal import Seal
from guard.provenance.store_continuity import LastSeen
from guard.store.connection import RedisClient, parse_endpoint
from guard.store.continuity import ContinuityNote, ContinuityWatch
from guard.store.embedded import EmbeddedRedis

DAY = 86_400


@pytest.fixture(scope="module")
def server():
    """Return a server of the module's own: the command uses the guard's namespace."""
    with EmbeddedRedis() as own:
        yield own


@pytest.fixture
def run(server, tmp_path):
    """Return a function that runs the command with the test's key."""

    def call(*options):
        places = ["--redis", server.url, "--label-key", str(tmp_path / "label.key")]
        return CliRunner().invoke(cli.app, ["memory", "accept-loss", *places, *map(str, options)])

    return call


def look(server, key):
    """Start a guard on the server for one look; return until when labels are incomplete."""

    async def once():
        client = RedisClient(parse_endpoint(server.url), timeout=60.0)
        try:
            seal, note = Seal(load_label_key(key)), ContinuityNote(key, "redis")
            birth = ContinuityWatch(client, seal=seal, note=note, now=lambda: 100.0 * DAY)
            await birth.look(90 * DAY)
            return birth.incomplete_until
        finally:
            await client.aclose()

    return asyncio.run(once())


def test_an_accepted_loss_is_on_record_and_ends(run, server, tmp_path):
    """The line names who and why; a second time there is nothing to accept."""
    key, log = tmp_path / "label.key", tmp_path / "audit.jsonl"
    ContinuityNote(key, "redis").write(LastSeen(bytes(16), 1))
    assert look(server, key) == 190 * DAY

    done = run("--reason", "restored from the archive", "--audit", log)

    assert (done.exit_code, "1970-07-10" in done.output) == (0, True)
    [line] = [json.loads(text) for text in log.read_text(encoding="utf-8").splitlines()]
    assert line["event"] == "guard.labels_loss_accepted"
    assert line["reason"] == "restored from the archive"
    assert look(server, key) == 0
    again = run("--reason", "again", "--audit", log)
    assert (again.exit_code, "lost nothing" in again.output) == (1, True)


@pytest.mark.parametrize(
    ("options", "code"), [(("--reason", " "), 3), (("--reason", "why"), 3), ((), 2)]
)
def test_a_loss_is_not_accepted_without_reason_and_record(run, options, code):
    """Nothing is changed before the line is written."""
    assert run(*options).exit_code == code
