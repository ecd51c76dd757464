"""0.2 goes on where 0.1 stopped: its key, its policy, its labels, its pins and its grants.

``upgrade/state_0_1.json`` is what a guard of 0.1 (commit e13ac6f) left in its Redis after it had
read a mail that names ``drop@evil.test``, saved that, recalled it in another session, refused to
send there, asked about ``fresh@partner.example`` (approved, not sent yet) and sent inside.  The
other way round, a guard of 0.1 on the state of this version stops what it cannot vouch for.
"""

import base64
import json
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from guard.pipeline.exchange import Exchange
from guard.runtime.wiring import assemble
from guard.settings import Settings
from tests.roads import http_request, in_session, tool_call

FOLDER = Path(__file__).parent / "upgrade"
LEFT = json.loads((FOLDER / "state_0_1.json").read_text(encoding="utf-8"))
LISTENER = "127.0.0.1:19334"
UPSTREAM = "127.0.0.1:19333"
IDS = count(101)


@pytest.fixture
def kept_key(tmp_path):
    """Return the key of 0.1, with the note beside it."""
    tmp_path.chmod(0o700)
    key = tmp_path / "label.key"
    key.touch(mode=0o600)
    key.write_bytes(base64.b64decode(LEFT["label_key"]))
    (tmp_path / "label.key.redis-birth").write_bytes(base64.b64decode(LEFT["note"]))
    return key


@pytest.fixture
async def upgraded(own_server, kept_key):
    """Return a guard of this version with the key, the policy and the state that 0.1 left."""
    settings = Settings(
        policy=[FOLDER / "policy_0_1.yaml"],
        redis=own_server.url,
        label_key=kept_key,
        reverse=[f"{LISTENER}=http://{UPSTREAM}"],
    )
    clock = SimpleNamespace(now=lambda: LEFT["at"] + 60.0)
    parts = assemble(settings, own_server.url, None, kept_key.parent, clock=clock)
    await parts.store.client.execute("FLUSHALL")
    for name, (dump, life) in LEFT["keys"].items():
        place, payload = base64.b64decode(name), base64.b64decode(dump)
        await parts.store.client.execute("RESTORE", place, str(max(life, 0)), payload)
    await parts.store.verify()
    yield parts
    await parts.store.aclose()


async def mail(parts, session, receiver):
    """Return why a mail does not go out, empty where it does."""
    call = tool_call("send_email", {"to": receiver, "body": "hello"}, next(IDS))
    request = http_request(call, in_session(session), host=UPSTREAM, server=LISTENER)
    outcome = await parts.enforcement.requests.on_request(request)
    if isinstance(outcome, Exchange):
        return ""
    return str(json.loads(outcome.body)["result"]["content"][0]["text"])


async def test_an_address_that_0_1_knew_as_untrusted_still_is(upgraded):
    """In the session that recalled it, and in one that has never seen it."""
    assert "provenance_tainted" in await mail(upgraded, "s2", "drop@evil.test")
    assert "provenance_tainted" in await mail(upgraded, "s9", "drop@evil.test")


async def test_the_store_is_recognised_and_what_0_1_let_out_still_goes(upgraded, capsys):
    """Its policy is read as it was; a loss would ask about unknown receivers for 90 days."""
    assert await mail(upgraded, "s2", "team@example.com") == ""
    assert not upgraded.metrics.failing()
    assert "lost" not in capsys.readouterr().err


async def test_a_grant_of_0_1_releases_nothing(upgraded):
    """It was bound to less than a grant is bound to now; a person is asked again."""
    assert "needs approval" in await mail(upgraded, "s2", "fresh@partner.example")
