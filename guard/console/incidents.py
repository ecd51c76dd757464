"""Incidents: open, look at, act on, repair, export."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import Field
from starlette.responses import JSONResponse, Response

from guard.console.routes import LARGE, Call, Resource, acted
from guard.extensions.propagation.repair import WINDOW
from guard.operations.deployment import Body, Role
from guard.operations.incident_actions import (
    IncidentAct,
    IncidentActions,
    MemoryAnswer,
    Opening,
    Wanted,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class WantedBody(Body):
    """Act that waits for a second person."""

    id: str


class ProposalsBody(Body):
    """Options of a search for restorations."""

    window: int = Field(default=WINDOW, ge=1)
    """Events without a follower after which a likely item is offered."""
    held: MemoryAnswer | None = None


class ExportBody(Body):
    """Format of the evidence."""

    format: str = "json"


class VerifyBody(Body):
    """Exported evidence."""

    text: str


@dataclass(frozen=True, slots=True)
class IncidentResources:
    """Resources over :class:`IncidentActions`.

    Args:
        actions: the incidents.
        tenants: returns the tenants of a request.
    """

    actions: IncidentActions
    tenants: Callable[[Call], Awaitable[list[str]]]

    def table(self) -> list[Resource]:
        """Return the resources."""
        view, act = Role.VIEWER, Role.APPROVER
        every, one = "/incidents", "/incidents/{tenant}/{incident}"
        return [
            Resource(
                every, "Incidents.", self.incidents, view, query=("tenant",), template="incidents"
            ),
            Resource(every, "Open an incident.", acted(self.actions.open), act, Opening, back=one),
            Resource(
                f"{every}/verify", "Verify exported evidence.",
                lambda call: self.actions.verify(call.body.text), view, VerifyBody, longest=LARGE,
            ),
            Resource(one, "Evidence of an incident, signed.", self.evidence, view),
            Resource(
                one, "An incident.", lambda call: self.actions.overview(place_of(call)), view,
                template="incident", is_api=False,
            ),
            Resource(
                one, "Act on an incident; 202 if a second person has to agree.", self.act, act,
                IncidentAct, longest=LARGE, back=one,
            ),
            Resource(
                f"{one}/exposed", "Saves of sessions that had recalled a reached item.",
                lambda call: self.actions.exposed(place_of(call)), view, template="exposed",
            ),
            Resource(f"{one}/texts", "Texts of an incident.",
                lambda call: self.actions.texts(place_of(call)), view),
            Resource(
                f"{one}/repair", "Restorations of the contained items.",
                lambda call: self.actions.proposals(place_of(call)), view, template="repair",
            ),
            Resource(
                f"{one}/repair", "Restorations, with the memory's own answer.",
                lambda call: self.actions.proposals(
                    place_of(call), call.body.held, call.body.window
                ), view, ProposalsBody, longest=LARGE,
            ),
            Resource(
                f"{one}/export", "Export evidence; its digest goes into the audit log.",
                lambda call: self.actions.export(call.person, place_of(call), call.body.format),
                view, ExportBody,
            ),
            Resource(
                f"{one}/second", "Agree to an act of another person.", self.agree, act, WantedBody,
                back=one,
            ),
            Resource(
                f"{one}/withdraw", "Withdraw a waiting act.", self.withdraw, act, WantedBody,
                back=one,
            ),
        ]  # fmt: skip

    async def incidents(self, call: Call) -> Any:
        """Return the incidents."""
        tenants = await self.tenants(call)
        return {"incidents": await self.actions.listed(tenants), "tenants": tenants}

    async def evidence(self, call: Call) -> Any:
        """Return the signed evidence, byte for byte as ``guard incident export`` writes it."""
        text = await self.actions.exported(place_of(call))
        return Response(text, media_type="application/json")

    async def act(self, call: Call) -> Any:
        """Do an act."""
        outcome = await self.actions.act(call.person, place_of(call), call.body)
        if isinstance(outcome, Wanted):
            return JSONResponse({"done": False, "wanted": outcome.id}, 202)
        return await self._done(call, outcome)

    async def _done(self, call: Call, outcome: str) -> dict[str, Any]:
        found = await self.actions.overview(place_of(call))
        return {"done": True, "outcome": outcome, "steps": found["incident"]["steps"]}

    async def agree(self, call: Call) -> Any:
        """Agree to an act."""
        outcome = await self.actions.agree(call.person, place_of(call), call.body.id)
        return await self._done(call, outcome)

    async def withdraw(self, call: Call) -> Any:
        """Withdraw an act."""
        await self.actions.withdraw(call.person, place_of(call), call.body.id)
        return {"withdrawn": call.body.id}


def place_of(call: Call) -> tuple[str, str]:
    """Return tenant and id of the incident of a request."""
    return call.path["tenant"], call.path["incident"]
