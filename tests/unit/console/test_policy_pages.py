"""Editing a policy on the console: drafts, problems by line, patches, and who may."""

from unittest.mock import Mock

import pytest

from guard.core.errors import InputError
from guard.operations.deployment import Person, Role
from tests.unit.console.conftest import POLICY, events

LOOSER = POLICY.replace("effect: block", "effect: ask")


@pytest.mark.parametrize("name", ["/etc/passwd", "../audit.jsonl", ""])
async def test_only_the_policys_own_files_are_read_and_written(console, name):
    """A name of another file is refused, wherever it points."""
    async with console.as_("admin") as client:
        read = await client.get("/policies/edit", params={"file": name})
        written = await client.post("/policies/drafts", data={"file": name, "text": "x"})

    assert (read.status_code, written.status_code) == (400, 400)


async def test_a_console_that_may_not_commit_does_not(console, policy_file):
    """Without --console-commit, or without a repository, the patch is what there is."""
    async with console.as_("author") as client:
        path = await _kept(client, policy_file, LOOSER)
        answer = await client.post(f"{path}/commit", data={"message": "looser"})
        nothing = await client.post(f"{path}/commit", data={"message": " "})

    assert (answer.status_code, nothing.status_code) == (400, 400)
    assert policy_file.read_text("utf-8") == POLICY
    acts = events(console, "guard.policy_change")
    assert [one["act"] for one in acts] == ["commit", "failed"]


TWO = POLICY.replace("tools:\n", "approvals: {changes: two_people}\ntools:\n")
TWO_LOOSER = TWO.replace("effect: block", "effect: ask")


@pytest.fixture
def commits(console, policy_file, monkeypatch):
    """What is committed on a console whose policy has two people agree to changes."""
    policy_file.write_text(TWO, "utf-8")
    commit = Mock(return_value="c0ffee")
    monkeypatch.setattr(console.drafts, "commits", True)
    monkeypatch.setattr(console.drafts.history, "commit", commit)
    return commit


async def _kept(client, policy_file, text):
    form = {"file": str(policy_file), "text": text, "draft": ""}
    answer = await client.post("/policies/drafts", data=form)
    assert answer.status_code == 303, answer.text
    return answer.headers["location"]


@pytest.mark.parametrize("text", [TWO_LOOSER, POLICY])
async def test_a_change_needs_a_second_person(console, policy_file, commits, text):
    """Neither its writer alone, nor a change that takes the rule itself away."""
    async with console.as_("author") as pat, console.as_("author", name="kim") as kim:
        path = await _kept(pat, policy_file, text)
        alone = await pat.post(f"{path}/commit", data={"message": "looser"})
        own = await pat.post(f"{path}/second")
        asked = (await kim.get(path)).text
        agreed = await kim.post(f"{path}/second")
        shown = (await pat.get(path)).text
        done = await pat.post(f"{path}/commit", data={"message": "looser"})

    assert [one.status_code for one in (alone, own, agreed, done)] == [400, 400, 303, 303]
    assert "two people agree to a change" in asked
    assert "kim agrees to it as it is now" in shown
    assert commits.call_args.args[1:] == ("looser\n\nReviewed-by: kim", "pat")
    acts = [(one["act"], one["by"]) for one in events(console, "guard.policy_change")]
    assert acts == [("second", "kim"), ("commit", "pat"), ("committed", "pat")]


async def test_an_edit_asks_for_the_second_person_anew(console, policy_file, commits):
    """What was agreed to is the text as it was; whoever edits it has written in it."""
    async with console.as_("author") as pat, console.as_("author", name="kim") as kim:
        path = await _kept(pat, policy_file, TWO_LOOSER)
        await kim.post(f"{path}/second")
        form = {"file": str(policy_file), "text": TWO_LOOSER + "# more\n"}
        await kim.post("/policies/drafts", data={**form, "draft": path.rpartition("/")[2]})
        stale = await pat.post(f"{path}/commit", data={"message": "looser"})
        both = await kim.post(f"{path}/second")

    assert (stale.status_code, both.status_code, commits.called) == (400, 400, False)


async def test_what_is_committed_is_what_was_agreed_to(console, policy_file, commits, monkeypatch):
    """Its author writes on while the draft is checked."""
    async with console.as_("author") as pat, console.as_("author", name="kim") as kim:
        path = await _kept(pat, policy_file, TWO_LOOSER)
        await kim.post(f"{path}/second")
        draft, valid = console.drafts.draft(path.rpartition("/")[2]), console.drafts.valid

        def late(checked):
            draft.texts[str(policy_file)] = POLICY
            return valid(checked)

        monkeypatch.setattr(console.drafts, "valid", late)
        done = await pat.post(f"{path}/commit", data={"message": "looser"})

    assert done.status_code == 303
    assert list(commits.call_args.args[0].values()) == [TWO_LOOSER]


@pytest.mark.parametrize("realm", ["link", "https://idp.test"])
async def test_who_signed_in_otherwise_is_no_second_person(console, policy_file, commits, realm):
    """That a machine's account, or one of another list, is somebody else is not known."""
    async with console.as_("author") as pat:
        path = await _kept(pat, policy_file, TWO_LOOSER)
    draft = console.drafts.draft(path.rpartition("/")[2])
    with pytest.raises(InputError, match="in the same way"):
        console.policies.agree(draft, Person("kim", frozenset({Role.AUTHOR}), realm))

    assert draft.seconded == ""


async def test_a_second_person_counts_where_no_policy_can_be_read(console, policy_file, commits):
    """Files that hold no policy say nothing of how many it takes."""
    async with console.as_("author") as pat:
        path = await _kept(pat, policy_file, POLICY)
        policy_file.write_text("version: what\n", "utf-8")
        console.drafts.draft(path.rpartition("/")[2]).base.clear()
        page = await pat.get(path)
        alone = await pat.post(f"{path}/commit", data={"message": "repair"})

    assert (page.status_code, alone.status_code, commits.called) == (200, 400, False)


async def test_a_candidate_decides_for_nobody_before_a_second_person(console, policy_file):
    """A shadow trial needs one; to let it decide takes somebody who did not write it."""
    policy_file.write_text(TWO, "utf-8")
    looser, begun = TWO_LOOSER.replace("name: mail", "name: looser"), []
    async with console.as_("author") as pat, console.as_("author", name="kim") as kim:
        for form in ({"principals": "alice"}, {"share": "0.1"}, {}):
            path = await _kept(pat, policy_file, looser)
            begun.append(await pat.post(f"{path}/trial", data={"share": "0", **form}))
        page = (await pat.get("/policies/trial")).text
        trial = page.partition('name="trial" value="')[2].partition('"')[0]
        decided = [
            await who.post("/policies/trial", data={"trial": trial, "share": share})
            for who, share in ((pat, "1.0"), (kim, "0.1"), (pat, "1.0"), (pat, "0.0"))
        ]

    assert [one.status_code for one in begun] == [400, 400, 303]
    assert [one.status_code for one in decided] == [400, 303, 303, 303]
