"""The policy in force of the deployment that a console belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guard.core.errors import GuardError
from guard.policy import load_policies
from guard.settings import policy_file

if TYPE_CHECKING:
    from pathlib import Path

    from guard.core.policy import Policy


class PolicyInForce:
    """Policy in force: read from the guard's files, and again when they change.

    Args:
        files: files of the policy; empty if the console has none.
    """

    def __init__(self, files: list[Path]) -> None:
        self._files = [policy_file(path) for path in files]
        self._looks: tuple[tuple[int, int], ...] = ()
        self._policy: Policy | None = None

    def __call__(self) -> Policy | None:
        """Return the policy, None without files.

        Raises:
            GuardError: the files cannot be read, or are not a policy.
        """
        try:
            found = [path.stat() for path in self._files]
        except OSError as error:
            raise GuardError(f"a policy file cannot be read: {error.strerror}") from error
        looks = tuple((one.st_mtime_ns, one.st_size) for one in found)
        if looks != self._looks:
            self._policy = load_policies(self._files)
            self._looks = looks
        return self._policy
