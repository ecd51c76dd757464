"""A policy in a real repository: rehearsed in a process of its own, committed, taken back."""

from __future__ import annotations

import asyncio
import subprocess

import pytest

from guard.core.errors import GuardError, InputError
from guard.operations.people import Person, Role
from guard.operations.policy_drafts import PolicyDrafts
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
    draft = bench.begin(PAT, 0.0, {str(policy): LOOSER})
    commit = bench.commit(draft, "strangers are asked about", PAT.name)

    assert policy.read_text("utf-8") == LOOSER
    assert git(tmp_path, "status", "--porcelain") == " M other.txt\n"
    newest, oldest = bench.history.changes()
    assert (newest.commit, newest.author) == (commit, "pat root")
    assert (newest.subject, oldest.author) == ("strangers are asked about", "olga")
    assert "+  - {id: outside" in bench.history.difference(commit)


def test_taking_a_commit_back_is_a_draft_like_any_other(bench, policy):
    """Undo begins from the text before; nothing changes until that is committed in turn."""
    draft = bench.begin(PAT, 0.0, {str(policy): LOOSER})
    commit = bench.commit(draft, "looser", PAT.name)
    texts = bench.history.before(commit)
    back = bench.begin(PAT, 0.0, texts)

    assert texts == {str(policy): POLICY}
    assert policy.read_text("utf-8") == LOOSER
    bench.commit(back, "not so loose", PAT.name)
    assert policy.read_text("utf-8") == POLICY
    assert len(bench.history.changes()) == 3


def test_the_patch_is_one_that_git_applies(bench, policy, tmp_path):
    """Whoever reviews changes elsewhere takes the same change there."""
    draft = bench.begin(PAT, 0.0, {str(policy): LOOSER})
    (tmp_path / "change.patch").write_text(bench.patch(draft), "utf-8")
    git(tmp_path, "apply", "change.patch")
    assert policy.read_text("utf-8") == LOOSER


def test_a_file_that_somebody_else_changed_is_not_overwritten(bench, policy):
    """Two people at once: the second begins anew, the first one's work stays."""
    draft = bench.begin(PAT, 0.0, {str(policy): LOOSER})
    policy.write_text(POLICY + "# by hand\n", "utf-8")
    with pytest.raises(InputError, match="has changed"):
        bench.commit(draft, "looser", PAT.name)
    late = bench.begin(PAT, 0.0, {str(policy): LOOSER})
    with pytest.raises(InputError, match="not committed"):
        bench.commit(late, "looser", PAT.name)
    assert policy.read_text("utf-8") == POLICY + "# by hand\n"


def test_what_git_refuses_leaves_the_files_as_they_were(bench, policy, tmp_path):
    """A hook of the repository that says no is a no, and guards never see the text."""
    hook = tmp_path / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho needs a ticket >&2\nexit 1\n", "utf-8")
    hook.chmod(0o755)
    draft = bench.begin(PAT, 0.0, {str(policy): LOOSER})
    with pytest.raises(GuardError, match="needs a ticket"):
        bench.commit(draft, "looser", PAT.name)
    assert policy.read_text("utf-8") == POLICY


def test_a_draft_with_a_problem_is_not_committed(bench, policy):
    """What a guard would refuse to load does not get into Git from here."""
    draft = bench.begin(PAT, 0.0, {str(policy): "version: 1\nname: x\nrulez: []\n"})
    with pytest.raises(InputError, match="unknown field"):
        bench.commit(draft, "broken", PAT.name)
    assert policy.read_text("utf-8") == POLICY


@pytest.mark.parametrize("commit", ["HEAD", "--output=/tmp/x", "", "zz", "0000"])
def test_a_commit_is_named_by_its_digits_only(bench, commit):
    """No option, branch or path gets to git through a URL."""
    with pytest.raises(GuardError):
        bench.history.difference(commit)


async def test_a_draft_is_rehearsed_in_a_process_of_its_own(bench, policy):
    """Tests run beside the console, and an edit forgets what was found of the text before."""
    draft = bench.begin(PAT, 0.0, {str(policy): LOOSER})
    bench.rehearse(draft)
    await asyncio.wait_for(bench.settled(), 120)
    found = draft.rehearsals["tests"].result["tests"]

    assert [one["name"] for one in found["failed"]] == ["mail outside is refused"]
    bench.edit(draft, {str(policy): POLICY}, PAT)
    assert draft.rehearsals == {}
    assert draft.texts == {}


async def test_a_rehearsal_that_fails_says_why(policy, tmp_path):
    """No recordings in the directory: an error on the page, and the console goes on."""
    bench = PolicyDrafts([policy], recordings=tmp_path / "none", key=tmp_path / "none.key")
    draft = bench.begin(PAT, 0.0, {str(policy): LOOSER})
    bench.rehearse(draft, since=0.0, until=3600.0)
    await asyncio.wait_for(bench.settled(), 120)
    assert "key" in draft.rehearsals["travel"].error


async def test_the_end_of_the_console_ends_what_it_started(bench, policy):
    """Nobody is left computing for a page that is gone."""
    draft = bench.begin(PAT, 0.0, {str(policy): LOOSER})
    bench.rehearse(draft)
    await asyncio.sleep(0)
    await bench.aclose()
    assert bench._tasks == set()
