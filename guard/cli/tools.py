"""``guard tools list | diff | approve``: pinned tool definitions, and what changed in them."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from guard.cli.admin_api import AdminApi, by_api
from guard.cli.outcome import plain
from guard.cli.running import minute
from guard.cli.terminal import show_table
from guard.core.errors import GuardError

Upstream = Annotated[str, typer.Argument(help="The server, as `guard tools list` shows it.")]
Tool = Annotated[str, typer.Argument(help="The tool's name.")]
TOOLS: Final = "/api/tools"
DIFFERENCE: Final = "/api/tools/difference"
APPROVE: Final = "/api/tools/approve"
app = typer.Typer(no_args_is_help=True, help="Tool definitions: what is pinned, what has changed.")


@app.command("list")
@by_api(f"GET {TOOLS}")
def list_pins(api: AdminApi) -> None:
    """List the tools that servers have shown, and which of them have changed."""
    response = api.get(TOOLS)
    found = response["tools"]
    marked = {_place(pin): pin for pin in found if pin["is_mark"]}
    rows = []
    for pin in (one for one in found if not one["is_mark"]):
        mark = marked.pop(_place(pin), None)
        state = "pinned" if mark is None else f"{_changed(mark)}: {mark['digests'][0][:12]}"
        rows.append((*_place(pin), pin["digests"][0][:12], minute(pin["at"]), state))
    for mark in marked.values():
        rows.append((*_place(mark), "", "", _changed(mark)))
    show_table(("upstream", "tool", "definition", "pinned", "state"), rows)
    if response["altered"]:
        raise GuardError(f"{response['altered']} records do not bear the guard's seal")


@app.command("diff")
@by_api(f"GET {DIFFERENCE}")
def diff_pins(api: AdminApi, upstream: Upstream, tool: Tool) -> None:
    """Show what changed in a tool's definition, line by line."""
    response = api.get(DIFFERENCE, upstream=upstream, tool=tool)
    for line in response["lines"]:
        typer.echo(plain(line))


@app.command()
@by_api(f"GET {DIFFERENCE}", f"POST {APPROVE}", records=True)
def approve(
    api: AdminApi,
    upstream: Upstream,
    tool: Tool,
    digest: Annotated[str, typer.Option(help="Approve this definition and no other.")] = "",
) -> None:
    """Pin the changed definition of a tool; what was pinned before stays good too."""
    where = {"upstream": upstream, "tool": tool}
    seen = digest or api.get(DIFFERENCE, **where)["listed"]["digests"][0]
    mark = api.post(APPROVE, {"tenant": api.tenant, **where, "digest": seen})["approved"]
    shown = plain(mark["tool"]), plain(mark["upstream"])
    typer.echo(f"approved {mark['digests'][0][:12]} of {shown[0]} at {shown[1]}")


def _place(pin: dict[str, Any]) -> tuple[str, str]:
    return pin["upstream"], pin["tool"]


def _changed(mark: dict[str, Any]) -> str:
    return f"changed {minute(mark['at'])}"
