"""The files of a commit, without the repository around them."""

import io
import subprocess
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def unpack(commit, directory, *names):
    """Write the files of a commit, or some of them, into a directory."""
    archive = ["git", "-C", str(ROOT), "archive", commit, *names]
    packed = subprocess.run(archive, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as files:
        files.extractall(directory, filter="data")
