"""Policies: edit, check, test, agree, commit; and the policy on trial."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field
from starlette.responses import JSONResponse, PlainTextResponse

from guard.console.routes import Call, Resource
from guard.core.model import Role as ToolRole  # noqa: TC001  (pydantic reads it)
from guard.core.policy import Action
from guard.operations.deployment import Body, OfTenant, Role
from guard.pipeline.trial import FACT, VerdictPair, worsened
from guard.policy.json_schema import policy_schema
from guard.store.trials import JUMP, RUNNING, STEPS

if TYPE_CHECKING:
    from collections import Counter

    from guard.console.decisions import DecisionIndex, Row
    from guard.operations.approvals import ApprovalActions
    from guard.operations.policy_drafts import Draft, PolicyActions

LOOKED_AT: Final = 1000
"""Number of decisions that are searched for differences between the two policies."""
SHOWN: Final = 30
_ACTIONS: Final = tuple(action.label for action in Action)
_NAMES: Final = re.compile(r"[,\s]+")


class TextBody(Body):
    """Text of one file of a draft."""

    file: str
    text: str = ""
    draft: str = ""
    """Id of the draft; empty for a new one."""


class CommitBody(Body):
    """Message of a commit."""

    message: str = Field(min_length=1, max_length=500, pattern=r"\S")


class MapBody(OfTenant):
    """Request whose unmapped tools are mapped."""

    decision: str
    role: ToolRole | None = None
    """Role of the tools; empty for the one that their definitions suggest."""


class TrialBody(Body):
    """Options of a new trial."""

    share: float
    principals: str = ""
    jump: float = Field(default=100 * JUMP, ge=0, le=100)
    """Percentage of newly asked or blocked calls that ends the trial."""


class StepBody(Body):
    """Change of a trial."""

    trial: str
    share: float | None = None
    """New share; without one the trial is stopped."""


@dataclass(frozen=True, slots=True)
class PolicyResources:
    """Resources over :class:`PolicyActions`."""

    actions: PolicyActions
    approvals: ApprovalActions
    index: DecisionIndex

    def table(self) -> list[Resource]:
        """Return the resources."""
        view, author, drafts = Role.VIEWER, Role.AUTHOR, "/policies/drafts"
        one = f"{drafts}/{{draft}}"

        def page(path: str, handler: Any, template: str, *, api: bool = False) -> Resource:
            return Resource(path, "", handler, view, template=template, is_api=api)

        def act(path: str, handler: Any, body: type[Body], back: str) -> Resource:
            return Resource(path, "", handler, author, body, back=back, is_api=False)

        return [
            page("/policies", self.overview, "policies"),
            page("/policies/schema.json", self.schema, "schema", api=True),
            page("/policies/edit", self.edit, "policy_edit"),
            Resource(
                "/policies/check", "", self.check, author, TextBody, template="policy_problems",
                is_api=False,
            ),
            act(drafts, self.keep, TextBody, "/policies/drafts/{id}"),
            Resource(
                "/policies/map", "Begin a draft that maps the tools of a request.", self.map_tools,
                author, MapBody, back="/policies/drafts/{id}",
            ),
            Resource(one, "A draft.", self.draft, view, template="policy_draft"),
            Resource(f"{one}/patch", "A draft as a patch.", self.patch, view, template="patch"),
            act(f"{one}/tests", self.tests, Body, one),
            act(f"{one}/second", self.agree, Body, one),
            act(f"{one}/commit", self.commit, CommitBody, "/policies"),
            act(f"{one}/discard", self.discard, Body, "/policies"),
            act(f"{one}/trial", self.begin_trial, TrialBody, "/policies/trial"),
            page("/policies/trial", self.trial, "policy_trial"),
            act("/policies/trial", self.step, StepBody, "/policies/trial"),
        ]  # fmt: skip

    # --- drafts ----------------------------------------------------------------------------------

    def _draft(self, call: Call) -> Draft:
        return self.actions.drafts.draft(call.path["draft"])

    async def overview(self, call: Call) -> Any:
        """Return the policy in force and the drafts."""
        drafts = self.actions.drafts
        return {
            "files": drafts.files,
            "checked": await asyncio.to_thread(drafts.check, {}),
            "drafts": drafts.drafts(),
        }

    async def schema(self, call: Call) -> Any:
        """Return the JSON schema of policy files."""
        return JSONResponse(policy_schema())

    async def edit(self, call: Call) -> Any:
        """Return a file, as it is or as a draft has it."""
        drafts, identifier = self.actions.drafts, call.query.get("draft", "")
        draft = drafts.draft(identifier) if identifier else None
        path = drafts.file(call.query.get("file", ""))
        text = (draft.texts if draft else {}).get(str(path))
        if text is None:
            text = await asyncio.to_thread(drafts.text, path)
        return {"file": path, "text": text, "draft": draft, "checked": None}

    async def check(self, call: Call) -> Any:
        """Return the problems of a text, line by line."""
        drafts, body = self.actions.drafts, call.body
        before = drafts.draft(body.draft).texts if body.draft else {}
        texts = {**before, str(drafts.file(body.file)): body.text.replace("\r\n", "\n")}
        return {"checked": await asyncio.to_thread(drafts.check, texts)}

    async def keep(self, call: Call) -> Any:
        """Keep a text as a draft."""
        body = call.body
        return {"id": self.actions.keep(call.person, {body.file: body.text}, body.draft).id}

    async def map_tools(self, call: Call) -> Any:
        """Begin a draft that maps the unmapped tools of a request."""
        tenant, of = call.body.tenant, self.approvals
        asked = await of.asked(tenant, call.body.decision)
        mapping = await of.mapping(tenant, asked, call.body.role)
        return {"id": (await self.actions.map_tools(call.person, mapping)).id}

    async def draft(self, call: Call) -> Any:
        """Return a draft: differences, problems and tests."""
        draft, drafts = self._draft(call), self.actions.drafts
        checked = await asyncio.to_thread(drafts.check, draft.texts)
        policy = checked.policy
        return {
            "id": draft.id,
            "by": draft.by,
            "at": draft.at,
            "seconded": draft.seconded,
            "policy": policy.digest if policy else None,
            "sizes": [len(policy.tools), len(policy.rules)] if policy else None,
            "problems": [list(one) for one in checked.problems],
            "warnings": [list(one) for one in checked.warnings],
            "rehearsals": draft.rehearsals,
            "differences": await asyncio.to_thread(self._differences, draft),
            "stale": await asyncio.to_thread(drafts.stale, draft),
            "files": [str(path) for path in drafts.files],
            "commits": drafts.commits,
            "needs_two": await asyncio.to_thread(lambda: drafts.needs_two),
        }

    def _differences(self, draft: Draft) -> list[tuple[str, list[str]]]:
        patch = self.actions.drafts.history.patch
        return [
            (Path(name).name, patch({name: text}).splitlines())
            for name, text in draft.texts.items()
        ]

    async def patch(self, call: Call) -> Any:
        """Return a draft as a patch for the repository."""
        text = await asyncio.to_thread(self.actions.drafts.history.patch, self._draft(call).texts)
        headers = {"content-disposition": 'attachment; filename="policy.patch"'}
        return PlainTextResponse(text, headers=headers, media_type="text/x-diff")

    async def tests(self, call: Call) -> Any:
        """Run the tests of a draft."""
        await self.actions.drafts.run_tests(self._draft(call))

    async def agree(self, call: Call) -> Any:
        """Agree to a draft."""
        self.actions.agree(self._draft(call), call.person)

    async def commit(self, call: Call) -> Any:
        """Commit a draft."""
        await self.actions.commit(self._draft(call), call.person, call.body.message.strip())

    async def discard(self, call: Call) -> Any:
        """Discard a draft."""
        self.actions.drafts.discard(self._draft(call))

    # --- trial -----------------------------------------------------------------------------------

    async def trial(self, call: Call) -> Any:
        """Return the trial: verdicts of both policies, and the calls on which they differ."""
        record, _ = await self.actions.trials.read()
        totals = await self.actions.trials.totals(record.id) if record is not None else None
        return {
            "record": record,
            "runs": record is not None and record.state == RUNNING,
            "sides": _sides(totals) if totals is not None else [],
            "worse": worsened(totals) if totals is not None else (0, 0),
            "differ": await asyncio.to_thread(self._differing) if record is not None else [],
            "actions": _ACTIONS,
            "steps": STEPS,
        }

    def _differing(self) -> list[Row]:
        rows = self.index.page({}, limit=LOOKED_AT)
        return [row for row in rows if FACT in row.get("facts", {})][:SHOWN]

    async def begin_trial(self, call: Call) -> Any:
        """Put a draft on trial."""
        body = call.body
        principals = tuple(sorted(set(filter(None, _NAMES.split(body.principals)))))
        options = body.share, principals, body.jump / 100
        await self.actions.begin_trial(call.person, self._draft(call), *options)

    async def step(self, call: Call) -> Any:
        """Change the share of a trial, or stop it."""
        await self.actions.step(call.person, call.body.trial, call.body.share)


def _sides(totals: Counter[VerdictPair]) -> list[dict[str, Any]]:
    """Return the pairs of verdicts by the policy that decided."""
    sides: list[dict[str, Any]] = []
    for decided_by in ("base", "candidate"):
        own = {(p.base, p.candidate): n for p, n in totals.items() if p.decided_by == decided_by}
        rows = [
            (base, [own.get((base, candidate), 0) for candidate in _ACTIONS]) for base in _ACTIONS
        ]
        failed = own.get(("failed", "failed"), 0)
        calls = sum(own.values())
        sides.append({"decided_by": decided_by, "rows": rows, "failed": failed, "calls": calls})
    return [one for one in sides if one["calls"]]
