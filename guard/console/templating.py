"""Templates of the pages, and the functions that templates use."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse, Response

from guard.console.decisions import second
from guard.provenance.questions import OTHER, REASONS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.requests import Request

    from guard.console.access import SignedIn


_EVENTS: Final = {
    "save": "saved in",
    "draft": "drafted in",
    "send": "sent by",
    "recall": "recalled from",
    "asked": "asked about, by",
}
_PLAIN: Final = "\n\r\t\N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}\N{IDEOGRAPHIC SPACE}"
_FILLERS: Final = {
    ord(char): char.encode("unicode_escape").decode()
    for char in "\N{HANGUL FILLER}\N{HANGUL CHOSEONG FILLER}\N{HANGUL JUNGSEONG FILLER}"
    "\N{HALFWIDTH HANGUL FILLER}\N{BRAILLE PATTERN BLANK}"
}
"""Letters and signs that look like nothing."""


class Templates:
    """The templates of the pages; what they are given is text, escaped, and nothing in it hides."""

    def __init__(self) -> None:
        self.environment = Environment(
            loader=PackageLoader("guard.console"),
            autoescape=True,
            finalize=visible,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.environment.filters["minute"] = minute
        self.environment.filters["second"] = second
        self.environment.filters |= {"said": said, "deciding": deciding}
        self.environment.globals |= {"link": link, "linked": linked, "event_title": event_title}
        self.alarms: list[str] = []
        """Messages that every page shows to everybody who is signed in."""
        self.degraded = ""
        """Why what every page shows may be out of date; empty where it is not."""

    def shown(self, request: Request, name: str, status: int = 200, /, **values: Any) -> Response:
        """Return a page with what every page shows, and values of its own."""
        signed_in: SignedIn | None = request.state.signed_in
        text = self.environment.get_template(f"{name}.html.jinja").render(
            path=request.url.path,
            person=signed_in.person if signed_in else None,
            csrf=signed_in.csrf if signed_in else "",
            may=signed_in.person.may if signed_in else lambda _: False,
            alarms=[*filter(None, (self.degraded,)), *self.alarms] if signed_in else (),
            **values,
        )
        return HTMLResponse(text, status)


def event_title(event: Mapping[str, Any]) -> str:
    """Return an event of the propagation graph in words."""
    word = _EVENTS[event["what"]]
    sent = event["what"] in {"send", "asked"}
    return f"{word} {event['tool'] if sent else event['store'] or event['tool']}"


def visible(value: Any) -> Any:
    """Return a value for a page; in text of others, what hides or turns text is spelt out.

    Marks of direction, characters without a width, fillers that look like a space: they make what
    is shown look like something else.  What is to be edited is marked as it is (``|e``).
    """
    if not isinstance(value, str) or isinstance(value, Markup) or value.isascii():
        return value
    return "".join(
        char if char.isprintable() or char in _PLAIN else char.encode("unicode_escape").decode()
        for char in value.translate(_FILLERS)
    )


def said(reason: Mapping[str, Any]) -> str:
    """Return a reason of a decision in words; an allow has only its detail."""
    detail, code = str(reason.get("detail") or OTHER), str(reason.get("code"))
    return detail if reason.get("action") == "allow" else REASONS.get(code, detail)


def deciding(reasons: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return the reasons that restrict a call; those that allow it where there are no others."""
    return [one for one in reasons if one.get("action") != "allow"] or reasons


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
