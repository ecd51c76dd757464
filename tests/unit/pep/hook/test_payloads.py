"""Hook payloads as clients send them: paths, patches, prompts, and the clients' answers."""

import json

import pytest

from guard.core.errors import MessageError
from guard.pep.hook.payloads import (
    CWD,
    PATHS,
    PROJECT,
    Client,
    Decision,
    Kind,
    answer_to_call,
    answer_to_result,
    given_arguments,
    judged,
    read_hook,
)

CLAUDE = {
    "session_id": "a",
    "transcript_path": "/t.jsonl",
    "cwd": "/",
    "permission_mode": "default",
    "hook_event_name": "PreToolUse",
    "tool_name": "Bash",
    "tool_input": {"command": "ls", "description": "x"},
    "tool_use_id": "u",
}
"""A recorded payload of Claude Code 2.1.197; Codex 0.171 adds `turn_id` and `model`."""
CURSOR = {
    "conversation_id": "c",
    "generation_id": "g",
    "hook_event_name": "beforeShellExecution",
    "workspace_roots": ["/srv/code"],
    "command": "ls",
    "cwd": "",
}
ASK = Decision("ask", "May it?", "not allowed")


@pytest.fixture(name="project")
def _project(tmp_path):
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (tmp_path / "secret").write_text("s")
    (project / "link").symlink_to(tmp_path / "secret")
    (project / "folder").symlink_to(tmp_path)
    return project.resolve()


@pytest.mark.parametrize("name", ["file_path", "notebook_path", "path", "target_file"])
@pytest.mark.parametrize(
    ("path", "inside"),
    [
        ("{p}/src/a.py", "src/a.py"),
        ("src/../src/a.py", "src/a.py"),
        ("{p}", "."),
        ("{p}/../secret", None),
        ("link", None),
        ("folder/secret", None),
        ("~/x", None),
        ("~nobody-of-this-name/x", "~nobody-of-this-name/x"),
        ("{p}x/a", None),
        ("/etc/passwd", None),
    ],
)
def test_a_path_is_relative_only_inside_the_project(project, name, path, inside):
    """Links and dots are resolved first."""
    given = path.replace("{p}", str(project))

    found = judged("Read", {name: given}, str(project), str(project))[name]

    assert found == inside if inside else str(found).startswith("/")


@pytest.mark.parametrize(
    ("patch", "paths"),
    [
        ("*** Begin Patch\n*** Add File: a.py\n+x\n*** End Patch", ["a.py"]),
        ("*** Update File: a.py\n*** Move to: ../b\n", ["a.py", "/"]),
        ("  *** Delete File: /etc/passwd  \n", ["/"]),
        ("something else", ["/"]),
        ("", ["/"]),
    ],
)
def test_every_file_of_a_patch_is_judged(project, patch, paths):
    """A patch that names no file counts as one outside."""
    found = judged("apply_patch", {"command": patch, PATHS: ["a"]}, str(project), "")[PATHS]

    assert isinstance(found, list)
    assert [one if not one.startswith("/") else "/" for one in map(str, found)] == paths


def test_the_agent_chooses_neither_project_nor_directory(project):
    """Arguments of these names are replaced."""
    found = judged("Bash", {"command": "ls", PROJECT: "/", CWD: "/etc"}, str(project), "/tmp")

    assert (found[PROJECT], found[CWD]) == (str(project), "/etc")


@pytest.mark.parametrize(
    ("source", "kind"),
    [(None, Kind.PROMPT), ("user", Kind.PROMPT), ("sdk", Kind.PROMPT)]
    + [(one, Kind.OTHER) for one in ("system", "loop_wakeup", "schedule_wakeup", "poll_event", 1)],
)
def test_only_a_typed_prompt_is_a_prompt(source, kind):
    """A program that wakes the session attests nothing."""
    told = {**CLAUDE, "hook_event_name": "UserPromptSubmit", "prompt": "p"}
    told |= {} if source is None else {"source": source}

    assert read_hook(Client.CLAUDE_CODE, told, "/").kind is kind


TOOL = {**CURSOR, "hook_event_name": "preToolUse", "tool_use_id": "u", "tool_input": {}}


