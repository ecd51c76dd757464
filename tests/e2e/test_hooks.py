"""Hooks of coding agents against a running guard: calls that pass, questions, and sessions."""

import json
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from guard.pep.hook import client as hook_client
from guard.pep.hook.payloads import UPSTREAM, Client
from guard.policy import load_policies
from guard.policy.client_config import hook_command
from lab.adopt_hooks import (
    asked,
    dangerous_calls,
    executed,
    honest_calls,
    passes,
    payload,
    running_guard,
)

SEED = 7


@pytest.fixture(name="directory", scope="module")
def _directory(short_directory):
    return short_directory()


@pytest.fixture(name="project", scope="module")
def _project(directory):
    project = directory / "project"
    project.mkdir()
    return project


@pytest.fixture(name="path", scope="module")
def _path(directory, project):
    with running_guard(directory) as path:
        yield path


@pytest.fixture(name="told")
def _told(path, project, request):
    """Report an event of Claude Code in a session of this test; return the hook's output."""
    session = f"{request.node.name[:60]}"

    def told(event, **fields):
        common = {
            "session_id": session,
            "cwd": str(project),
            "hook_event_name": event,
            "permission_mode": "default",
        }
        process = {"process": fields.pop("process")} if "process" in fields else {}
        return asked(path, "claude-code", {**common, **fields}, project, **process)

    return told


def verdict(output):
    """Return what a hook's output decides, empty where it decides nothing."""
    return str(output.get("hookSpecificOutput", {}).get("permissionDecision", ""))


def audited(directory, **fields):
    """Return the lines of the audit log with these members."""
    lines = map(json.loads, (directory / "audit.jsonl").read_text("utf-8").splitlines())
    return [one for one in lines if all(one.get(k) == v for k, v in fields.items())]


def test_no_dangerous_call_passes(path, project):
    """Whatever form the generator gives it."""
    let = [
        call
        for number, call in enumerate(dangerous_calls(project, SEED))
        if passes(asked(path, call.client, payload(call, project, number), project))
    ]

    assert let == []


def test_the_command_answers_as_the_guard_does(path, project):
    """The hook's own program, started as a client starts it."""
    for call in honest_calls(project)[:1] + dangerous_calls(project, SEED)[-1:]:
        told = payload(call, project, 1)
        found, _ = executed(path, call.client, told, project)
        assert passes(found) == passes(asked(path, call.client, told, project))


def test_an_answer_in_the_dialog_holds_for_one_call(told, directory):
    """It is on record as a person's, the result is labelled, and the next call asks again."""
    push = {"tool_name": "Bash", "tool_input": {"command": "git push origin x"}}
    output = told("PreToolUse", **push, tool_use_id="1")
    question = output["hookSpecificOutput"]["permissionDecisionReason"]

    assert verdict(output) == "ask"
    assert not any(code in question for code in ("program_", "coding-", "$."))
    before = len(audited(directory, event="guard.approval", answer="granted"))
    assert told("PostToolUse", **push, tool_use_id="1", tool_response={"stdout": "ok"}) == {}
    assert len(audited(directory, event="guard.approval", answer="granted")) == before + 1
    assert verdict(told("PreToolUse", **push, tool_use_id="2")) == "ask"


def test_a_result_without_a_judged_call_is_withheld(told):
    """A refused call, or one from before the guard was started, has no result."""
    read = {"tool_name": "Read", "tool_input": {"file_path": "/etc/passwd"}}
    for use in ("1", "2"):
        output = told("PostToolUse", **read, tool_use_id=use, tool_response={"a": "b"})
        assert output["continue"] is False
        told("PreToolUse", **read, tool_use_id="2", permission_mode="dontAsk")


def test_the_tools_of_a_client_are_bound_to_its_hooks(
    told,
):
    """A server that offers a tool of the same name gets nothing from their mapping."""
    read = {"tool_input": {"file_path": "a.md"}, "tool_use_id": "1"}

    assert verdict(told("PreToolUse", tool_name="Read", **read)) == ""
    assert verdict(told("PreToolUse", tool_name="mcp__evil__Read", **read)) == "ask"
    assert verdict(told("PreToolUse", tool_name=f"mcp__{UPSTREAM}__Read", **read)) == "ask"


def test_hooks_and_wrapped_servers_of_one_client_are_one_session(path, told, directory, request):
    """The wrapper judges the server's calls; of another process's client the hook does."""
    call = {"tool_name": "mcp__files__t", "tool_input": {}, "tool_use_id": "1"}
    hello = {"op": "hello", "policy": load_policies([Path("builtin:coding-agent")]).digest}
    frame = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "t"}}
    with closing(socket.socket(socket.AF_UNIX)) as wrapper:
        wrapper.connect(str(path))
        lines = wrapper.makefile("rwb")

        def said(question):
            lines.write(json.dumps({**question, "n": 1}).encode() + b"\n")
            lines.flush()
            return json.loads(lines.readline())

        assert said({**hello, "name": "files", "client": "4242"})["ok"]
        told("UserPromptSubmit", prompt="Hello.", process="4242")
        assert verdict(told("PreToolUse", **call, process="4242")) == ""
        assert verdict(told("PreToolUse", **call, process="4243")) == "ask"
        assert verdict(told("PreToolUse", **call)) == "ask"
        said({"op": "request", "frame": json.dumps(frame)})
    session = f"claude-code-{request.node.name[:60]}"
    assert audited(directory, session=session, server="stdio:files", tool="t")


@pytest.mark.parametrize("client", [*Client, "", "another"])
@pytest.mark.parametrize("extra", [[], ["--decisions"], ["--decisions", "/nonexistent/d.sock"]])
def test_without_a_guard_the_call_is_refused(client, extra):
    """By the exit code that every client reads as a refusal, with a message."""
    words = [sys.executable, "-I", "-S", str(hook_client.__file__), str(client), *extra]
    done = subprocess.run(
        words, input=b"{}", capture_output=True, check=False, env={"XDG_STATE_HOME": "/nonexistent"}
    )

    assert done.returncode == hook_client.REFUSED
    assert done.stderr.startswith((b"the egress guard", b"guard hook"))
    assert not done.stdout


def test_a_hook_that_is_gone_refuses():
    """Clients run a call whose hook ends with another code than 2."""
    command = hook_command(["/nonexistent/python", "client.py"])
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, check=False)

    assert done.returncode == hook_client.REFUSED
