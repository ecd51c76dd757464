"""The deployment that a console belongs to: its policy in force and its address."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from guard.core.errors import GuardError
from guard.policy import load_policies
from guard.processes.notes import ConsoleNote
from guard.settings import Settings, policy_file

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


class ConsoleAddress:
    """Address of the console for people.

    Args:
        settings: of the console.
        redis: URL of its state.
    """

    def __init__(self, settings: Settings, redis: str) -> None:
        self._settings, self._redis = settings, redis
        self.port = settings.console_address[1]
        """The port listened on; set once it is known."""
        self._note: ConsoleNote | None = None

    def leave_note(self, secret: str) -> None:
        """Write the note by which commands of this user find it; :meth:`forget` deletes it."""
        file = self._settings.console_certificate
        certificate = str(file.resolve()) if file else ""
        self._note = ConsoleNote(os.getpid(), self.local, secret, certificate, self._redis)
        self._note.write()

    def forget(self) -> None:
        """Delete the note."""
        if self._note is not None:
            self._note.remove()

    @property
    def local(self) -> str:
        """Address on this machine."""
        scheme = "http" if self._settings.console_certificate is None else "https"
        return f"{scheme}://{self._settings.console_address[0]}:{self.port}"

    @property
    def url(self) -> str:
        """URL for people, without a final slash."""
        return self._settings.console_url.rstrip("/") or self.local
