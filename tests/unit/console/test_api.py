"""The API's document, and the commands that act by it."""

import typer

from guard import cli
from guard.cli.admin_api import OPERATIONS
from guard.console.resources import local_api
from guard.console.routes import openapi
from guard.operations.deployment import Deployment
from guard.provenance.seal import Seal
from guard.telemetry.audit_log import NoAuditLog
from tests.guards import KEY

GROUPS = ("approvals", "incident", "memory", "tools")
BESIDE_THE_GUARD = {"memory watch"}
"""A process of the deployment, which looks at saves as they come: no act of a person."""


def commands(command, words):
    """Yield every command below one, with its words."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield " ".join(words), command
    for name in inner or ():
        yield from commands(inner[name], [*words, name])


def every_command():
    """Return the commands of the groups that act on a running guard's state."""
    root = typer.main.get_command(cli.app).commands
    return dict(found for name in GROUPS for found in commands(root[name], [name]))


def documented(pages):
    """Return the operations of an OpenAPI document."""
    paths = openapi(pages)["paths"]
    return {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}


def test_every_command_acts_by_documented_operations(console):
    """Each says which; none of them is missing in the document."""
    known, found = documented(console.console.pages), every_command()
    acting = {name: set(getattr(one.callback, OPERATIONS, ())) for name, one in found.items()}

    assert {name for name, operations in acting.items() if not operations} == BESIDE_THE_GUARD
    assert {name: some - known for name, some in acting.items() if some - known} == {}
    assert len(found) > 30


def test_the_road_without_a_console_has_the_same_operations(console, store):
    """Neither more nor other bodies than the console's own document says."""

    async def tenants():
        return ["default"]

    deployment = Deployment(store, Seal(KEY), NoAuditLog(), lambda: 0.0, tenants)
    local = openapi(local_api(deployment, None, ()))["paths"]
    known = openapi(console.console.pages)["paths"]

    assert {path: known.get(path) for path in local} == local
