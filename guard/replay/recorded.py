"""Recordings as runs of trace format v1, which everything that reads recorded runs takes.

One run is what a tenant's agents did, because they share its memories; ``agent`` says which of them
made a call where there are several.  Fields beyond the format, which other readers ignore, say who
made a call (``principal``), where it went, and what was decided at the time: ``verdict``,
``forwarded``, ``reasons``, ``id``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from guard.core.argument_texts import argument_texts, without_spans
from guard.detectors.secrets import found_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from guard.core.model import Json

Record = dict[str, Any]
KEPT: Final = ("tenant", "principal", "session")


@dataclass(slots=True)
class Selection:
    """Filter of records; an empty field or None takes all."""

    since: float = 0.0
    until: float = float("inf")
    tenant: str = ""
    principal: str = ""
    session: str = ""

    def takes(self, record: Record) -> bool:
        """Return whether a prompt or a call is wanted."""
        wanted = [getattr(self, name) in {"", record.get(name)} for name in KEPT]
        return self.since <= float(record["at"]) < self.until and all(wanted)


@dataclass(slots=True)
class Converted:
    """Runs made of recordings."""

    runs: list[Record] = field(default_factory=list)
    calls: int = 0
    unanswered: int = 0
    """Calls that were forwarded, and of which no result was recorded."""
    lost: int = 0
    """Exchanges that the guard could not record."""


def as_runs(
    records: Iterable[Record],
    selection: Selection | None = None,
    masked: Callable[[Json], Json] = lambda value: value,
) -> Converted:
    """Return the runs in recordings, one for each tenant.

    Args:
        records: as :meth:`guard.telemetry.recordings.RecordingReader.records` yields them.
        selection: which of them.
        masked: applied to arguments, results and prompts.
    """
    chosen = selection or Selection()
    found = Converted()
    calls: dict[str, Record] = {}
    prompts: list[Record] = []
    results: dict[str, Record] = {}
    for record in records:
        match record["type"]:
            case "call" if chosen.takes(record):
                # A memory write is judged again when it is committed: the last word counts.
                calls[record["id"]] = record
            case "prompt" if chosen.takes(record):
                prompts.append(record)
            case "result":
                results[record["id"]] = record
            case "gap":
                found.lost += int(record["lost"])
            case _:
                pass
    ordered = sorted(calls.values(), key=lambda call: float(call["at"]))
    for tenant in dict.fromkeys(str(call["tenant"]) for call in ordered):
        own = [call for call in ordered if call["tenant"] == tenant]
        said = [prompt for prompt in prompts if prompt["tenant"] == tenant]
        found.runs.append(_run(tenant, own, said, results, masked))
        found.calls += len(own)
    found.unanswered = sum(call["forwarded"] and call["id"] not in results for call in ordered)
    return found


def without_secrets(value: Json) -> Json:
    """Return a value with every secret that stands in it in clear replaced by its kind."""
    texts: Iterator[Any] = argument_texts({"text": value})
    spans = [span for text in texts for span in found_in(text)[0]]
    return without_spans({"text": value}, spans)["text"]


def _run(
    tenant: str,
    calls: list[Record],
    prompts: list[Record],
    results: dict[str, Record],
    masked: Callable[[Json], Json],
) -> Record:
    principals = dict.fromkeys(call["principal"] for call in calls)
    alone = len(principals) == 1
    run: Record = {"run_id": f"recorded:{tenant}", "principal": tenant}
    run["prompts"] = [
        {"session": _session(prompt), "text": masked(prompt["text"])} for prompt in prompts
    ]
    run["calls"] = []
    for place, call in enumerate(calls):
        answer = results.get(call["id"])
        entry: Record = {
            "i": place,
            "ts": call["at"],
            "session": _session(call),
            "principal": call["principal"],
            "tool": call["tool"],
            "args": masked(call["arguments"]),
            "result": None if answer is None else _content(masked(answer["content"])),
            "id": call["id"],
            "verdict": call["action"],
            "forwarded": call["forwarded"],
            "reasons": call["reasons"],
            "policy": call["policy"],
            "server": call["server"],
            "upstream": call.get("upstream", ""),
            "protocol": call["protocol"],
        }
        if not alone:
            entry["agent"] = call["principal"]
        run["calls"].append(entry)
    return run


def _session(record: Record) -> str:
    """Return a session's name in a run: two principals may have chosen the same id."""
    return f"{record['principal']}/{record['session']}"


def _content(content: Json) -> Json:
    """Return a result as the format has it: numbers and booleans are text there."""
    return content if content is None or isinstance(content, str | dict | list) else str(content)
