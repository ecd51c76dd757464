"""Hot reload: watches the policy files and puts a changed policy in force, whole or not at all.

The files are read, validated and compiled in full beside the running policy; then one reference
is exchanged, so no call is ever judged by half a policy or by none.  A policy with a problem, or a
change that cannot be recorded, leaves the old one in force.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import shutil
from typing import TYPE_CHECKING, Final

from guard.core.errors import AuditError, PolicyError, PolicyProblem
from guard.core.metrics import ERRORS, POLICY_RELOADS, POLICY_STALE
from guard.environment import say
from guard.policy import load_policies
from guard.settings import policy_file

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from guard.core.metrics import Metrics
    from guard.core.policy import Policy
    from guard.core.ports import AuditLog

EVENT: Final = "guard.policy_reload"
"""Name of the audit line; its fields are ``outcome``, ``policy``, ``previous``, ``problems``."""
SWAPPED: Final = "swapped"
KEPT: Final = "kept"
PROBLEMS: Final = 20
"""Problems written into one audit line."""
LAST_GOOD: Final = "last-good-policy"
_CAUSE_CHARS: Final = 500


class PolicyFiles:
    """The policy files of a running guard.

    Args:
        paths: the files; together they make one policy.
        keep: directory of a copy of the files in force, for a worker that is started while the
            files on disk have a problem; None keeps none.
    """

    def __init__(self, paths: Sequence[Path], keep: Path | None = None) -> None:
        self._paths = tuple(paths)
        self._copies = None if keep is None else keep / LAST_GOOD
        self._digest = ""
        self._seen = ""

    def first(self) -> Policy:
        """Return the policy to start with: that of the files, else of the copy that was in force.

        Raises:
            PolicyError: the files have a problem, and there is no copy.
        """
        try:
            policy, self._digest = self._load(self._paths)
        except PolicyError as error:
            kept = sorted(self._copies.iterdir()) if self._copies and self._copies.is_dir() else []
            if not kept:
                raise
            say(f"the policy files have a problem, the last good ones are used: {error}")
            policy, _ = self._load(kept)
            return policy
        self.keep()
        return policy

    def settled_change(self) -> bool:
        """Return whether the files differ from those last tried, and have come to rest.

        A file that is still being written looks different at every look, so a change counts at the
        second look that sees the same.
        """
        before, self._seen = self._seen, _bytes_digest(self._paths)
        return before == self._seen != self._digest

    def reload(self) -> Policy:
        """Read, validate and compile the files.

        Raises:
            PolicyError: they have a problem.
        """
        self._digest = _bytes_digest(self._paths)
        policy, self._digest = self._load(self._paths)
        # The YAML reader's parts refer to each other, and what is old is hardly ever collected.  A
        # whole collection also frees the tuples that Python keeps for later: each reload adds some.
        gc.collect()
        return policy

    def keep(self) -> None:
        """Remember the files just loaded as the last good ones."""
        if self._copies is None:
            return
        fresh = self._copies.with_name(LAST_GOOD + ".new")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        for index, path in enumerate(self._paths):
            (fresh / f"{index:04d}.yaml").write_bytes(policy_file(path).read_bytes())
        if _bytes_digest(sorted(fresh.iterdir())) != self._digest:
            return
        shutil.rmtree(self._copies, ignore_errors=True)
        fresh.rename(self._copies)

    def _load(self, paths: Sequence[Path]) -> tuple[Policy, str]:
        before = _bytes_digest(paths)
        policy = load_policies(paths)
        if _bytes_digest(paths) != before:
            # What was validated is not what is there now; the next look tries again.
            self._digest = ""
            raise PolicyError(
                (PolicyProblem(str(paths[0]), 0, "the files changed while they were read"),)
            )
        return policy, before


class PolicyReloader:
    """Puts changed policies in force.

    Args:
        files: what is watched.
        current: gives the policy in force.
        swap: puts another in force; must not fail.
        audit: a change that cannot be recorded is not made.
        metrics: told of every attempt.
    """

    def __init__(
        self,
        *,
        files: PolicyFiles,
        current: Callable[[], Policy | None],
        swap: Callable[[Policy], None],
        audit: AuditLog,
        metrics: Metrics,
    ) -> None:
        self._files = files
        self._current = current
        self._swap = swap
        self._audit = audit
        self._metrics = metrics
        self._busy = asyncio.Lock()

    async def watch(self, seconds: float) -> None:
        """Look at the files again and again; put every valid change in force.  Does not return."""
        while True:
            await asyncio.sleep(seconds)
            try:
                changed = await asyncio.to_thread(self._files.settled_change)
                if changed:
                    await self.reload()
            except Exception as error:  # noqa: BLE001  (a watcher that died would never be missed)
                self._metrics.count(ERRORS, "policy")
                say(f"the policy files could not be looked at: {type(error).__name__}")

    async def reload(self) -> str:
        """Try the files now; return ``swapped`` or ``kept``.  Never raises."""
        async with self._busy:
            try:
                # In a thread: validation takes longer than a call may wait.
                policy = await asyncio.to_thread(self._files.reload)
                self._record(SWAPPED, policy, ())
                self._swap(policy)
            except Exception as error:  # noqa: BLE001  (whatever it is, the policy in force stays)
                return self._kept(error)
            self._metrics.set(POLICY_STALE, 0)
            self._metrics.count(POLICY_RELOADS, SWAPPED)
            self._metrics.set_policy(policy)
            say(f"policy {policy.name} is in force, digest {policy.digest[:12]}")
            try:
                await asyncio.to_thread(self._files.keep)
            except OSError as error:
                say(f"no copy of the policy could be kept: {type(error).__name__}")
            return SWAPPED

    def _kept(self, error: Exception) -> str:
        policy = self._current()
        problems = (
            tuple(str(problem) for problem in error.problems)
            if isinstance(error, PolicyError)
            else (f"{type(error).__name__}: {error}",)
        )
        if not isinstance(error, AuditError):
            try:
                self._record(KEPT, policy, problems)
            except AuditError:
                self._metrics.count(ERRORS, "audit")
        if policy is not None:
            self._metrics.set(POLICY_STALE, 1)
            self._metrics.count(POLICY_RELOADS, KEPT)
        say("the policy in force is kept: " + "\n".join(problems))
        return KEPT

    def _record(self, outcome: str, policy: Policy | None, problems: tuple[str, ...]) -> None:
        previous = self._current()
        self._audit.event(
            EVENT,
            {
                "outcome": outcome,
                "policy": policy.digest if policy else "",
                "policy_name": policy.name if policy else "",
                "previous": previous.digest if previous else "",
                "problems": [text[:_CAUSE_CHARS] for text in problems[:PROBLEMS]],
            },
        )


def _bytes_digest(paths: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        try:
            content = policy_file(path).read_bytes()
        except OSError as error:
            content = type(error).__name__.encode()
        digest.update(len(content).to_bytes(8, "big") + content)
    return digest.hexdigest()
