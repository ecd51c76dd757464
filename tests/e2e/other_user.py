"""A guard as another user on a read-only file system, as containers and services run it."""

import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

from guard.processes.loopback import start
from tests.e2e.running_guard import ROOT

PLACES = ("/etc/guard", "/var/lib/guard", "/var/log/guard", "/run", "/secrets")
READ_ONLY = """
set -eu
mount --make-rprivate /
# A Python below a directory of root's alone is shown to the guard's user as well.
if [ -n "$CLOSED" ]; then
  mount --bind "$PYTHON" "$KEPT"
  mount -t tmpfs -o mode=755 none "$CLOSED"
  mkdir -p "$PYTHON"
  mount --bind "$KEPT" "$PYTHON"
fi
# Volumes of the pod: its own directories are below the one that stands for its /tmp.
mount --bind /tmp /tmp
mount --bind "$POD" "$POD"
mount -o remount,bind,ro /
exec setpriv --reuid 10001 --regid 10001 --clear-groups --no-new-privs --bounding-set=-all "$@"
"""


def isolates():
    """Return whether this machine lets a test run a process as another user on read-only files."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "setpriv"))):
        return False
    if not all(place.stat().st_mode & stat.S_IXOTH for place in (ROOT, *ROOT.parents)):
        return False  # The pod's user could not enter the checkout.
    tried = ["unshare", "--mount", "mount", "--make-rprivate", "/"]
    return subprocess.run(tried, check=False, capture_output=True).returncode == 0


class OtherUser:
    """Directories that one user may write, and processes of that user in them.

    Args:
        directory: stands for the root of the file system.
        places: directories that the user may write.
    """

    def __init__(self, directory, places=PLACES):
        self.directory, self.places = directory, places
        self._kept = directory.with_name("python")
        self._kept.mkdir()
        for place in places:
            made = directory / place.lstrip("/")
            made.mkdir(parents=True, exist_ok=True)
            # As kubelet mounts volumes for `fsGroup: 10001`.
            os.chown(made, 0, 10001)
            made.chmod(0o2775)

    def here(self, text):
        """Return a text with the directories where they are."""
        names = "|".join(map(re.escape, self.places))
        return re.sub(rf"(?<![\w/.-])(?:{names})", lambda m: f"{self.directory}{m[0]}", text)

    def run(self, name, *command, given):
        """Start a command with some environment variables."""
        # Directories above Python that others may not enter, the highest one last.
        above = Path(sys.base_prefix).parents
        closed = [str(x) for x in above if not x.stat().st_mode & stat.S_IXOTH]
        environment = {
            "PATH": os.environ["PATH"],
            "POD": str(self.directory),
            "PYTHON": sys.base_prefix,
            "CLOSED": "".join(closed[-1:]),
            "KEPT": str(self._kept),
        }
        environment |= {one: self.here(value) for one, value in given.items()}
        words = ["unshare", "--mount", "sh", "-c", READ_ONLY, "sh", *command]
        return start(self.directory.parent / f"{name}.log", *words, environment=environment)
