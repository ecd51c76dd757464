"""What is wrong with HTTP tools whose every field is right: unmapped names, equal templates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from guard.core.errors import PolicyProblem
from guard.protocols.http.tool_table import UrlTemplate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from guard.policy_files.compile import PolicyFile


def lint_http_tools(files: Sequence[PolicyFile]) -> Iterator[PolicyProblem]:
    """Yield tools that nothing maps, and requests that would be two tools."""
    patterns = [
        pattern for file in files for entry in file.content.tools for pattern in entry.match
    ]
    seen: dict[tuple[object, ...], str] = {}
    for file in files:
        for index, entry in enumerate(file.content.http_tools):
            where = ("http_tools", index)
            line = file.source.line((*where, "tool"))
            path = file.source.path
            if not any(pattern.matches(entry.tool) is True for pattern in patterns):
                yield PolicyProblem(
                    path,
                    line,
                    f"no tool mapping claims `{entry.tool}`; say in `tools` what it does",
                )
            template = UrlTemplate.parse(entry.url)
            for method in entry.method:
                key = (method, template.origin, template.shape)
                if key in seen:
                    message = f"`{method}` of this URL is already a tool at {seen[key]}; keep one"
                    yield PolicyProblem(path, file.source.line((*where, "url")), message)
                seen.setdefault(key, f"{path}:{line}")
