"""A worker begins before the settings are read, and leaves nothing where they cannot be used."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells of the processes")
@pytest.mark.parametrize("command", ["run", "decide"])
def test_a_worker_begins_while_the_settings_are_read_and_ends_where_they_are_wrong(
    tmp_path, command
):
    """An error is said as ever: once, with its exit code, and without a word of the worker's."""
    config = tmp_path / "guard.toml"
    os.mkfifo(config)
    with subprocess.Popen(
        [sys.executable, "-m", "guard", command, "--config", str(config)],
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as process:
        # Opened once the guard reads it.
        with config.open("w") as file:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
            [worker] = map(int, children.split())
            words = Path(f"/proc/{worker}/cmdline").read_bytes().split(b"\0")
            file.write("queue = -1\n")
        said = process.stderr.read()

    assert b"guard.runtime.worker" in words
    assert process.returncode == 3
    assert said.startswith(f"guard {command}: setting `queue`: ")
    assert said.count("\n") == 1
    assert not Path(f"/proc/{worker}").exists()
    assert list(tmp_path.iterdir()) == [config]


def test_help_begins_no_worker(tmp_path):
    """Nor does any command that has none."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "guard", "run", "--help"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )

    assert "--policy" in done.stdout
    assert "guard.processes.early_worker" not in done.stderr
    assert list(tmp_path.iterdir()) == []
