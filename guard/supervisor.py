"""The supervisor: owns the embedded Redis, watches the worker's heartbeat, replaces the worker.

The worker is a process of its own because nothing inside a Python process can stop Python code
that loops.  State lives in Redis, so a replaced worker forgets nothing that was decided.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from guard.adapters.audit_log import open_audit_log
from guard.adapters.credentials.label_key import audit_signer, fallback_key, label_key_path
from guard.adapters.processes.child_process import Heartbeat
from guard.adapters.processes.listening_ports import addresses, bind_error
from guard.adapters.processes.run_note import RunNote
from guard.adapters.redis.embedded import DirectoryInUseError, EmbeddedRedis
from guard.core.errors import GuardError
from guard.settings import EMBEDDED, MEMORY, Durability

if TYPE_CHECKING:
    from types import FrameType

    from guard.core.model import Json
    from guard.settings import Settings

POLL_SECONDS: Final = 0.05
START_SECONDS: Final = 30.0
"""How long a worker may take to its first heartbeat."""
BACKOFF_SECONDS: Final = (0.0, 0.1, 0.5, 1.0, 2.0)
"""Pause before the next worker, by how many in a row died young."""
YOUNG_SECONDS: Final = 10.0


class Supervisor:
    """Runs one worker until told to stop.

    Args:
        settings: of ``guard run``, complete.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stopping = False
        self._redis: EmbeddedRedis | None = None
        self._restarts = 0
        self._name = secrets.token_hex(8)
        self._young_deaths = 0
        self._beating = False
        self._hangup = False
        self._console: subprocess.Popen[bytes] | None = None
        self._console_from = 0.0

    def run(self) -> int:
        """Serve until SIGTERM or SIGINT; return the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_stop)
        signal.signal(signal.SIGHUP, self._on_hangup)
        self._check_addresses()
        directory = Path(tempfile.mkdtemp(prefix="guard-run-"))
        note: RunNote | None = None
        try:
            url = self._settings.redis
            if url == EMBEDDED:
                self._redis = self._embedded(directory)
                url = self._redis.url
            note = self._leave_note(directory, url)
            return self._watch(directory, url)
        finally:
            if note is not None:
                note.remove()
            if self._console is not None:
                self._console.terminate()
                self._console.wait()
            if self._redis is not None:
                self._redis.stop()
            shutil.rmtree(directory, ignore_errors=True)

    def _check_addresses(self) -> None:
        """Refuse a start that no restart of a worker would mend.

        Raises:
            GuardError: somebody else listens where the guard is to, or nobody can.
        """
        for option, host, port in addresses(self._settings):
            error = bind_error(host, port) if port else None
            if error is not None:
                reason = (error.strerror or str(error)).lower()
                msg = f"`{option} {host}:{port}` cannot be listened on: {reason}"
                raise GuardError(msg)

    def _embedded(self, directory: Path) -> EmbeddedRedis:
        """Return a started Redis of this run, with the state that an earlier one kept.

        Raises:
            GuardError: it cannot be started, or another guard uses the directory that was named.
        """
        data = self._settings.data or _beside_key(self._settings.label_key, directory)
        if data == MEMORY:
            data = None
        fsync = self._settings.durability is Durability.FSYNC
        if fsync and data is None:
            msg = "durability `fsync` needs a directory for the embedded redis; name it with --data"
            raise GuardError(msg)
        try:
            redis = EmbeddedRedis(data_dir=data, fsync=fsync).start()
        except DirectoryInUseError as error:
            if self._settings.data is not None or fsync:
                raise
            sys.stderr.write(f"guard: {error}; this run keeps its state in memory\n")
            data, redis = None, EmbeddedRedis().start()
        self._settings = self._settings.model_copy(update={"data": data})
        return redis

    def _leave_note(self, directory: Path, url: str) -> RunNote:
        """Say where the state is, to people and to commands of the same user."""
        key = self._settings.label_key or fallback_key(directory)
        note = RunNote(os.getpid(), url, str(key.resolve()) if key else "")
        written = note.write()
        if self._redis is not None:
            found = "`guard approvals grant` finds it" if written else f"pass --redis {url}"
            kept = f", kept in {self._settings.data}" if self._settings.data else ""
            sys.stderr.write(f"guard: the state is at {url}{kept}; {found}\n")
            sys.stderr.flush()
        return note

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._stopping = True

    def _on_hangup(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._hangup = True

    def _pass_on_hangup(self, worker: subprocess.Popen[bytes]) -> None:
        """Tell the processes that own policy and audit log of a SIGHUP.

        It is kept until the worker's first heartbeat was seen: before, SIGHUP would end the worker.
        """
        if not self._hangup or not self._beating:
            return
        self._hangup = False
        worker.send_signal(signal.SIGHUP)
        if self._console is not None and self._console.poll() is None:
            self._console.send_signal(signal.SIGHUP)

    def _watch(self, directory: Path, url: str) -> int:
        pulse = Heartbeat.create(directory / "pulse")
        while True:
            pulse.reset()
            started = time.monotonic()
            worker = self._start(directory, url)
            self._beating = False
            code = self._until_dead(worker, pulse, started, directory, url)
            if self._stopping:
                return 0 if code in {0, -signal.SIGTERM} else 1
            # A worker that never came up cannot use what it was given; another would not either.
            if code == 0 or (not self._restarts and not pulse.last_beat()):
                return code
            self._restarts += 1
            self._record_death(pulse, code)
            young = time.monotonic() - started < YOUNG_SECONDS
            self._young_deaths = self._young_deaths + 1 if young else 0
            self._pause(BACKOFF_SECONDS[min(self._young_deaths, len(BACKOFF_SECONDS) - 1)])

    def _start(self, directory: Path, url: str) -> subprocess.Popen[bytes]:
        settings = self._settings.model_copy(
            update={
                "restarts": self._restarts,
                "pulse": directory / "pulse",
                "owner": f"{self._name}:{self._restarts}",
            }
        )
        return self._python(
            "guard.worker", str(os.getpid()), str(directory), url, settings=settings
        )

    @staticmethod
    def _python(module: str, *arguments: str, settings: Settings) -> subprocess.Popen[bytes]:
        """Start one of our modules, with the settings on its standard input."""
        # -O: mitmproxy type-checks every message under __debug__ (no check of ours is an assert).
        command = [sys.executable, "-O", "-m", module, *arguments]
        process = subprocess.Popen(command, stdin=subprocess.PIPE)  # noqa: S603  (our own module)
        if process.stdin is not None:
            process.stdin.write(settings.model_dump_json().encode() + b"\n")
            process.stdin.close()
        return process

    def _keep_console(self, directory: Path, url: str) -> None:
        """Start the console once a worker serves, and again where it ended."""
        if not self._settings.console or not self._beating or self._stopping:
            return
        ended = self._console is None or self._console.poll() is not None
        if not ended or time.monotonic() < self._console_from:
            return
        if self._console is not None:
            self._note("guard.console_lost", {"exit_code": self._console.returncode})
        self._console_from = time.monotonic() + YOUNG_SECONDS
        where = (str(os.getpid()), url, str(directory))
        self._console = self._python("guard.console.server", *where, settings=self._settings)

    def _until_dead(
        self,
        worker: subprocess.Popen[bytes],
        pulse: Heartbeat,
        started: float,
        directory: Path,
        url: str,
    ) -> int:
        """Wait for the worker's end; bring it about where the heartbeat stops."""
        stopped_at: float | None = None
        while True:
            try:
                return worker.wait(POLL_SECONDS)
            except subprocess.TimeoutExpired:
                pass
            self._keep_redis()
            self._keep_console(directory, url)
            now = time.monotonic()
            if self._stopping and stopped_at is None:
                worker.send_signal(signal.SIGTERM)
                stopped_at = now
            if stopped_at is not None and now - stopped_at > self._settings.drain + 5:
                worker.kill()
            beat = pulse.last_beat()
            self._beating = bool(beat)
            self._pass_on_hangup(worker)
            limit = self._settings.heartbeat if beat else START_SECONDS
            if stopped_at is None and now - (beat or started) > limit:
                worker.kill()

    def _keep_redis(self) -> None:
        """Bring the embedded Redis back where it died; calls are refused until it answers."""
        if self._redis is None or self._stopping or self._redis.pid is not None:
            return
        self._note("guard.redis_lost", {})
        try:
            self._redis.start()
        except GuardError as error:
            self._note("guard.redis_lost", {"error": str(error)})

    def _note(self, event: str, fields: dict[str, Json]) -> None:
        """Write an audit line about something other than a call, and say it on stderr."""
        path = self._settings.audit
        signer = audit_signer(self._settings.audit_key) if path is not None else None
        audit = open_audit_log(path, signer=signer)
        try:
            audit.event(event, fields)
        finally:
            audit.close()
        sys.stderr.write(f"{event}: {json.dumps(fields)}\n")
        sys.stderr.flush()

    def _record_death(self, pulse: Heartbeat, code: int) -> None:
        """Write the audit line of the worker, and of the call that it was judging."""
        fields = {"exit_code": code, "restarts": self._restarts, "judging": pulse.current()}
        self._note("guard.worker_lost", fields)

    def _pause(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self._stopping and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)


def _beside_key(label_key: Path | None, directory: Path) -> Path | None:
    """Return where state is kept that is sealed with a key: beside it.

    None where the key does not outlive this run: nobody could read the labels any more.
    """
    if label_key is None and fallback_key(directory) is not None:
        return None
    return label_key_path(label_key).parent / "redis"
