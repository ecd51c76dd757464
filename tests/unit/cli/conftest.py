"""Commands on the test's Redis and label key, for a tenant of the test's own."""

import asyncio

import pytest
from typer.testing import CliRunner

from guard import cli
from guard.core.model import Identity
from guard.credentials.label_key import load_key
from guard.provenance.seal import Seal
from guard.store.store import RedisSessionStore
from tests.guards import guard_on
from tests.unit.provenance.agents import Agent


@pytest.fixture
def run(redis_server, redis_namespace, tmp_path):
    """Return what runs a command as its users do."""

    def call(*words, server=redis_server, tenant=True):
        more = ["--redis", server.url, "--label-key", tmp_path / "label.key"]
        more += ["--tenant", redis_namespace] if tenant else []
        return CliRunner().invoke(cli.app, [*map(str, (*words, *more))])

    return call


@pytest.fixture
def played(redis_server, redis_namespace, tmp_path, policy_from):
    """Return what has an agent of the tenant do something, under the policy of a text."""

    def play(text, deed, **agent):
        async def once():
            store = RedisSessionStore.at(redis_server.url, timeout=60.0)
            seal = Seal(load_key(tmp_path / "label.key", "label key"))
            guard = guard_on(store, policy_from(text), seal=seal)
            alice = Identity("alice", "one", tenant=redis_namespace)
            done = await deed(Agent(guard, alice, **agent))
            await store.aclose()
            return done

        return asyncio.run(once())

    return play
