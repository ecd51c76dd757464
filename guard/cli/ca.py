"""``guard ca``: the authority that opens TLS for forward listeners, and how to trust it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from guard.core.errors import InputError
from guard.processes.notes import FOLDER, RunNote, living_notes
from guard.settings import state_directory

app = typer.Typer(
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


@app.command()
def show(
    ca: Directory = None,
    pem: Annotated[
        bool, typer.Option("--pem", help="The certificates to trust, to redirect.")
    ] = False,
) -> None:
    """Print where the authority's certificate is and what it is; the authority is made if need be.

    Example: guard ca show
    """
    from guard.credentials.authority import ensure_authority, trusted

    authority = ensure_authority(ca or state_directory() / "ca")
    if pem:
        typer.echo(trusted(ca or state_directory() / "ca"), nl=False)
        return
    typer.echo(f"certificate  {authority.certificate}")
    typer.echo(f"subject      {authority.subject}")
    typer.echo(f"sha256       {authority.fingerprint}")
    typer.echo(f"expires      {authority.expires:%Y-%m-%d}")


@app.command()
def rotate(
    ca: Directory = None,
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

    directory = ca or state_directory() / "ca"
    if use and done:
        raise InputError("--use and --done are two steps")
    if done:
        gone = authority.forget_previous(directory)
        typer.echo("the one before is no longer printed" if gone else "there is none before")
        return
    found = authority.use_next(directory) if use else authority.prepare_next(directory)
    typer.echo(f"{'used' if use else 'prepared'}: {found.subject}, sha256 {found.fingerprint}")
    typer.echo(
        "replace the workers now: kill -USR2 PID of the guard"
        if use
        else "give clients both certificates (guard ca show --pem), then: guard ca rotate --use"
    )


@app.command("install-hints")
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
    running = living_notes(FOLDER, RunNote) if proxy is None else []
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
