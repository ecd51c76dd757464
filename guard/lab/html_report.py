"""An evaluation as one HTML file that loads nothing from elsewhere.  Pure: text out, no file."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from guard.replay.reports import Report


def render(report: Report, plots: Mapping[str, bytes], reason: str | None = None) -> str:
    """Return the page.

    Args:
        report: checks and details of ``guard eval classifier``.
        plots: PNG by name.
        reason: why nothing was measured, if so.
    """
    # Names of models, defences and files come from traces: everything is escaped.
    environment = Environment(loader=PackageLoader("guard.lab", "."), autoescape=True)
    return environment.get_template("report.html.jinja").render(
        checks=report.checks,
        details=report.details,
        machine=report.machine,
        plots={name: b64encode(image).decode() for name, image in plots.items()},
        reason=reason,
    )