@pytest.mark.parametrize(
    ("client", "told", "has_dialog"),
    [
        (Client.CLAUDE_CODE, CLAUDE, True),
        *(
            (Client.CLAUDE_CODE, {**CLAUDE, "permission_mode": mode}, False)
            for mode in ("bypassPermissions", "dontAsk", "auto", "another")
        ),
        (Client.CODEX, CLAUDE, False),
        (Client.CURSOR, CURSOR, True),
        (Client.CURSOR, {**TOOL, "tool_name": "Write"}, False),
    ],
)
def test_a_mode_or_an_event_without_a_dialog_has_none(client, told, has_dialog):
    """A question that nobody sees is a refusal; shell and MCP have events of their own."""
    assert read_hook(client, told, "/").has_dialog is has_dialog
    shell = read_hook(Client.CURSOR, {**TOOL, "tool_name": "Shell"}, "/")
    assert shell.kind is Kind.OTHER


def test_a_result_of_cursor_belongs_to_its_call():
    """Events of shell and MCP have no id."""
    server = {"tool_name": "t", "tool_input": '{"a": 1}', "command": "guard stdio --name m -- x"}
    for event in ("ShellExecution", "MCPExecution"):
        call, result = f"before{event}", f"after{event}"
        first = read_hook(Client.CURSOR, {**CURSOR, **server, "hook_event_name": call}, "/")
        last = read_hook(Client.CURSOR, {**CURSOR, **server, "hook_event_name": result}, "/")
        assert (first.kind, last.kind) == (Kind.CALL, Kind.RESULT)
        assert (first.use, first.tool, first.server) == (last.use, last.tool, last.server)
        assert first.server in {"", "m"}


@pytest.mark.parametrize("change", [{"tool_input": []}, {"tool_name": ""}, {"session_id": 1}])
def test_an_unreadable_payload_is_refused(change):
    """Never passed on."""
    with pytest.raises(MessageError):
        read_hook(Client.CLAUDE_CODE, {**CLAUDE, **change}, "/")


REDACTED = Decision("redact", "Redacted.", arguments={"command": "ls -"})


@pytest.mark.parametrize(
    ("decision", "claude", "codex", "cursor"),
    [
        (ASK, "ask", "ask", "ask"),
        (Decision("block", "no", "no"), "deny", "deny", "deny"),
        (REDACTED, "ask", "allow", "deny"),
        (Decision("allow"), None, None, None),
    ],
    ids=["ask", "block", "redact", "allow"],
)
def test_each_client_gets_an_answer_that_it_obeys(decision, claude, codex, cursor):
    """Codex ignores `allow` without new arguments; `ask` it never gets, as it has no dialog."""
    told = answer_to_call(read_hook(Client.CURSOR, CURSOR, "/"), decision)
    assert told.get("permission") == cursor
    for client, expected in ((Client.CLAUDE_CODE, claude), (Client.CODEX, codex)):
        found = answer_to_call(read_hook(client, CLAUDE, "/"), decision)
        specific = found.get("hookSpecificOutput", {})
        assert specific.get("permissionDecision") == expected
        assert bool(specific.get("permissionDecisionReason")) is (expected is not None)
        assert expected != "allow" or "updatedInput" in specific


def test_a_withheld_result_is_replaced():
    """In the form of each client."""
    told = {**CLAUDE, "hook_event_name": "PostToolUse", "tool_response": {"stdout": "s"}}
    for client in (Client.CLAUDE_CODE, Client.CODEX):
        hook = read_hook(client, told, "/")
        assert hook.result == {"stdout": "s"}
        assert "s3cret" not in json.dumps(answer_to_result(hook, "withheld"))
        assert "withheld" in json.dumps(answer_to_result(hook, "withheld"))


def test_redacted_arguments_keep_the_paths_of_the_client(project):
    """The tool gets what it was called with, and nothing that the guard added."""
    told = {**CLAUDE, "tool_name": "Write", "cwd": str(project)}
    told["tool_input"] = {"file_path": f"{project}/src/a", "content": "key"}
    hook = read_hook(Client.CLAUDE_CODE, told, str(project))

    assert given_arguments(hook, {**hook.arguments, "content": "…"}) == {
        "file_path": f"{project}/src/a",
        "content": "…",
    }
