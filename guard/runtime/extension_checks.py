"""Checks of ``guard doctor`` for extensions that need an extra, and for added classifiers."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, requires, version
from typing import TYPE_CHECKING, Final

from guard.core.errors import GuardError
from guard.inference.text_classifier import load_classifiers
from guard.runtime.doctor_checks import Checked, Status

if TYPE_CHECKING:
    from collections.abc import Iterator

DISTRIBUTION: Final = "agent-egress-guard"
EXTENSIONS: Final = {
    "claude-agent-sdk": "adapter of the Claude Agent SDK",
    "console": "the console",
    "detectors": "added text classifiers",
    "google-adk": "adapter of the Google ADK",
    "graph": "replay of a graph memory's selection",
    "in-process": "state inside one process",
    "incidents": "export of incidents as STIX",
    "langchain": "adapter of LangChain and LangGraph",
    "openai-agents": "adapter of the OpenAI Agents SDK",
    "otel": "spans by OTLP",
    "pydantic-ai": "adapter of pydantic-ai",
}
"""Extensions by extra, with what each adds."""
_REQUIREMENT: Final = re.compile(r"([A-Za-z0-9._-]+).*;.*\bextra == ['\"]([a-z0-9-]+)['\"]")


def check_extensions() -> Iterator[Checked]:
    """Report the extensions that are active, and each that lacks packages of its extra."""
    missing: dict[str, list[str]] = {extra: [] for extra in EXTENSIONS}
    for package, extra in _requirements():
        if extra in missing and not _is_installed(package):
            missing[extra].append(package)
    active = [extra for extra, packages in missing.items() if not packages]
    yield Checked("extensions", Status.OK, f"active: {', '.join(active) or 'none'}")
    for extra, packages in missing.items():
        if packages:
            detail = f"inactive ({EXTENSIONS[extra]}): lacks {', '.join(packages)}"
            advice = f"if you need it: `pip install '{DISTRIBUTION}[{extra}]'`"
            yield Checked(f"extension {extra}", Status.SKIP, detail, advice)


def check_classifiers() -> Iterator[Checked]:
    """Verify and try every text classifier that the operator added."""
    try:
        classifiers = load_classifiers()
    except GuardError as error:
        yield Checked("detectors", Status.FAIL, str(error), "add the detectors again")
        return
    if not classifiers:
        yield Checked("detectors", Status.OK, "no text classifier is added")
    for one in classifiers:
        name = f"detector {one.name}"
        try:
            one.prepare()
        except GuardError as error:
            advice = f"`guard detectors add` it again, or `guard detectors remove {one.name}`"
            yield Checked(name, Status.FAIL, str(error), advice)
        else:
            detail = f"verified, finds at {one.entry.threshold:g} and above"
            yield Checked(name, Status.OK, detail)


def _requirements() -> list[tuple[str, str]]:
    """Return the packages that the extras of this distribution name, each with its extra."""
    try:
        lines = requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        return []
    matches = map(_REQUIREMENT.match, lines)
    return [(match[1], match[2]) for match in matches if match]


def _is_installed(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True
