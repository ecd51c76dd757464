"""``guard schema``: the policy language for editors, and as a reference."""

from __future__ import annotations

from typing import Annotated

import typer


def schema(
    reference: Annotated[
        bool, typer.Option("--reference", help="Print the reference in Markdown instead.")
    ] = False,
) -> None:
    """Print the JSON schema of policy files.

    Name it in a policy's first line: # yaml-language-server: $schema=schema.json
    """
    from guard.policy_files.json_schema import reference_text, schema_text

    typer.echo(reference_text() if reference else schema_text(), nl=False)
