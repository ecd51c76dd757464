"""The tool mappings of well-known services load beside the shipped policy, alone and together."""

from pathlib import Path

import pytest

from guard.core.calls import untraced
from guard.core.model import Identity, Role, ToolCall
from guard.core.policy import Situation, decide
from guard.core.trajectory import Snapshot, Trajectory, Window
from guard.pipeline.classification import classify
from guard.policy import load_policies

POLICIES = Path(__file__).parents[2] / "policies"
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
        {reason.rule for reason in _verdict(policy, tool, arguments).reasons}
        for arguments in (asked, honest)
    ]

    assert rule in said[0] - said[1]


def _verdict(policy, tool, arguments):
    call = classify(policy, ToolCall("id", Identity("p", "s"), tool, arguments, "mcp", 0.0))
    window = Window(Trajectory.of(()), attempted=Trajectory.of(()).executed)
    return decide(policy, Situation(untraced(call), Snapshot(window, window), ()))


@pytest.mark.parametrize("path", SERVICES, ids=lambda path: path.stem)
def test_a_service_loads_and_every_send_says_who_receives(path):
    """A send without a destination would never be asked about."""
    load_policies([POLICIES / "default.yaml", path])
    alone = load_policies([path])

    assert all(m.destinations or m.reading.reply for m in alone.tools if m.role is Role.SEND)
