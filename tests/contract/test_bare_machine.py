"""``.ci/bare``: the README's two commands where nothing but Python, make and git is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / ".ci" / "bare"
MAKEFILE = """
demo:
\t@for name in redis-server wrk prometheus node npm chromium; do command -v $$name || true; done
\t@echo home holds $$(ls -A $$HOME), given $$GIVEN, beside $$(ls ../shared)
test:
\t@python3 -c 'import sys; print("on", *sys.version_info[:2]); sys.exit(int(open("code").read()))'
"""


@pytest.mark.parametrize("code", [0, 1])
def test_a_bare_run_has_a_clean_clone_and_no_optional_program(tmp_path, code):
    """An empty HOME and environment, `../shared` beside the clone; it fails with a command."""
    place, optional = tmp_path / "project" / "checkout", tmp_path / "optional"
    (place / ".ci").mkdir(parents=True)
    (tmp_path / "project" / "shared").mkdir()
    (tmp_path / "project" / "shared" / "data").touch()
    shutil.copy(SCRIPT, place / ".ci")
    (place / "Makefile").write_text(MAKEFILE, "utf-8")
    (place / "code").write_text(str(code), "utf-8")
    optional.mkdir()
    for name in ("redis-server", "chromium"):
        (optional / name).symlink_to(sys.executable)
    search = f"{optional}:{os.environ['PATH']}"
    given = {**os.environ, "PATH": search, "PYTHON": sys.executable, "GIVEN": "yes"}
    git = ["git", "-C", str(place), "-c", "user.name=a", "-c", "user.email=a@example.com"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "--quiet", "--message=first"], check=True)

    ran = subprocess.run(
        [place / ".ci" / "bare"], env=given, capture_output=True, text=True, check=False
    )

    version = "{} {}".format(*sys.version_info[:2])
    shown = ran.stdout.splitlines()[1:]
    assert shown == ["home holds , given , beside data", f"on {version}"], ran.stderr
    assert (ran.returncode == 0) == (code == 0)
