"""The conformance suite is asked only where it is installed, and what it says is read."""

from pathlib import Path

import pytest

from guard.core.errors import GuardError
from lab.bench_transparency import Suite

LINES = r"=== SUMMARY ===\n✓ tools-list: 3 passed, 0 failed\n✗ ping: 1 passed, 2 failed\n"
NODE = f"""#!/bin/sh
case "$1" in *client.mjs) echo '{{"step": 1}}';; *) printf '{LINES}';; esac
"""


def install(folder: Path, node: str) -> None:
    """Make a folder that looks like an installed suite, with another node."""
    runner = folder / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    program = folder / "node_modules" / "node" / "bin" / "node"
    python = folder / ".environments" / "mcp2" / "bin" / "python"
    for path, text in ((runner, ""), (program, node), (python, "#!/bin/sh\necho '{}'\n")):
        path.parent.mkdir(parents=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)


def test_a_suite_that_is_not_installed_is_said(tmp_path: Path) -> None:
    """With what installs it."""
    with pytest.raises(GuardError, match="make conformance"):
        Suite(tmp_path)


def test_a_suite_that_says_nothing_is_no_success(tmp_path: Path) -> None:
    """A runner that crashes has not passed."""
    install(tmp_path, "#!/bin/sh\necho broken\n")

    with pytest.raises(GuardError, match="said nothing"):
        Suite(tmp_path).see(1, lambda _: None)


def test_what_failed_directly_is_told_from_what_passed(tmp_path: Path) -> None:
    """Only what passes directly can be the same through the guard."""
    install(tmp_path, NODE)

    seen = Suite(tmp_path).see(1, lambda _: None)

    assert seen["2026-07-28"] == {
        "suite/tools-list": {"passed": 3},
        "suite/ping": {"passed": 1, "failed": 2},
        "typescript/step": 1,
    }
