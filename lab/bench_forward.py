"""``guard lab bench proxy --forward``: TLS that is opened and judged, beside stock mitmdump.

Both proxies open the TLS of the same upstream for the same clients; rounds alternate.  The
generator is this process (wrk speaks to no proxy), so the figures say how the two compare, and what
the guard adds, rather than how much either could carry.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import time
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from mitmproxy.certs import CertStore

from guard.core.errors import GuardError
from guard.processes.loopback import Rig, free_port
from guard.replay.reports import Check, Report, machine
from lab.load import CALL, UPSTREAM, Load, find_mitmdump

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAME: Final = "localhost"
OPENED: Final = 40
"""Tunnels opened one after the other to time the opening."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to the upstream: by a proxy, or without (``proxy`` is 0)."""

    proxy: int
    upstream: int
    trust: Path


def bench_forward(
    policy: Path, *, rounds: int, seconds: float, progress: Callable[[str, float], object]
) -> Report:
    """Run everything and return the report.

    Raises:
        GuardError: a part could not be started, or refused the benchmark's own call.
    """
    with Rig() as rig:
        ways = _start(rig, policy)
        progress("warming up", 0.05)
        for way in ways.values():
            asyncio.run(_load(way, 4, 1.0))
        rates: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(rounds):
            progress(f"16 tunnels, round {number + 1} of {rounds}", 0.1 + 0.8 * number / rounds)
            for name, way in ways.items():
                rates[name].append(asyncio.run(_load(way, 16, seconds)).per_second)
        progress("1 tunnel", 0.9)
        single = {name: asyncio.run(_load(way, 1, seconds)) for name, way in ways.items()}
        opening = {name: asyncio.run(_opening(way)) for name, way in ways.items()}
    pairs = zip(rates["guard"], rates["mitmdump"], strict=True)
    added = single["guard"].p50_ms - single["direct"].p50_ms
    return Report(
        name="forward",
        machine=machine(),
        checks=[
            Check(
                id="forward_ratio_vs_mitmdump_c16",
                value=round(median(g / m for g, m in pairs), 3),
                unit="ratio",
                n=rounds,
            ),
            Check(id="forward_added_latency_ms_c1", value=round(added, 3), unit="ms"),
            Check(
                id="forward_tunnel_open_ms",
                value=round(opening["guard"], 3),
                unit="ms",
                n=OPENED,
            ),
        ],
        details={
            "generator": "asyncio, in this process",
            "rounds": rates,
            "one_tunnel_p50_ms": {name: load.p50_ms for name, load in single.items()},
            "tunnel_open_p50_ms": opening,
            "errors": {name: load.errors for name, load in single.items()},
        },
    )


def _start(rig: Rig, policy: Path) -> dict[str, Way]:
    """Start upstream, mitmdump and guard; return the ways through them."""
    directory = rig.directory
    chain, authority = _certificate(directory / "upstream")
    port = rig.server(UPSTREAM, str(chain))
    plain, guarded = free_port(), free_port()
    confdir = directory / "mitmdump"
    command = [find_mitmdump(), "-q", "--mode", f"regular@127.0.0.1:{plain}"]
    command += ["--set", f"confdir={confdir}"]
    command += ["--set", f"ssl_verify_upstream_trusted_ca={authority}"]
    stock = rig.start("mitmdump", *command)
    opened = directory / "opened.yaml"
    limits = f"egress: {{ports: [{port}], private: [{NAME}]}}\n"
    opened.write_text(f"version: 1\nname: opened\n{limits}", encoding="utf-8")
    rig.begin_guard(
        *("--policy", str(policy.resolve()), "--policy", str(opened)),
        *("--forward", f"127.0.0.1:{guarded}", "--ca", str(directory / "ca")),
        *("--upstream-ca", str(authority)),
    ).wait_ready()
    stock.wait_listening(plain)
    return {
        "direct": Way(0, port, authority),
        "mitmdump": Way(plain, port, confdir / "mitmproxy-ca-cert.pem"),
        "guard": Way(guarded, port, directory / "ca" / "mitmproxy-ca-cert.pem"),
    }


def _certificate(directory: Path) -> tuple[Path, Path]:
    """Return the chain file of an upstream, and the certificate of its authority."""
    store = CertStore.from_store(directory, "upstream", 2048)
    entry = store.get_cert(NAME, [x509.DNSName(NAME)], None)
    key = entry.privatekey.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    chain = directory / "chain.pem"
    chain.write_bytes(key + entry.cert.to_pem())
    return chain, directory / "upstream-ca-cert.pem"


async def _open(way: Way) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    context = ssl.create_default_context(cafile=str(way.trust))
    reader, writer = await asyncio.open_connection("127.0.0.1", way.proxy or way.upstream)
    if way.proxy:
        authority = f"{NAME}:{way.upstream}"
        writer.write(f"CONNECT {authority} HTTP/1.1\r\nhost: {authority}\r\n\r\n".encode())
        answer = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in answer.split(b"\r\n", 1)[0]:
            msg = f"the benchmark's own tunnel was refused: {answer!r}"
            raise GuardError(msg)
    await writer.start_tls(context, server_hostname=NAME)
    return reader, writer


async def _load(way: Way, tunnels: int, seconds: float) -> Load:
    """Send the call over so many tunnels for so long."""
    request = _request(way)
    opened = [await _open(way) for _ in range(tunnels)]
    deadline = time.perf_counter() + seconds
    times: list[float] = []
    bad = 0

    async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal bad
        while (started := time.perf_counter()) < deadline:
            bad += not await _ask(reader, writer, request)
            times.append(time.perf_counter() - started)
        writer.close()

    await asyncio.gather(*(client(*pair) for pair in opened))
    if bad:
        msg = f"{bad} of {len(times)} of the benchmark's own calls were refused"
        raise GuardError(msg)
    return Load.of(times, seconds, bad)


async def _opening(way: Way) -> float:
    """Return the median milliseconds to a new tunnel's first answer."""
    times = []
    for _ in range(OPENED):
        started = time.perf_counter()
        reader, writer = await _open(way)
        await _ask(reader, writer, _request(way))
        times.append(time.perf_counter() - started)
        writer.close()
    return median(times) * 1000


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> bool:
    writer.write(request)
    answer = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: *(\d+)", answer)
    body = await reader.readexactly(int(length[1]) if length else 0)
    refused = json.loads(body).get("result", {}).get("isError", False) if body else False
    return answer.startswith(b"HTTP/1.1 200") and not refused


def _request(way: Way) -> bytes:
    lines = f"host: {NAME}:{way.upstream}\r\ncontent-type: application/json\r\n"
    lines += f"x-guard-session: bench\r\ncontent-length: {len(CALL)}\r\n"
    return f"POST /mcp HTTP/1.1\r\n{lines}\r\n{CALL}".encode()
