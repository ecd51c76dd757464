"""A policy in a real repository: rehearsed in a process of its own, committed."""

import subprocess

import pytest

from guard.core.errors import InputError
from guard.core.model import Role as ToolRole
from guard.operations.deployment import Person, Role
from guard.operations.policy_drafts import PolicyActions, PolicyDrafts
from guard.policy.proposal import ListedTool, mapping_text
from guard.telemetry.audit_log import NoAuditLog
from tests.unit.console.conftest import POLICY, TESTS

LOOSER = POLICY.replace("effect: block", "effect: ask")
PAT = Person("pat <root>", frozenset({Role.AUTHOR}))


def git(where, *arguments):
    """Run git as somebody else than the console."""
    command = ["git", "-c", "user.name=olga", "-c", "user.email=o@corp.example", *arguments]
    ended = subprocess.run(command, cwd=where, capture_output=True, check=True, text=True)
    return ended.stdout


@pytest.fixture
def policy(tmp_path):
    """A policy with its test, committed, in a directory of a repository."""
    path = tmp_path / "rules" / "mail.yaml"
    path.parent.mkdir()
    path.write_text(POLICY, "utf-8")
    path.with_name("mail_test.yaml").write_text(TESTS, "utf-8")
    (tmp_path / "other.txt").write_text("as it was", "utf-8")
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "the first policy")
    return path


@pytest.fixture
def bench(policy):
    """A workbench that may commit."""
    return PolicyDrafts([policy], commits=True)


def test_a_commit_has_the_files_the_reason_and_the_person(bench, policy, tmp_path):
    """Only the policy's files are committed, by who clicked; what else lies there stays out."""
    (tmp_path / "other.txt").write_text("changed by hand", "utf-8")
    draft = bench.keep(PAT, 0.0, {str(policy): LOOSER})
    commit = bench.commit(draft, "strangers are asked about", PAT.name)

    assert policy.read_text("utf-8") == LOOSER
    assert git(tmp_path, "status", "--porcelain") == " M other.txt\n"
    assert git(tmp_path, "log", "-1", "--format=%H %an: %s") == (
        f"{commit} pat root: strangers are asked about\n"
    )


def test_a_file_that_somebody_else_changed_is_not_overwritten(bench, policy):
    """Two people at once: the second begins anew, the first one's work stays."""
    draft = bench.keep(PAT, 0.0, {str(policy): LOOSER})
    policy.write_text(POLICY + "# by hand\n", "utf-8")
    with pytest.raises(InputError, match="has changed"):
        bench.commit(draft, "looser", PAT.name)
    assert policy.read_text("utf-8") == POLICY + "# by hand\n"


TOOL = ListedTool("note_add", {"text": {"type": "string"}}, {}, "ab" * 16)


async def test_an_unmapped_tool_becomes_a_draft_with_a_test(bench, policy):
    """Nothing is in force before the commit, and the tests run by themselves, in a process."""
    rule = "  - {id: rest, type: tool, roles: [other], effect: allow}\n"
    policy.write_text(POLICY + rule, "utf-8")
    actions = PolicyActions(bench, None, NoAuditLog(), lambda: 0.0)
    draft = await actions.map_tools(PAT, [mapping_text("notes.test:443/mcp", TOOL, ToolRole.OTHER)])

    tests = draft.rehearsals["tests"]
    assert draft.texts[str(policy)].count("notes.test:443/mcp") == 1
    assert policy.read_text("utf-8") == POLICY + rule
    done = tests["result"]["tests"]
    assert (tests["error"], done["run"], done["failed"]) == ("", 3, [])
