"""Part of ``make conformance``: the newest SDKs log in through the guard, at an issuer that names
itself in its answers (RFC 9207) and gives tokens for one resource only (RFC 8707).

Prints one JSON object; exit code 1 where a client cannot, or is not installed.
"""

import json
import subprocess
import sys
from pathlib import Path

from guard.processes.loopback import Rig
from tests.e2e.test_login import Place

SUITE = Path(__file__).parent / "conformance"
NODE = str(SUITE / "node_modules" / "node" / "bin" / "node")
TYPESCRIPT = str(SUITE / "login" / "typescript.mjs")
CLIENTS = {
    "mcp 2 (Python)": [
        str(SUITE / ".environments" / "mcp2" / "bin" / "python"),
        str(SUITE / "login" / "python2.py"),
    ],
    "@modelcontextprotocol/sdk 1": [NODE, TYPESCRIPT, "1"],
    "@modelcontextprotocol/client 2": [NODE, TYPESCRIPT, "2"],
}
SECONDS = 300


def main():
    """Print whether each client logs in; return 0 where all do."""
    found = {}
    with Rig() as rig:
        place = Place(rig, says="iss", path="/one")
        url = place.url
        for name, command in CLIENTS.items():
            try:
                ran = subprocess.run(
                    [*command, url], capture_output=True, text=True, timeout=SECONDS, check=False
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                found[name] = type(error).__name__
                continue
            is_in = ran.stdout.strip() == f"the note n {url}/.guard/oauth"
            found[name] = "" if is_in else (ran.stdout + ran.stderr)[-500:]
        resources = set(place.resources())
    bound = resources == {f"http://127.0.0.1:{place.port}/mcp"}
    print(json.dumps({"name": "login", "failed": found, "bound_to_server": bound}))
    return 0 if bound and not any(found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
