"""``make wheels``: is what would be published reproducible, and does it work where it is installed?

Builds the wheel and the source distribution twice, in two places, and compares the bytes.  For each
interpreter from 3.11 to 3.13 that is found, then installs the wheel with what the lock names into
an environment of its own and, away from the repository, lets it attack itself (``demo``), judge a
call with a shipped policy, and say how much it takes.  Prints one JSON object.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.commits import ROOT, unpack

BUILT = ("*.whl", "*.tar.gz")
EPOCH = "1700000000"
"""Any time will do: the same one must give the same bytes."""
CHECK = """
import json, importlib.metadata as m, sys
print(json.dumps({"mitmproxy": m.version("mitmproxy"), "python": sys.version.split()[0]}))
"""


def interpreters():
    """Return one interpreter of each supported version that can make environments."""
    found = subprocess.run([ROOT / ".ci" / "pythons"], capture_output=True, text=True, check=True)
    return found.stdout.splitlines()


def build(out):
    """Build from the files of the last commit; return the digests by file name."""
    with tempfile.TemporaryDirectory(prefix="guard-source-") as source:
        unpack("HEAD", source)
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-d", str(out)],
            cwd=source,
            env={**os.environ, "SOURCE_DATE_EPOCH": EPOCH},
            stdout=subprocess.DEVNULL,
            check=True,
        )
    built = sorted(path for pattern in BUILT for path in out.glob(pattern))
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in built}


def away(folder, *words):
    """Run a command where no checkout is."""
    return subprocess.run(
        [str(word) for word in words], cwd=folder, capture_output=True, text=True, check=False
    )


def try_wheel(python, wheel, folder):
    """Install a wheel with what the lock names, and use it away from the repository."""
    environment = folder / "environment"
    subprocess.run([python, "-m", "venv", str(environment)], check=True)
    bin_ = environment / "bin"
    pip = [str(bin_ / "python"), "-m", "pip", "--disable-pip-version-check", "-q", "install"]
    lock = ROOT / "requirements"
    isolated = ["--no-build-isolation", "--require-hashes", "-r"]
    subprocess.run([*pip, *isolated, str(lock / "build.txt")], check=True)
    subprocess.run([*pip, *isolated, str(lock / "runtime.txt")], check=True)
    subprocess.run([*pip, "--no-deps", str(wheel)], check=True)
    demo = away(folder, bin_ / "agent-egress-guard", "demo", "--json")
    call = json.dumps({"tool": "email_send_email", "arguments": {"to": "x@evil.example"}})
    (folder / "call.json").write_text(call, encoding="utf-8")
    shipped = next(environment.glob("lib/*/site-packages/guard/_shipped/policies/default.yaml"))
    asked = away(folder, bin_ / "guard", "policy", "explain", "call.json", "--policy", shipped)
    said = away(folder, bin_ / "python", "-c", CHECK)
    size = away(folder, "du", "-sk", environment).stdout.split()[0]
    return {
        **json.loads(said.stdout or json.dumps({"failed": said.stderr[-500:]})),
        "installed_mb": int(size) * 1024 / 1e6,
        "demo": demo.returncode == 0,
        "refuses": asked.returncode == 2 and "ask" in asked.stdout,
        "said": (demo.stderr + asked.stderr)[-500:],
    }


def main():
    """Print what was found; return 0 where everything holds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build-only", action="store_true", help="only whether builds are alike")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="guard-wheels-") as name:
        folder = Path(name)
        first, second = build(folder / "one"), build(folder / "two")
        report = {"reproducible": first == second, "files": first, "wheels": []}
        wheel = next((folder / "one").glob("*.whl"))
        for number, python in enumerate([] if chosen.build_only else interpreters()):
            place = folder / str(number)
            place.mkdir()
            report["wheels"].append(try_wheel(python, wheel, place))
    print(json.dumps(report))
    works = all(one["demo"] and one["refuses"] for one in report["wheels"])
    return 0 if report["reproducible"] and works else 1


if __name__ == "__main__":
    sys.exit(main())
