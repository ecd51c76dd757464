"""``guard keys``, ``guard ca`` and ``guard erase``: keys that give way, the authority, erasure."""

from __future__ import annotations

import getpass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from guard.cli.running import Audit, now, on_record
from guard.core.errors import InputError
from guard.credentials import key_ring
from guard.credentials.key_ring import load_ring
from guard.credentials.label_key import audit_key_path, label_key_path, recording_key_path
from guard.processes.notes import RunNote, living_notes
from guard.settings import state_directory
from guard.telemetry import recordings as recording_files
from guard.telemetry.audit_tree import EVENT_ERASURE, Signer
from guard.telemetry.audit_tree import erase as erase_lines

if TYPE_CHECKING:
    from guard.core.model import Json


app = typer.Typer(
    no_args_is_help=True, help="Keys of labels, audit log and recordings: list, rotate, retire."
)
EVENT = "guard.keys"


class Purpose(StrEnum):
    """Purpose of a key."""

    LABELS = "labels"
    AUDIT = "audit"
    RECORDINGS = "recordings"


NAMES = {
    Purpose.LABELS: ("label key", label_key_path),
    Purpose.AUDIT: ("audit key", audit_key_path),
    Purpose.RECORDINGS: ("recording key", recording_key_path),
}
Which = Annotated[Purpose, typer.Argument(help="Whose keys.")]
KeyFile = Annotated[
    Path | None, typer.Option("--key", help="The key file (default: in the state directory).")
]


