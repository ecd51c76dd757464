"""The pages on which a policy is edited, checked, tried on the past, and put into Git."""

from __future__ import annotations

import asyncio
import difflib
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response

from guard.console.access import Role
from guard.console.routes import Page, field_of, number, person_of
from guard.core.errors import InputError
from guard.policy_files.json_schema import policy_schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from guard.adapters.audit_log import AuditLogFile, NoAuditLog
    from guard.console.pages import Templates
    from guard.console.policy_drafts import Draft, PolicyDrafts

EVENT: Final = "guard.policy_change"
HOURS: Final = (1, 6, 24, 72, 168)
MOST_HOURS: Final = 24 * 31


class PolicyPages:
    """Pages over the drafts of one policy.

    Args:
        drafts: the drafts.
        templates: of the console.
        audit: takes a line per act.
        now: seconds since the epoch.
    """

    def __init__(
        self,
        drafts: PolicyDrafts,
        templates: Templates,
        audit: AuditLogFile | NoAuditLog,
        now: Callable[[], float],
    ) -> None:
        self._drafts = drafts
        self._shown = templates.shown
        self._audit = audit
        self._now = now

    def table(self) -> list[Page]:
        """Return the routes."""
        view, author = Role.VIEWER, Role.AUTHOR
        return [
            Page("/policies", self.overview, view),
            Page("/policies/schema.json", self.schema, view),
            Page("/policies/edit", self.edit, view),
            Page("/policies/check", self.check, author, "POST"),
            Page("/policies/drafts", self.save, author, "POST"),
            Page("/policies/drafts/{draft}", self.draft, view),
            Page("/policies/drafts/{draft}/patch", self.patch, view),
            Page("/policies/drafts/{draft}/tests", self.tests, author, "POST"),
            Page("/policies/drafts/{draft}/travel", self.travel, author, "POST"),
            Page("/policies/drafts/{draft}/second", self.second, author, "POST"),
            Page("/policies/drafts/{draft}/commit", self.commit, author, "POST"),
            Page("/policies/drafts/{draft}/discard", self.discard, author, "POST"),
            Page("/policies/history/{commit}", self.change, view),
            Page("/policies/undo", self.undo, author, "POST"),
            Page("/api/policies/drafts/{draft}", self.api_draft, view),
        ]

    async def overview(self, request: Request) -> Response:
        """What is in force, drafts, and who changed it when."""
        drafts = self._drafts
        checked = await asyncio.to_thread(drafts.check, {})
        return self._shown(
            request,
            "policies",
            files=drafts.files,
            checked=checked,
            drafts=drafts.drafts(),
            changes=await asyncio.to_thread(drafts.history.changes),
            kept=drafts.history.kept,
        )

    async def schema(self, request: Request) -> Response:
        """The JSON schema of policy files."""
        del request
        return JSONResponse(_schema())

    async def edit(self, request: Request) -> Response:
        """A file in an editor, with what the schema knows of each field beside it."""
        draft = self._draft(request.query_params.get("draft", ""))
        path = self._drafts.file(request.query_params.get("file", ""))
        text = (draft.texts if draft else {}).get(str(path))
        if text is None:
            text = await asyncio.to_thread(self._drafts.text, path)
        return self._shown(
            request,
            "policy_edit",
            file=path,
            text=text,
            draft=draft,
            reference=_reference(),
            checked=None,
        )

    def _draft(self, identifier: str) -> Draft | None:
        return self._drafts.draft(identifier) if identifier else None

    async def check(self, request: Request) -> Response:
        """What is wrong with a text, line by line, while it is written."""
        form = request.state.form
        draft = self._draft(field_of(form, "draft"))
        name = str(self._drafts.file(field_of(form, "file")))
        text = field_of(form, "text").replace("\r\n", "\n")
        texts = {**(draft.texts if draft else {}), name: text}
        checked = await asyncio.to_thread(self._drafts.check, texts)
        return self._shown(request, "policy_problems", checked=checked)

    async def save(self, request: Request) -> Response:
        """Keep a text as a draft."""
        form = request.state.form
        texts = {field_of(form, "file"): field_of(form, "text")}
        draft = self._draft(field_of(form, "draft"))
        if draft is None:
            draft = self._drafts.begin(person_of(request), self._now(), texts)
        else:
            self._drafts.edit(draft, texts, person_of(request))
        return _to(draft)

    async def draft(self, request: Request) -> Response:
        """A draft: what it changes, its problems, its tests, and what it would have decided."""
        draft = self._of(request)
        drafts = self._drafts
        checked = await asyncio.to_thread(drafts.check, draft.texts)
        return self._shown(
            request,
            "policy_draft",
            draft=draft,
            checked=checked,
            differences=await asyncio.to_thread(self._differences, draft),
            stale=await asyncio.to_thread(drafts.stale, draft),
            files=drafts.files,
            hours=HOURS,
            recorded=drafts.recordings is not None,
            commits=drafts.commits,
            needs_two=await asyncio.to_thread(lambda: drafts.needs_two),
        )

    def _of(self, request: Request) -> Draft:
        return self._drafts.draft(request.path_params["draft"])

    def _differences(self, draft: Draft) -> list[tuple[str, list[str]]]:
        found: list[tuple[str, list[str]]] = []
        for name, text in draft.texts.items():
            before = self._drafts.text(Path(name)).split("\n")
            lines = difflib.unified_diff(before, text.split("\n"), "in force", "draft", lineterm="")
            found.append((Path(name).name, list(lines)))
        return found

    async def patch(self, request: Request) -> Response:
        """A draft as a patch for the repository."""
        text = await asyncio.to_thread(self._drafts.patch, self._of(request))
        headers = {"content-disposition": 'attachment; filename="policy.patch"'}
        return PlainTextResponse(text, headers=headers, media_type="text/x-diff")

    async def tests(self, request: Request) -> Response:
        """Run a draft's tests."""
        draft = self._of(request)
        self._drafts.rehearse(draft)
        return _to(draft)

    async def travel(self, request: Request) -> Response:
        """Judge what was recorded in the last hours by a draft."""
        draft = self._of(request)
        hours = number(field_of(request.state.form, "hours"))
        if not 0 < hours <= MOST_HOURS:
            raise InputError(f"hours: 1 to {MOST_HOURS}")
        at = self._now()
        self._drafts.rehearse(draft, since=at - hours * 3600, until=at)
        return _to(draft)

    async def second(self, request: Request) -> Response:
        """Agree to a draft that others wrote."""
        draft, person = self._of(request), person_of(request)
        self._drafts.second(draft, person)
        files: dict[str, Any] = {"files": sorted(Path(name).name for name in draft.texts)}
        try:
            self._audit.event(EVENT, {"act": "second", "by": person.name, "of": draft.by, **files})
        except Exception:
            draft.seconded = ""
            raise
        return _to(draft)

    async def commit(self, request: Request) -> Response:
        """Put a draft into Git; a guard that watches the files puts it in force."""
        draft, person = self._of(request), person_of(request)
        message = field_of(request.state.form, "message").strip()
        if not message:
            raise InputError("say in a sentence what the change is for")
        await asyncio.to_thread(self._drafts.check_agreed, draft)
        if draft.seconded:
            message += f"\n\nReviewed-by: {''.join(filter(str.isprintable, draft.seconded))}"
        checked = await asyncio.to_thread(self._drafts.check, draft.texts)
        fields: dict[str, Any] = {
            "act": "commit",
            "by": person.name,
            "files": sorted(Path(name).name for name in draft.texts),
            "policy": checked.policy.digest if checked.policy else "",
            "seconded": draft.seconded,
        }
        self._audit.event(EVENT, fields)
        try:
            made = await asyncio.to_thread(self._drafts.commit, draft, message, person.name)
        except Exception as error:
            self._audit.event(EVENT, {**fields, "act": "failed", "error": str(error)[:200]})
            raise
        self._audit.event(EVENT, {**fields, "act": "committed", "commit": made})
        self._drafts.discard(draft)
        return RedirectResponse("/policies", 303)

    async def discard(self, request: Request) -> Response:
        """Forget a draft."""
        self._drafts.discard(self._of(request))
        return RedirectResponse("/policies", 303)

    async def change(self, request: Request) -> Response:
        """What one commit changed."""
        commit = request.path_params["commit"]
        text = await asyncio.to_thread(self._drafts.history.difference, commit)
        return self._shown(request, "policy_change", commit=commit, lines=text.split("\n"))

    async def undo(self, request: Request) -> Response:
        """Begin a draft that takes one commit back, to be checked and tried like any other."""
        commit = field_of(request.state.form, "commit")
        texts = await asyncio.to_thread(self._drafts.history.before, commit)
        return _to(self._drafts.begin(person_of(request), self._now(), texts))

    async def api_draft(self, request: Request) -> Response:
        """What is known of a draft: problems, tests, flips."""
        draft = self._of(request)
        checked = await asyncio.to_thread(self._drafts.check, draft.texts)
        known = {
            name: {"runs": one.runs, "result": one.result, "error": one.error}
            for name, one in draft.rehearsals.items()
        }
        return JSONResponse(
            {
                "id": draft.id,
                "by": draft.by,
                "seconded": draft.seconded,
                "at": draft.at,
                "policy": checked.policy.digest if checked.policy else None,
                "problems": [list(one) for one in checked.problems],
                "rehearsals": known,
            }
        )


def _to(draft: Draft) -> Response:
    return RedirectResponse(f"/policies/drafts/{draft.id}", 303)


@lru_cache(maxsize=1)
def _schema() -> dict[str, Any]:
    return policy_schema()


@lru_cache(maxsize=1)
def _reference() -> list[tuple[str, str, list[tuple[str, str]]]]:
    """Return what a policy can say: section, description, fields with theirs."""
    schema = _schema()
    parts: list[tuple[str, dict[str, Any]]] = [("policy", schema)]
    parts += [(name, one) for name, one in schema["$defs"].items() if "properties" in one]
    found: list[tuple[str, str, list[tuple[str, str]]]] = []
    for name, part in parts:
        kind = part["properties"].get("type", {})
        shown = f"rule `{kind['const']}`" if "const" in kind else name
        fields = [
            (field, str(about.get("description", "")).replace("``", "`"))
            for field, about in part["properties"].items()
            if not about.get("deprecated")
        ]
        about = str(part.get("description", "")).split("\n\n", maxsplit=1)[0]
        found.append((shown, about.replace("``", "`"), fields))
    return found
