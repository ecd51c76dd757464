"""Editing a policy on the console: drafts, problems by line, patches, and who may."""

import pytest

from guard.core.errors import InputError
from guard.operations.deployment import Person, Role
from tests.unit.console.conftest import POLICY, events

LOOSER = POLICY.replace("effect: block", "effect: ask")


def _draft(answer):
    assert answer.status_code == 303, answer.text
    return answer.headers["location"]


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
        form = {"file": str(policy_file), "text": LOOSER, "draft": ""}
        path = _draft(await client.post("/policies/drafts", data=form))
        answer = await client.post(f"{path}/commit", data={"message": "looser"})
        nothing = await client.post(f"{path}/commit", data={"message": " "})

    assert (answer.status_code, nothing.status_code) == (400, 400)
    assert policy_file.read_text("utf-8") == POLICY
    acts = events(console, "guard.policy_change")
    assert [one["act"] for one in acts] == ["commit", "failed"]


TWO = POLICY.replace("tools:\n", "approvals: {changes: two_people}\ntools:\n")


@pytest.fixture
def commits(console, policy_file, monkeypatch):
    """What is committed on a console whose policy has two people agree to changes."""
    policy_file.write_text(TWO, "utf-8")
    made = []

    def commit(texts, message, who):
        made.append((message, who))
        return "c0ffee"

    monkeypatch.setattr(console.drafts, "commits", True)
    monkeypatch.setattr(console.drafts.history, "commit", commit)
    return made


async def _kept(client, policy_file, text):
    form = {"file": str(policy_file), "text": text, "draft": ""}
    return _draft(await client.post("/policies/drafts", data=form))


@pytest.mark.parametrize("text", [TWO.replace("effect: block", "effect: ask"), POLICY])
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
    assert commits == [("looser\n\nReviewed-by: kim", "pat")]
    acts = [(one["act"], one["by"]) for one in events(console, "guard.policy_change")]
    assert acts == [("second", "kim"), ("commit", "pat"), ("committed", "pat")]


async def test_an_edit_asks_for_the_second_person_anew(console, policy_file, commits):
    """What was agreed to is the text as it was; whoever edits it has written in it."""
    looser = TWO.replace("effect: block", "effect: ask")
    async with console.as_("author") as pat, console.as_("author", name="kim") as kim:
        path = await _kept(pat, policy_file, looser)
        await kim.post(f"{path}/second")
        form = {"file": str(policy_file), "text": looser + "# more\n"}
        await kim.post("/policies/drafts", data={**form, "draft": path.rpartition("/")[2]})
        stale = await pat.post(f"{path}/commit", data={"message": "looser"})
        both = await kim.post(f"{path}/second")

    assert (stale.status_code, both.status_code, commits) == (400, 400, [])


async def test_what_is_committed_is_what_was_agreed_to(console, policy_file, commits, monkeypatch):
    """Its author writes on while the draft is checked."""
    looser = TWO.replace("effect: block", "effect: ask")
    async with console.as_("author") as pat, console.as_("author", name="kim") as kim:
        path = await _kept(pat, policy_file, looser)
        await kim.post(f"{path}/second")
        draft, valid, texts = (
            console.drafts.draft(path.rpartition("/")[2]),
            console.drafts.valid,
            [],
        )

        def late(checked):
            draft.texts[str(policy_file)] = POLICY
            return valid(checked)

        monkeypatch.setattr(console.drafts, "valid", late)
        monkeypatch.setattr(
            console.drafts.history, "commit", lambda found, *_: texts.extend(found.values()) or "id"
        )
        done = await pat.post(f"{path}/commit", data={"message": "looser"})

    assert done.status_code == 303
    assert texts == [looser]


@pytest.mark.parametrize("realm", ["link", "https://idp.test"])
async def test_who_signed_in_otherwise_is_no_second_person(console, policy_file, commits, realm):
    """That a machine's account, or one of another list, is somebody else is not known."""
    async with console.as_("author") as pat:
        path = await _kept(pat, policy_file, TWO.replace("effect: block", "effect: ask"))
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

    assert (page.status_code, alone.status_code, commits) == (200, 400, [])