@app.command("list")
def list_keys(purpose: Which, key: KeyFile = None) -> None:
    """Print the keys of a ring: their ids, from when each is used, which are retired."""
    what, file = _place(purpose, key)
    ring = key_ring.load_ring(file, what, make=False)
    used = key_ring.key_id(ring.in_use(now())[0])
    for one in ring.keys:
        begins = datetime.fromtimestamp(one.since, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        since = f"from {begins} on" if one.since else "from the beginning"
        state = "retired" if not one.key else "used" if one.id == used else "accepted"
        typer.echo(f"{one.id}  {state}  {since}")


@app.command()
def rotate(
    purpose: Which,
    key: KeyFile = None,
    after: Annotated[
        float, typer.Option("--in", min=0, help="Seconds until it is used; accepted at once.")
    ] = key_ring.OVERLAP_SECONDS,
    audit: Audit = None,
) -> None:
    """Add a key to the ring: every process accepts it within two seconds, and uses it later.

    Where processes run on several machines, copy the ring to each before that.
    """
    what, file = _place(purpose, key)
    with on_record(audit) as log:
        made = key_ring.rotate(file, what, now(), after)
        log.event(EVENT, {"act": "rotated", "what": what, "id": made.id, "by": getpass.getuser()})
    typer.echo(f"{made.id}: accepted now, used in {after:g} s; {key_ring.ring_path(file)}")


@app.command()
def retire(
    purpose: Which,
    identifier: Annotated[str, typer.Argument(metavar="ID", help="Of the key.")],
    key: KeyFile = None,
    audit: Audit = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask back.")] = False,
) -> None:
    """Forget a key: what only it has sealed is no longer good.

    Labels and pins that it sealed count as altered (untrusted) from then on; recordings that it
    enciphered cannot be read; of the audit key, the public half stays, and its signatures good.
    """
    what, file = _place(purpose, key)
    if not yes and purpose is not Purpose.AUDIT:
        typer.confirm("what only this key has sealed is lost; retire it?", abort=True)
    public = (lambda one: Signer(one).verifier.text) if purpose is Purpose.AUDIT else None
    with on_record(audit) as log:
        gone = key_ring.retire(file, what, identifier, now(), public)
        log.event(EVENT, {"act": "retired", "what": what, "id": gone.id, "by": getpass.getuser()})
    typer.echo(f"{gone.id} is retired")


def _place(purpose: Purpose, key: Path | None) -> tuple[str, Path]:
    what, default = NAMES[purpose]
    return what, key or default()


ca = typer.Typer(
    no_args_is_help=True,
    help="The authority of forward listeners: show it, and say how clients trust it.",
)
Directory = Annotated[
    Path | None, typer.Option("--ca", envvar="GUARD_CA", help="Its directory, as for `guard run`.")
]

HINTS: Final = """\
# Trust the guard's authority in the agent's environment only, beside what it trusts already.
# Each of these adds; where a variable would replace the public authorities, a joined file is used.

# 0. A copy that the agent's user can read (the authority's own directory stays closed)
guard ca show --pem > {certificate}

# 1. The guard as the way out
export HTTPS_PROXY={proxy} HTTP_PROXY={proxy} NO_PROXY=
export https_proxy={proxy} http_proxy={proxy} no_proxy=

# 2. Node.js 20 and newer: adds to the built-in authorities.  Node uses the proxy variables only
#    with NODE_USE_ENV_PROXY=1 (from 22.21 and 24.5 on); without it `fetch` goes around the guard.
export NODE_EXTRA_CA_CERTS={certificate} NODE_USE_ENV_PROXY=1

# 3. A joined file for clients whose variable replaces: make it again when either part changes
cat "$(python3 -c 'import certifi; print(certifi.where())')" {certificate} > {joined}

# 4. Python: ssl and httpx read SSL_CERT_FILE, requests REQUESTS_CA_BUNDLE; curl CURL_CA_BUNDLE
export SSL_CERT_FILE={joined} REQUESTS_CA_BUNDLE={joined} CURL_CA_BUNDLE={joined}

# 5. uv: reads SSL_CERT_FILE; pip: PIP_CERT; git: GIT_SSL_CAINFO; AWS: AWS_CA_BUNDLE
export PIP_CERT={joined} GIT_SSL_CAINFO={joined} AWS_CA_BUNDLE={joined}

# 6. Java: into a copy of the trust store, never into the JVM's own
cp "$JAVA_HOME/lib/security/cacerts" guard-truststore.jks
keytool -importcert -noprompt -alias egress-guard -file {certificate} \\
  -keystore guard-truststore.jks -storepass changeit
export JAVA_TOOL_OPTIONS="-Djavax.net.ssl.trustStore=$PWD/guard-truststore.jks \\
  -Dhttps.proxyHost={host} -Dhttps.proxyPort={port} -Dhttp.proxyHost={host} -Dhttp.proxyPort={port}"

# 7. The whole machine or container image (Debian, Ubuntu; as root).  It adds one file.
cp {certificate} /usr/local/share/ca-certificates/egress-guard.crt && update-ca-certificates
#    Fedora, RHEL: cp {certificate} /etc/pki/ca-trust/source/anchors/ && update-ca-trust

# Variables are a convenience, not a wall: close every other way out as well (deploy/network).
"""


@ca.command()
def show(
    directory: Directory = None,
    pem: Annotated[
        bool, typer.Option("--pem", help="The certificates to trust, to redirect.")
    ] = False,
) -> None:
    """Print where the authority's certificate is and what it is; the authority is made if need be.

    Example: guard ca show
    """
    from guard.credentials.authority import ensure_authority, trusted

    place = directory or state_directory() / "ca"
    authority = ensure_authority(place)
    if pem:
        typer.echo(trusted(place), nl=False)
        return
    typer.echo(f"certificate  {authority.certificate}")
    typer.echo(f"subject      {authority.subject}")
    typer.echo(f"sha256       {authority.fingerprint}")
    typer.echo(f"expires      {authority.expires:%Y-%m-%d}")


@ca.command("rotate")
def rotate_authority(
    directory: Directory = None,
    use: Annotated[bool, typer.Option("--use", help="Sign with the next one from now on.")] = False,
    done: Annotated[
        bool, typer.Option("--done", help="Clients need the one before no more.")
    ] = False,
) -> None:
    """Change the authority in three steps, so that no client meets one that it does not trust.

    Without an option: prepare the next; `guard ca show --pem` then prints both, to give to clients.
    `--use`: once they have them; then replace the workers (SIGUSR2 to the guard).  `--done`: at the
    end, the certificate before leaves what is printed.
    """
    from guard.credentials import authority

    place = directory or state_directory() / "ca"
    if use and done:
        raise InputError("--use and --done are two steps")
    if done:
        gone = authority.forget_previous(place)
        typer.echo("the one before is no longer printed" if gone else "there is none before")
        return
    found = authority.use_next(place) if use else authority.prepare_next(place)
    typer.echo(f"{'used' if use else 'prepared'}: {found.subject}, sha256 {found.fingerprint}")
    typer.echo(
        "replace the workers now: kill -USR2 PID of the guard"
        if use
        else "give clients both certificates (guard ca show --pem), then: guard ca rotate --use"
    )


@ca.command("install-hints")
def install_hints(
    proxy: Annotated[
        str | None,
        typer.Option(
            help="HOST:PORT of the guard's forward listener (default: of the running guard)."
        ),
    ] = None,
    to: Annotated[Path, typer.Option(help="Directory for the copies that agents read.")] = Path(),
) -> None:
    """Print shell lines that make Node, Python, uv, Java or a machine trust the guard.

    Nothing is changed: read them, and run those that apply.  They add to what is trusted.

    Example: guard ca install-hints --proxy 127.0.0.1:8080
    """
    running = living_notes(RunNote) if proxy is None else []
    proxy = proxy or next((one.forward for one in running if one.forward), "127.0.0.1:8080")
    host, _, port = proxy.rpartition(":")
    directory = to.resolve()
    typer.echo(
        HINTS.format(
            certificate=directory / "egress-guard-ca.pem",
            joined=directory / "egress-guard-joined.pem",
            proxy=f"http://{proxy}",
            host=host,
            port=port,
        ),
        nl=False,
    )


LINES_AT_A_TIME = 500


def erase(
    reason: Annotated[str, typer.Option(help="Why; it stands in the audit log.")],
    principal: Annotated[str, typer.Option(help="The principal to erase.")] = "",
    session: Annotated[str, typer.Option(help="Or one session.")] = "",
    audit: Annotated[
        list[Path] | None,
        typer.Option(exists=True, help="Audit log, the one in use last; repeat for rotated ones."),
    ] = None,
    recordings: Annotated[
        Path | None, typer.Option(exists=True, help="Directory of recordings.")
    ] = None,
    record_key: Annotated[Path | None, typer.Option(help="Key file of the recordings.")] = None,
) -> None:
    """Erase a principal or a session; the audit log still verifies afterwards.

    A line of the log keeps its place in the tree and loses what it says; the erasure itself is a
    line. A segment that is being recorded now is left out: erase again once it is closed. Labels in
    the state end by the policy's `state` limits.
    """
    if not (principal or session) or not (audit or recordings):
        raise InputError("say whom (--principal or --session) and where (--audit, --recordings)")

    def concerns(fields: dict[str, Json]) -> bool:
        wanted = {"principal": principal, "session": session}
        return all(not value or fields.get(name) == value for name, value in wanted.items())

    if audit:
        lines = [pair for path in audit for pair in erase_lines(path, concerns)]
        with on_record(audit[-1], required=True) as log:
            for start in range(0, len(lines), LINES_AT_A_TIME):
                part = [list(pair) for pair in lines[start : start + LINES_AT_A_TIME]]
                log.event(EVENT_ERASURE, {"reason": reason, "lines": part})
        typer.echo(f"{len(lines)} audit lines erased")
    if recordings:
        ring = load_ring(record_key or recording_key_path(), "recording key", make=False)
        key, older = ring.readers()
        typer.echo(f"{recording_files.erase(recordings, key, concerns, older)} records erased")
