"""Recorded runs in a directory, told again into another one."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

from guard.destinations.patterns import PatternSet
from guard.lab.eval_recorded import CONTACTS, RECORDED, example
from guard.lab.rewrite.runs import Rewriter
from guard.replay.traces import read_traces

if TYPE_CHECKING:
    from pathlib import Path

POLICIES = ("mail_assistant.yaml", "agentdojo.yaml")
"""Those that the recorded runs are judged by; what they call internal keeps its name."""


def internal_domains() -> tuple[str, ...]:
    """Return the domains that the policies of the recorded runs call internal."""
    lists = [example(name).is_internal for name in POLICIES]
    return tuple(
        pattern.value
        for patterns in lists
        if isinstance(patterns, PatternSet)
        for pattern in patterns.patterns
    )


def rewrite_files(data: Path, into: Path, seed: str) -> None:
    """Write every recorded file of a directory, told again, and the memory that goes with them.

    Raises:
        TraceError: a file is damaged.
    """
    rewriter = Rewriter(seed, internal_domains())
    for name in RECORDED:
        path = data / name
        if not path.is_file():
            continue
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(into / name, "wt", encoding="utf-8") as file:
            for run in read_traces([path]):
                file.write(f"{rewriter.run(run).model_dump_json()}\n")
    contacts = data / CONTACTS
    if contacts.is_file():
        items = json.loads(contacts.read_text(encoding="utf-8"))
        told = [item | {"value": rewriter.text(item["value"])} for item in items]
        (into / CONTACTS).write_text(json.dumps(told), encoding="utf-8")
