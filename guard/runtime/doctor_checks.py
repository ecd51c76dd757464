"""Checks of ``guard doctor``: each reports its status and what to do about it."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from guard.core.errors import GuardError
from guard.core.policy import StateLimits
from guard.credentials.authority import read_authority
from guard.credentials.key_ring import load_seal
from guard.credentials.label_key import label_key_path
from guard.inference.onnx import load_models
from guard.inference.text_classifier import load_classifiers
from guard.policy import load_policies
from guard.processes.listening_ports import addresses, bind_error
from guard.processes.notes import RunNote, find_running
from guard.protocols.http.oauth import RESOURCE_PATH
from guard.settings import EMBEDDED, Settings, models_directory
from guard.store.access import acl_rule
from guard.store.connection import CommandRefusedError, RedisClient
from guard.store.embedded import find_server
from guard.store.incident_records import IncidentRecords, number_of, read_log
from guard.store.store import RedisSessionStore
from guard.store.topology import open_client

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


CONNECT_SECONDS: Final = 3.0
LIST_SECONDS: Final = 10.0
TOOLS_SHOWN: Final = 8
_PORTS: Final = {"http": 80, "https": 443}
SKEW_SECONDS: Final = 5.0
EXPIRES_SOON_DAYS: Final = 30
EARLIEST: Final = 1_700_000_000
"""Seconds since the epoch; a clock before this one has never been set."""
TRUST_VARIABLES: Final = ("NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")


class Status(StrEnum):
    """Status of a check; only ``fail`` makes the command fail."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class Checked:
    """The outcome of one check."""

    name: str
    status: Status
    detail: str
    advice: str = ""
    """Advice to the user; empty where nothing is to be done."""


def check_policy(paths: list[Path]) -> Checked:
    """Load the policies as the guard would."""
    if not paths:
        return Checked("policy", Status.SKIP, "none named", "name yours with --policy")
    try:
        policy = load_policies(paths)
    except GuardError as error:
        first = str(error).splitlines()[0]
        return Checked("policy", Status.FAIL, first, "run `guard policy check` on it")
    detail = f"{policy.name} ({policy.mode.value}), digest {policy.digest[:12]}"
    if policy.mode.value == "monitor":
        return Checked("policy", Status.WARN, detail, "mode `monitor` blocks nothing")
    return Checked("policy", Status.OK, detail)


def check_models(directory: Path | None) -> Checked:
    """Verify every model against its manifest."""
    try:
        models = load_models(directory or models_directory())
    except GuardError as error:
        return Checked("models", Status.FAIL, str(error), "install the package anew")
    return Checked("models", Status.OK, ", ".join(sorted(models)) + " verified")


def check_ports(settings: Settings) -> Iterator[Checked]:
    """Try to listen where the guard will."""
    for _, host, port in addresses(settings):
        name = f"port {host}:{port}"
        error = bind_error(host, port)
        if error is None:
            yield Checked(name, Status.OK, "free")
            continue
        taken = error.errno == errno.EADDRINUSE
        advice = "a running guard, or stop what listens there" if taken else "choose another"
        status = Status.WARN if taken else Status.FAIL
        yield Checked(name, status, str(error.strerror or error), advice)


def check_principals(settings: Settings) -> list[Checked]:
    """Recommend authenticated principals: unauthenticated clients share one, and its trust."""
    if not (settings.reverse or settings.forward):
        return []
    if settings.credentials is not None or settings.authorization_server:
        return [Checked("principals", Status.OK, "clients authenticate themselves")]
    detail = "clients are not authenticated: they share one principal, its trust and its memory"
    return [Checked("principals", Status.WARN, detail, "give each client a --credentials entry")]


