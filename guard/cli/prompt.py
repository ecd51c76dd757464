"""``guard prompt``: report a prompt of a person to a running guard."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from guard.core.errors import GuardError
from guard.settings import read_secret

SECONDS: Final = 10.0
"""Timeout of the request."""


def prompt(
    text: Annotated[str, typer.Argument(help="The text that the person typed.")],
    credential: Annotated[
        Path, typer.Option(help="File with the secret of a front end (prompt_credentials).")
    ],
    session: Annotated[str, typer.Option(help="Session of the agent's calls.")],
    principal: Annotated[
        str, typer.Option(help="Principal that the agent authenticates as.")
    ] = "anonymous",
    recipient: Annotated[
        list[str] | None, typer.Option(help="A recipient that the person chose; repeat.")
    ] = None,
    host: Annotated[
        list[str] | None, typer.Option(help="A host whose pages the agent may read; repeat.")
    ] = None,
    attachment: Annotated[
        list[str] | None, typer.Option(help="A file, message or page that belongs to it; repeat.")
    ] = None,
    admin: Annotated[str, typer.Option(help="URL of the guard's admin port.")] = (
        "http://127.0.0.1:9464"
    ),
) -> None:
    """Report a prompt of a person: its values may be used by the agent in this session.

    Example: guard prompt "Send the report to Ann" --recipient ann@partner.example --session s-1
    --credential front-end.secret
    """
    import httpx

    body: dict[str, object] = {"principal": principal, "session": session, "text": text}
    stated = {"recipients": recipient, "hosts": host, "attachments": attachment}
    body |= {name: values for name, values in stated.items() if values}
    headers = {"Authorization": f"Bearer {read_secret(credential)}"}
    try:
        answer = httpx.post(
            f"{admin.rstrip('/')}/v1/prompts", json=body, headers=headers, timeout=SECONDS
        )
    except httpx.HTTPError as error:
        raise GuardError(f"`{admin}` does not answer ({type(error).__name__})") from error
    if answer.status_code != httpx.codes.ACCEPTED:
        raise GuardError(
            f"the guard refused the prompt ({answer.status_code}): {answer.text[:200]}"
        )
