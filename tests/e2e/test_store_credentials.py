"""Credential separation on real stores: a reader cannot write, whatever it tries.

Each test runs the files of ``deploy/stores``, and skips where the store's server is not installed.
"""

import os
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from guard.processes.loopback import free_port
from tests.e2e.running_guard import listens, wait_until

STORES = Path(__file__).parents[2] / "deploy" / "stores"
SECONDS = 60.0


@contextmanager
def running(command, **options):
    """Run a server until the test has ended."""
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(20)


def test_a_reader_of_redis_cannot_write(tmp_path):
    """Nor run a script, change the rules, or read other keys."""
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        pytest.skip("redis-server is not installed")
    port = free_port()
    acl = tmp_path / "redis.acl"
    acl.write_text((STORES / "redis.acl").read_text(encoding="utf-8"), encoding="utf-8")
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    with running([*command, "--aclfile", str(acl)], cwd=tmp_path):
        reader, writer, nobody = (
            redis.Redis(port=port, username=user, password=secret)
            for user, secret in (
                ("memory-reader", "READ_SECRET"),
                ("memory-writer", "WRITE_SECRET"),
                (None, None),
            )
        )
        wait_until(lambda: listens(port), "the store", SECONDS)
        assert writer.set("memory:fact", "tea")
        assert reader.get("memory:fact") == b"tea"
        refused = [
            (reader, ("SET", "memory:fact", "poison")),
            (reader, ("DEL", "memory:fact")),
            (reader, ("EVAL", "return redis.call('SET', KEYS[1], 'x')", "1", "memory:fact")),
            (reader, ("FLUSHALL",)),
            (reader, ("ACL", "SETUSER", "memory-reader", "allcommands")),
            (reader, ("GET", "other:key")),
            (nobody, ("GET", "memory:fact")),
        ]
        for client, words in refused:
            with pytest.raises(redis.RedisError):
                client.execute_command(*words)
        assert writer.get("memory:fact") == b"tea"
        for client in (reader, writer, nobody):
            client.close()


def postgres_programs():
    """Return the folder of the newest PostgreSQL server; None where there is none."""
    folders = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda one: int(one.parent.name)
    )
    found = shutil.which("initdb")
    return folders[-1] if folders else Path(found).parent if found else None


def test_a_reader_of_postgresql_cannot_write(tmp_path_factory):
    """Neither rows nor tables, nor by taking the writer's role."""
    programs, client = postgres_programs(), shutil.which("psql")
    if programs is None or client is None:
        pytest.skip("PostgreSQL is not installed")
    as_user, folder = {}, tmp_path_factory.mktemp("pg")
    if os.geteuid() == 0:
        # The server refuses to run as root.
        as_user = {"user": "nobody", "group": "nogroup"}
        for path in (folder, folder.parent, folder.parent.parent):
            path.chmod(0o755)
        shutil.chown(folder, "nobody")
    data, secret, port = folder / "data", folder / "secret", free_port()
    secret.write_text("OWNER_SECRET\n", encoding="utf-8")
    made = subprocess.run(
        [programs / "initdb", "-D", data, "-U", "owner", "-A", "scram-sha-256", "--pwfile", secret],
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
        **as_user,
    )
    if made.returncode:
        pytest.skip(f"initdb does not run here: {made.stderr[-200:]}")

    def sql(user, password, *words):
        command = [client, "-h", "127.0.0.1", "-p", str(port), "-U", user, "-d", "postgres"]
        return subprocess.run(
            [*command, "-v", "ON_ERROR_STOP=1", "-tAc" if len(words) == 1 else "-q", *words],
            check=False,
            capture_output=True,
            text=True,
            env={**os.environ, "PGPASSWORD": password},
        )

    server = [programs / "postgres", "-D", data, "-p", str(port), "-k", folder, "-h", "127.0.0.1"]
    with running(server, cwd=folder, **as_user):
        wait_until(
            lambda: sql("owner", "OWNER_SECRET", "SELECT 1").returncode == 0, "the store", SECONDS
        )
        assert sql("owner", "OWNER_SECRET", "-f", str(STORES / "postgres.sql")).returncode == 0
        writer, reader = ("memory_writer", "WRITE_SECRET"), ("memory_reader", "READ_SECRET")
        assert sql(*writer, "CREATE TABLE memory.facts (text text)").returncode == 0
        assert sql(*writer, "INSERT INTO memory.facts VALUES ('tea')").returncode == 0
        assert sql(*reader, "SELECT text FROM memory.facts").stdout.strip() == "tea"
        for statement in (
            "INSERT INTO memory.facts VALUES ('poison')",
            "UPDATE memory.facts SET text = 'poison'",
            "DELETE FROM memory.facts",
            "DROP TABLE memory.facts",
            "CREATE TABLE memory.mine (text text)",
            "CREATE TABLE public.mine (text text)",
            "SET ROLE memory_writer",
            "GRANT INSERT ON memory.facts TO memory_reader",
        ):
            found = sql(*reader, statement)
            took = sql(*writer, "SELECT text FROM memory.facts").stdout.strip()
            assert (statement, took) == (statement, "tea")
            assert found.returncode != 0 or "GRANT" in statement
        assert sql("memory_reader", "wrong", "SELECT 1").returncode != 0