async def check_upstreams(settings: Settings) -> list[Checked]:
    """Reach every server behind a reverse listener, and list its tools where it speaks MCP."""
    from guard.policy.client_config import ConfiguredServer
    from guard.runtime.mcp_client.tool_listing import list_tools

    found = []
    for listener in settings.listeners:
        parts = urlsplit(listener.upstream)
        name, port = f"upstream {listener.upstream}", parts.port or _PORTS[parts.scheme]
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, writer = await asyncio.open_connection(parts.hostname, port)
            writer.close()
        except (OSError, TimeoutError) as error:
            detail = f"cannot be reached ({type(error).__name__})"
            found.append(Checked(name, Status.FAIL, detail, "start it, or correct `--reverse`"))
            continue
        server = ConfiguredServer(name, f"{listener.upstream}{listener.endpoint or '/mcp'}")
        try:
            async with asyncio.timeout(LIST_SECONDS):
                tools, _ = await list_tools(server)
        except (GuardError, TimeoutError):
            issuer = await _issuer(listener.upstream, listener.endpoint or "/mcp")
            if issuer:
                found.append(_asks_login(name, issuer, settings.authorization_server))
                continue
            detail = f"answers, and lists no MCP tools at {server.url}"
            advice = "name its endpoint in `--reverse HOST:PORT=URL/path`, if it is an MCP server"
            found.append(Checked(name, Status.WARN, detail, advice))
        else:
            names = ", ".join(tool.name[:40] for tool in tools[:TOOLS_SHOWN])
            more = f" and {len(tools) - TOOLS_SHOWN} more" if len(tools) > TOOLS_SHOWN else ""
            found.append(Checked(name, Status.OK, f"{len(tools)} tools: {names}{more}"))
    return found


async def _issuer(upstream: str, path: str) -> str:
    """Return who issues the tokens of a server (RFC 9728), empty where it does not say."""
    import httpx

    url = f"{upstream}{RESOURCE_PATH}{path}"
    try:
        async with httpx.AsyncClient(timeout=CONNECT_SECONDS, trust_env=False) as client:
            servers = (await client.get(url)).json()["authorization_servers"]
    except (httpx.HTTPError, ValueError, TypeError, KeyError):
        return ""
    # Short and without control characters: a server said it.
    first = str(servers[0])[:200] if isinstance(servers, list) and servers else ""
    return "".join(filter(str.isprintable, first))


def _asks_login(name: str, issuer: str, declared: Sequence[str]) -> Checked:
    if issuer.removesuffix("/") in {one.removesuffix("/") for one in declared}:
        return Checked(name, Status.OK, f"asks its clients to log in at {issuer}, as declared")
    advice = f"if that is its issuer: `guard run --authorization-server {issuer}`"
    return Checked(name, Status.WARN, f"asks its clients to log in at {issuer}", advice)


async def check_redis(settings: Settings) -> list[Checked]:
    """Reach Redis, ask how it evicts, and compare clocks."""
    if settings.redis == EMBEDDED:
        try:
            server = Checked("redis", Status.OK, f"embedded, {find_server()}")
        except GuardError as error:
            server = Checked("redis", Status.FAIL, str(error), "install redis-server")
        return [server, check_clock()]
    store = None
    try:
        client = open_client(
            settings.redis, timeout=CONNECT_SECONDS, durability=settings.durability
        )
        store = RedisSessionStore(client, limits=StateLimits())
        await store.verify()
        access = await _access(client)
        before = time.time()  # noqa: TID251  (the clock itself is what is checked)
        reply = await store.client.execute("TIME")
    except GuardError as error:
        advice = "start it, and set maxmemory-policy noeviction"
        return [Checked("redis", Status.FAIL, str(error), advice), check_clock()]
    finally:
        if store is not None:
            await store.aclose()
    detail = f"reachable, evicts nothing, durability {settings.durability.value}"
    found = [Checked("redis", Status.OK, detail), access]
    if isinstance(reply, list) and reply:
        skew = abs(float(reply[0]) + float(reply[1]) / 1e6 - before)
        good = skew <= SKEW_SECONDS
        detail = f"{skew:.1f} s from Redis' clock"
        advice = "" if good else "synchronise both with NTP; windows of state use this clock"
        found.append(Checked("clock", Status.OK if good else Status.FAIL, detail, advice))
    return found


