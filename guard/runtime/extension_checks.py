"""Checks of ``guard doctor`` for extensions that need an extra, and for added classifiers."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from guard.core.errors import GuardError
from guard.credentials.key_ring import load_seal
from guard.credentials.label_key import label_key_path
from guard.inference.text_classifier import load_classifiers
from guard.policy import load_policies
from guard.processes.notes import RunNote, find_running
from guard.runtime.doctor_checks import Checked, Status
from guard.settings import EMBEDDED, Settings
from guard.store.incident_records import IncidentRecords, number_of, read_log
from guard.store.store import RedisSessionStore

if TYPE_CHECKING:
    from collections.abc import Iterator


BEHIND: Final = 1000
"""Events that a detector that keeps up may not have judged yet."""
STATE_SECONDS: Final = 10.0
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


async def check_detection(settings: Settings) -> Checked:
    """Compare the committed saves with those that the detector of the policy has judged."""
    name = "detection"
    try:
        policy = load_policies(settings.policy) if settings.policy else None
        if policy is None or policy.propagation is None or policy.propagation.detection is None:
            return Checked(name, Status.OK, "the policy has none")
        note = find_running() if settings.redis == EMBEDDED else RunNote(0, settings.redis)
    except GuardError as error:
        return Checked(name, Status.SKIP, str(error).splitlines()[0], "start `guard run`")
    key = settings.label_key or (Path(note.label_key) if note.label_key else None)
    store = RedisSessionStore.at(note.redis, timeout=STATE_SECONDS)
    try:
        seal = load_seal(label_key_path(key), 0.0)
        judged = await IncidentRecords(store, seal, "default").judged()
        saved = number_of((await read_log(store, seal, "default")).last)
    except GuardError as error:
        return Checked(name, Status.FAIL, str(error), "its state has to be reachable")
    finally:
        await store.aclose()
    left = saved - (judged or 0)
    if judged is None and not saved:
        return Checked(name, Status.OK, "nothing was saved yet")
    if judged is None or left > BEHIND:
        advice = "`guard run` with this policy starts the detector; else `guard memory watch`"
        return Checked(name, Status.WARN, f"{left} events are not judged", advice)
    return Checked(name, Status.OK, f"{judged} events are judged, {left} wait")


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
