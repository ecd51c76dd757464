"""``make fuzz``: the parsers on broken input, side by side with the parsers of who reads it next.

Inputs are made by structure: documents of a corpus are edited as trees, written in one of the many
spellings that parsers disagree about, and then cut, spliced and flipped as bytes.  A parser fails
where it raises anything but a refusal, takes longer than ``SLOW`` for one input, or reads something
else than the upstream's own parser would.  Seeded: the same seed makes the same inputs.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import sys
import time
import zlib
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

import httpx
from httpx_sse._decoders import SSEDecoder
from mcp.types import CallToolRequestParams, JSONRPCMessage
from pydantic import ValidationError

from guard.core.errors import MessageError
from guard.protocols.base import ProtocolModule, discover_protocols
from guard.protocols.framing.content_coding import StreamDecoder, decode_content
from guard.protocols.framing.json_messages import parse_json
from guard.protocols.framing.sse import EventCutter, read_event
from guard.protocols.http.message import HttpRequest
from guard.values.canonical import canonical_host, read_destinations, read_url
from lab.fuzz_inputs import Mutator
from lab.fuzz_peps import connection, disagreement

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from guard.protocols.messages import ParsedCall


LIMIT: Final = 1 << 20


class DisagreementError(Exception):
    """The guard and who reads after it do not read the same."""


@dataclass(frozen=True, slots=True)
class Target:
    """One parser."""

    name: str
    make: Callable[[Mutator], Any]
    run: Callable[[Any], None]
    """Raises MessageError where the guard refuses, DisagreementError where it reads otherwise."""


def run_json(body: bytes) -> None:
    """Strict JSON against the standard library's: what is accepted reads the same there."""
    value = parse_json(body)
    if _shown(json.loads(body)) != _shown(value):
        raise DisagreementError("json is read otherwise")


def run_mcp(body: bytes) -> None:
    """MCP against the official SDK: a call that the SDK would run is refused or seen, as it is."""
    wanted = _sdk_call(body)
    calls = _guard_calls(body)
    if wanted is not None and _shown(wanted) not in [_shown((c.tool, c.arguments)) for c in calls]:
        raise DisagreementError(f"the sdk runs {wanted[0]!r}, the guard saw {len(calls)} calls")


def run_sse(chunks: list[bytes]) -> None:
    """Events against httpx-sse: the same bytes in any chunks are the same events."""
    data = b"".join(chunks)
    cutter = EventCutter(LIMIT)
    events = [event for chunk in chunks for event in cutter.feed(chunk)]
    rest = cutter.rest()
    if b"".join([*events, rest]) != data:
        raise DisagreementError("bytes were lost or added between events")
    try:
        stream = data.decode()
    except UnicodeDecodeError:
        return
    texts = [read_event(event, first=index == 0)[1] for index, event in enumerate(events)]
    read = [text for text in texts if text]
    last = read_event(rest, first=not events)[1] if rest else ""
    # An event without its blank line is one to the guard, and to lenient readers; httpx-sse gets
    # its text decoded, and so without the mark that may begin the stream.
    if _sdk_events(stream.removeprefix("\ufeff")) not in (read, [*read, last]):
        raise DisagreementError("events are read otherwise")


def run_coding(case: tuple[str, bytes, list[bytes]]) -> None:
    """Compressed bodies, whole and in chunks: never more than the limit, never half."""
    encoding, body, chunks = case
    whole = decode_content(body, encoding, limit=LIMIT)
    decoder = StreamDecoder(encoding, limit=LIMIT)
    if b"".join(decoder.feed(chunk) for chunk in chunks) != whole:
        raise DisagreementError("chunks decode to something else")
    if len(whole) > LIMIT:
        raise DisagreementError("more came out than the limit")


def run_url(text: str) -> None:
    """URLs against httpx: where both read one, they read the same host."""
    found = read_url(text)
    if found.kind != "url":
        raise MessageError("bad_host", "malformed")
    if read_url(found.canonical) != found:
        raise DisagreementError("the canonical form has another canonical form")
    try:
        host = httpx.URL(text.partition("#")[0]).raw_host.decode()
    except (httpx.InvalidURL, UnicodeError, ValueError):
        return
    theirs = canonical_host(f"[{host}]" if ":" in host else host)
    if theirs is not None and theirs != found.host:
        raise DisagreementError(
            f"a client would connect to {host!r}, the guard reads {found.host!r}"
        )


def run_destinations(value: Any) -> None:
    """Destinations: each canonical form reads as itself."""
    for found in read_destinations(value):
        if found.kind in {"url", "mail", "host", "ip"}:
            again = read_destinations(found.canonical)
            if [one.canonical for one in again] != [found.canonical]:
                raise DisagreementError(f"{found.canonical!r} reads as {again!r}")


