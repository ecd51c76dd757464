"""What ``http_tools`` in a policy file may contain."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator

from guard.core.model import Json
from guard.protocols.http.tool_table import UrlTemplate


def _template(value: Json) -> str:
    if not isinstance(value, str):
        raise ValueError("a URL template is a text such as `https://api.example.com/v1/notes`")  # noqa: TRY004  (pydantic reports ValueErrors)
    UrlTemplate.parse(value)
    return value


TemplateText = Annotated[str, PlainValidator(_template, json_schema_input_type=str)]
HttpMethod = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


class HttpToolEntry(BaseModel):
    """Plain HTTP requests that are calls of one tool, and where their arguments are."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    tool: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_./-]{0,127}$")]
    """The tool's name, which a mapping in ``tools`` must claim."""
    method: Annotated[tuple[HttpMethod, ...], Field(min_length=1)]
    """The methods that mean this tool."""
    url: TemplateText
    """``https://host/path/{variable}``; a variable is a whole segment.  Its arguments are
    ``$.path.NAME``, those of the query ``$.query.NAME``."""
    body: Literal["none", "json", "form", "multipart"] = "none"
    """What the body is; its arguments are ``$.body``.  Another body is refused."""
    repeat: tuple[str, ...] = ()
    """Query and form fields that may occur more than once; their value is a list."""
    description: Annotated[str, Field(max_length=2000)] = ""
    """For people who read the policy."""
