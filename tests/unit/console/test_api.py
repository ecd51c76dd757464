"""The API's document, and the commands that act by it."""

from guard.console.resources import local_api
from guard.console.routes import openapi
from guard.operations.deployment import Deployment
from guard.provenance.seal import Seal
from guard.telemetry.audit_log import NoAuditLog
from tests.guards import KEY


def commands(command, words):
    """Yield every command below one, with its words."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield " ".join(words), command
    for name in inner or ():
        yield from commands(inner[name], [*words, name])


def test_the_road_without_a_console_has_the_same_operations(console, store):
    """Neither more nor other bodies than the console's own document says."""

    async def tenants():
        return ["default"]

    deployment = Deployment(store, Seal(KEY), NoAuditLog(), lambda: 0.0, tenants)
    local = openapi(local_api(deployment, None, ()))["paths"]
    known = openapi(console.console.pages)["paths"]

    assert {path: known.get(path) for path in local} == local