def _sdk_call(body: bytes) -> tuple[str, Any] | None:
    """Return the call that a server of the official SDK would run."""
    try:
        root = JSONRPCMessage.model_validate(json.loads(body)).root
        if getattr(root, "method", None) != "tools/call" or not hasattr(root, "id"):
            return None
        params = CallToolRequestParams.model_validate(getattr(root, "params", None))
    except (ValidationError, ValueError, RecursionError):
        return None
    return params.name, params.arguments or {}


def _guard_calls(body: bytes) -> tuple[ParsedCall, ...]:
    request = HttpRequest(
        method="POST",
        scheme="http",
        host="tools.example:80",
        target="/mcp",
        headers=(("content-type", "application/json"), ("accept", "application/json")),
        body=body,
        server="fuzz",
        connection="fuzz",
    )
    claimants = [one for one in _PROTOCOLS if not one.is_fallback and one.matches(request)]
    if len(claimants) > 1:
        raise MessageError("two_protocols", "two protocols claim this request")
    protocol = claimants[0] if claimants else _PROTOCOLS[-1]
    return tuple(protocol.parse(request).calls)


def _sdk_events(text: str) -> list[str]:
    decoder, found = SSEDecoder(), []
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        event = decoder.decode(line)
        if event is not None and event.data:
            found.append(event.data)
    return found


def _shown(value: Any) -> str:
    # Text, because True equals 1 in Python and neither in JSON.
    return json.dumps(value, sort_keys=True)


def _coded(mutator: Mutator) -> tuple[str, bytes, list[bytes]]:
    encoding = mutator.pick(("gzip", "deflate", "identity"))
    body = mutator.body() * mutator.pick((1, 1, 40))
    if encoding == "gzip":
        body = gzip.compress(body, 1, mtime=0)
    elif encoding == "deflate":
        body = zlib.compress(body, 1)
    if mutator.chance.random() < 0.4:
        body = mutator.damaged(body)
    return encoding, body, mutator.chunks(body)


_PROTOCOLS: Final[tuple[ProtocolModule, ...]] = discover_protocols()


def run_peps(pieces: list[bytes]) -> None:
    """The bytes of a connection: both enforcement points read the same requests, or one refuses."""
    both, difference = disagreement(pieces)
    if difference:
        raise DisagreementError(difference)
    if not both:
        raise MessageError("bad_http", "one of them reads no request")


TARGETS: Final = {
    one.name: one
    for one in (
        Target("json", lambda m: m.body(), run_json),
        Target("mcp", lambda m: m.body(), run_mcp),
        Target("sse", lambda m: m.stream(), run_sse),
        Target("coding", _coded, run_coding),
        Target("url", lambda m: m.url(), run_url),
        Target("destinations", lambda m: m.recipients(), run_destinations),
        Target("peps", connection, run_peps),
    )
}


# --- the driver ----------------------------------------------------------------------------------

SLOW: Final = 1.0
"""Processor seconds for one input."""
SHOWN: Final = 5


@dataclass(slots=True)
class Outcome:
    """Outcomes of the inputs of one parser."""

    target: str
    inputs: int = 0
    accepted: int = 0
    """Read by the guard; the rest was refused."""
    slowest_ms: float = 0.0
    failures: list[str] = field(default_factory=list)


def fuzz(target: Target, inputs: int, seed: int) -> Outcome:
    """Run one parser over so many inputs; stop after a few failures."""
    mutator = Mutator(random.Random(f"{seed}:{target.name}"))  # noqa: S311  (inputs, not secrets)
    outcome = Outcome(target.name)
    while outcome.inputs < inputs and len(outcome.failures) < SHOWN:
        data = target.make(mutator)
        outcome.inputs += 1
        started = time.process_time()
        try:
            target.run(data)
            outcome.accepted += 1
        except MessageError:
            pass
        except Exception as error:  # noqa: BLE001  (any other exception is what is looked for)
            outcome.failures.append(f"{type(error).__name__}: {error}: {data!r}")
        taken = time.process_time() - started
        outcome.slowest_ms = max(outcome.slowest_ms, round(taken * 1000, 3))
        if taken > SLOW:
            outcome.failures.append(f"{taken:.1f} s: {data!r}")
    return outcome


def main(words: Sequence[str] | None = None) -> int:
    """Fuzz every parser; one JSON line for each, exit code 1 where one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=10_000, help="of each parser")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", choices=sorted(TARGETS), action="append")
    given = parser.parse_args(words)
    failed = False
    for name in given.target or TARGETS:
        outcome = fuzz(TARGETS[name], given.inputs, given.seed)
        failed = failed or bool(outcome.failures)
        print(json.dumps(asdict(outcome)), flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