async def _access(client: RedisClient) -> Checked:
    """See as whom the guard is connected; the rule that is enough for it is part of the answer."""
    rule = f"enough for the guard: {acl_rule()}"
    try:
        user = await client.execute("ACL", "WHOAMI")
    except CommandRefusedError:
        # A user without that right is one that somebody has restricted.
        return Checked("redis access", Status.OK, f"restricted; {rule}")
    if user == b"default":
        detail = "connected as `default`, which may do everything"
        return Checked("redis access", Status.WARN, detail, rule)
    return Checked("redis access", Status.OK, f"a user of its own; {rule}")


def check_clock() -> Checked:
    """See whether the clock was ever set."""
    if time.time() < EARLIEST:  # noqa: TID251  (see above)
        return Checked("clock", Status.FAIL, "it is before 2023", "set it, for example by NTP")
    return Checked("clock", Status.OK, "plausible; compared only with a Redis of your own")


def check_authority(directory: Path, variables: Mapping[str, str]) -> Iterator[Checked]:
    """Look at the authority of forward listeners, and at who trusts it here."""
    try:
        authority = read_authority(directory)
    except GuardError as error:
        yield Checked("ca", Status.FAIL, str(error), "run `guard ca show`, which makes one")
        return
    days = (authority.expires.timestamp() - time.time()) / 86400  # noqa: TID251  (see above)
    detail = f"{authority.fingerprint[:16]}…, {days:.0f} days left"
    if days < EXPIRES_SOON_DAYS:
        advice = f"move `{directory}` away; the next start makes another to be trusted anew"
        yield Checked("ca", Status.WARN if days > 0 else Status.FAIL, detail, advice)
    else:
        yield Checked("ca", Status.OK, detail)
    yield _trust(authority.certificate, variables)


def _trust(certificate: Path, variables: Mapping[str, str]) -> Checked:
    own = ssl.PEM_cert_to_DER_cert(certificate.read_text(encoding="ascii"))
    named = {name: variables[name] for name in TRUST_VARIABLES if variables.get(name)}
    without = [name for name, path in named.items() if own not in _certificates(Path(path))]
    advice = "in the agent's environment, follow `guard ca install-hints`"
    if without:
        detail = f"{', '.join(without)} names a file without the authority"
        return Checked("ca trust", Status.FAIL, detail, advice)
    if named:
        return Checked("ca trust", Status.OK, f"by {', '.join(named)}")
    in_store = own in ssl.create_default_context().get_ca_certs(binary_form=True)
    if in_store:
        return Checked("ca trust", Status.OK, "by the system's store")
    return Checked("ca trust", Status.WARN, "not in this environment", advice)


def _certificates(path: Path) -> list[bytes]:
    """Return the authorities in a file (DER); none where it cannot be read as one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with suppress(OSError):
        context.load_verify_locations(path)
    return context.get_ca_certs(binary_form=True)


async def check_direct(addresses: Iterable[str]) -> list[Checked]:
    """Try to reach hosts around the guard; an open connection is a hole.

    Meaningful only where the agent runs: the guard itself must be able to go out.
    """
    found = []
    for text in addresses:
        host, _, port = text.rpartition(":")
        name = f"direct egress {text}"
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        except (OSError, TimeoutError) as error:
            found.append(Checked(name, Status.OK, f"closed ({type(error).__name__})"))
        else:
            writer.close()
            advice = "apply a rule of `deploy/network`; proxy variables alone hold nobody back"
            found.append(Checked(name, Status.FAIL, "open: the guard can be walked around", advice))
    if not found:
        advice = "run `guard doctor --direct 1.1.1.1:443` where the agent runs"
        found.append(Checked("direct egress", Status.SKIP, "not tried", advice))
    return found


def environment() -> Mapping[str, str]:
    """Return the variables by which clients here find what to trust."""
    return os.environ  # noqa: TID251  (other programs' variables, none of the guard's settings)


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
