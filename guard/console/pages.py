"""What every page of the console is made with: its route, its template, the fields of its form."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from typing import Literal

    from pydantic import BaseModel
    from starlette.requests import Request
    from starlette.responses import Response

    from guard.adapters.redis.store import RedisSessionStore
    from guard.console.access import Person, Role, SignedIn
    from guard.console.decisions import DecisionIndex
    from guard.core.model import Json
    from guard.core.policy import StateLimits
    from guard.provenance.seal import Seal

_DIGITS: Final = 18


@dataclass(frozen=True, slots=True)
class Page:
    """One route."""

    path: str
    endpoint: Callable[[Request], Awaitable[Response]]
    needs: Role | Literal["public", "counted"]
    method: str = "GET"
    body: type[BaseModel] | None = None
    """What the API takes there."""


class PagesOf(Protocol):
    """A part of the console with pages of its own."""

    def table(self) -> list[Page]:
        """Return its routes."""


class Templates:
    """The templates of the pages; what they are given is text, and escaped."""

    def __init__(self) -> None:
        self.environment = Environment(
            loader=PackageLoader("guard.console"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.environment.filters["minute"] = minute
        self.environment.globals |= {"link": link, "linked": linked}
        self.alarms: list[str] = []
        """What every page says to everybody who is signed in."""

    def shown(self, request: Request, name: str, status: int = 200, **values: Any) -> Response:
        """Return a page with what every page shows, and values of its own."""
        signed_in: SignedIn | None = request.state.signed_in
        text = self.environment.get_template(f"{name}.html.jinja").render(
            path=request.url.path,
            person=signed_in.person if signed_in else None,
            csrf=signed_in.csrf if signed_in else "",
            may=signed_in.person.may if signed_in else lambda _: False,
            alarms=self.alarms if signed_in else (),
            **values,
        )
        return HTMLResponse(text, status)


@dataclass(frozen=True, slots=True)
class Shelf:
    """What pages about agents are made from: the state, and the index over the audit log."""

    store: RedisSessionStore
    """Connected."""
    seal: Seal
    """The deployment's key."""
    index: DecisionIndex
    templates: Templates
    now: Callable[[], float]
    """Seconds since the epoch."""
    limits: Callable[[], StateLimits | None] = lambda: None
    """Of the policy in force."""


def person_of(request: Request) -> Person:
    """Return who sent a request that the door has let in."""
    signed_in: SignedIn = request.state.signed_in
    return signed_in.person


def by_whom(person: Person) -> dict[str, Json]:
    """Return who it was, for the record: the name may be one that he chose."""
    return {"by": person.name, "realm": person.realm, "subject": person.approver.subject}


def field_of(form: Mapping[str, list[str]], name: str) -> str:
    """Return the first value of a form's field; empty where there is none."""
    return next(iter(form.get(name, [])), "")


def number(text: str) -> int:
    """Return a text of digits as a number, 0 for any other."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS else 0


def chart_style() -> Any:
    """Return the colours of charts, legible on light and on dark."""
    from pygal.style import Style

    return Style(
        background="transparent",
        plot_background="transparent",
        foreground="#7d8590",
        foreground_strong="#7d8590",
        foreground_subtle="#7d8590",
        colors=("#2da44e", "#0969da", "#bf8700", "#cf222e"),
        font_family="system-ui, sans-serif",
    )


def minute(at: float) -> str:
    """Return a time as UTC, to the minute."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


def link(path: str, **values: Any) -> str:
    """Return a path with those values as its query that are not empty."""
    given = {name: value for name, value in values.items() if value}
    return f"{path}?{urlencode(given)}" if given else path


@lru_cache(maxsize=4096)
def linked(path: str, name: str, value: str) -> Markup:
    """Return a value, escaped, as a link to what is known of it; rows repeat the same ones."""
    return Markup('<a href="{}">{}</a>').format(link(path, **{name: value}), value or "(none)")
