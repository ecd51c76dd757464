"""Reading recorded agent runs: trace format v1, one JSON object per line, gzipped or not.

The format is strict about what it names and silent about what it does not: unknown fields are
ignored, a field of the wrong type is an error with ``file:line: field: message``, and so is a key
that occurs twice in one object (two readers could disagree on what it says).

``labels`` is ground truth for evaluation.  It is carried as it stands and is never handed to the
guard: nothing in :mod:`guard.replay.run` reads it, and a test holds that.

Recordings as runs of trace format v1, which everything that reads recorded runs takes.

One run is what a tenant's agents did, because they share its memories; ``agent`` says which of them
made a call where there are several.  Fields beyond the format, which other readers ignore, say who
made a call (``principal``), where it went, and what was decided at the time: ``verdict``,
``forwarded``, ``reasons``, ``id``.
"""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Annotated, Any, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from guard.core.argument_texts import argument_texts, without_spans
from guard.core.errors import InputError, MessageError
from guard.detectors.secrets import found_in
from guard.protocols.framing.json_messages import parse_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from guard.core.model import Json


MAX_LINE_BYTES: Final = 64 * 1024 * 1024
"""A run longer than this is refused, so that a gzip bomb does not fill the memory."""


class TraceError(InputError):
    """A trace file that cannot be read one way only.

    Attributes:
        path: the file, as the user named it.
        line: one-based line, 0 where the file as a whole is meant.
    """

    def __init__(self, path: str, line: int, message: str) -> None:
        self.path = path
        self.line = line
        super().__init__(f"{path}:{line}: {message}" if line else f"{path}: {message}")


def _seconds(value: object) -> object:
    """Return a ``ts`` as seconds since the epoch; ISO 8601 without an offset is UTC."""
    if not isinstance(value, str):
        return value
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise ValueError(
            f"`{value[:40]}` is not a time, write ISO 8601 or seconds since the epoch"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


class _Record(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")


class Prompt(_Record):
    """Text that the user typed in one session; trusted."""

    session: str
    text: str
    recipients: tuple[str, ...] = Field(default=(), strict=False)
    """Structure beside the text, as are the next two."""
    hosts: tuple[str, ...] = Field(default=(), strict=False)
    attachments: tuple[str, ...] = Field(default=(), strict=False)


class Call(_Record):
    """One recorded call.

    ``ts`` is in seconds since the epoch, or None where it was not recorded; ``result`` is None
    where it was not recorded.
    """

    i: int
    ts: Annotated[float, Field(allow_inf_nan=False), BeforeValidator(_seconds)] | None = None
    session: str
    agent: str | None = None
    tool: str
    args: dict[str, Any]
    result: str | dict[str, Any] | list[Any] | None = None
    principal: str | None = None
    """Principal of the call in the guard that recorded it; beyond the format, as are the next
    three: recordings have them, and a policy may speak of principals and map the tools of each
    server apart."""
    server: str = ""
    """The listener it came through."""
    upstream: str = ""
    protocol: str = ""
    id: str = ""
    """The decision's; of recordings, as are the next three."""
    verdict: str = ""
    forwarded: bool = False
    """True if it was released."""
    reasons: tuple[str, ...] = Field(default=(), strict=False)


class Run(_Record):
    """One recorded run: the sessions of one principal, which share a memory."""

    run_id: str
    principal: str | None = None
    prompts: tuple[Prompt, ...] = Field(default=(), strict=False)
    calls: tuple[Call, ...] = Field(strict=False)
    labels: dict[str, Any] = {}
    """Ground truth, for evaluation code only."""

    @property
    def owner(self) -> str:
        """The principal, which defaults to the run itself."""
        return self.run_id if self.principal is None else self.principal


@dataclass(frozen=True, slots=True)
class Located:
    """A run and where it was read, so that whoever finds fault with it can say where."""

    path: str
    line: int
    run: Run


def read_traces(paths: Iterable[Path]) -> Iterator[Run]:
    """Yield the runs of trace files, in file order, one line in memory at a time.

    Args:
        paths: ``.jsonl`` files, or ``.gz`` of them.

    Raises:
        TraceError: a file is missing, damaged, or has a line that is not a run.
    """
    return (located.run for located in locate_runs(paths))


def locate_runs(paths: Iterable[Path]) -> Iterator[Located]:
    """Yield the runs of trace files with their places; as :func:`read_traces`."""
    for path in paths:
        try:
            with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
                yield from _read_lines(str(path), stream)
        except FileNotFoundError:
            raise TraceError(str(path), 0, "no such file") from None
        except IsADirectoryError:
            raise TraceError(str(path), 0, _DIRECTORY) from None
        except (OSError, EOFError, zlib.error) as error:
            raise TraceError(
                str(path),
                0,
                f"cannot be read ({type(error).__name__}), check the file and its compression",
            ) from error


def _read_lines(path: str, stream: IO[bytes] | gzip.GzipFile) -> Iterator[Located]:
    number = 0
    while line := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            raise TraceError(path, number, f"longer than {MAX_LINE_BYTES} bytes, split the run")
        if line.strip():
            yield Located(path, number, parse_run(line.strip(), path=path, line=number))


_DIRECTORY: Final = (
    "this is a directory; of recordings `guard traces from-recording DIR --out FILE.jsonl` makes "
    "traces"
)
_AUDIT: Final = (
    "this is an audit log, which holds decisions and no arguments, so nothing in it can be judged "
    "again; traces are made by `guard run --record DIR` and `guard traces from-recording`, one run "
    'a line: {"run_id", "calls": [{"i", "session", "tool", "args", "result"}]}. What a decision in '
    "the log says: `guard policy explain ID --audit FILE`"
)


def parse_run(text: bytes, *, path: str = "<memory>", line: int = 0) -> Run:
    """Return the run that one line holds.

    Raises:
        TraceError: the line is not JSON, as messages have to be, or does not fit the format.
    """
    try:
        document = parse_json(text)
    except MessageError as error:
        raise TraceError(path, line, str(error).replace("the body", "run:")) from None
    try:
        return Run.model_validate(document)
    except ValidationError as error:
        if isinstance(document, dict) and "event" in document and "run_id" not in document:
            raise TraceError(path, line, _AUDIT) from None
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "run"
        message = first["msg"].removeprefix("Value error, ")
        raise TraceError(path, line, f"{field}: {message[:1].lower()}{message[1:]}") from None


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
