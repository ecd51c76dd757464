"""The policy language as a JSON schema for editors, and as a reference for people.

Both are made from the models that read policies, so they cannot say anything else.
"""

from __future__ import annotations

import inspect
import json
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import AliasChoices, BaseModel, Field, create_model

from guard.policy.rules import discover_rule_types
from guard.policy.rules.base import RuleConfig
from guard.policy.schema import PolicyDocument

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SCHEMA: Final = "https://json-schema.org/draft/2020-12/schema"
HEADING: Final = (
    "# Policy reference\n\n"
    "Made by `guard policy schema --reference` from the models that read policies; see "
    "[policies](../how-to/policies.md) for what they mean together.\n"
    "Fields without a default are required.\n"
)


def policy_schema() -> dict[str, Any]:
    """Return the JSON schema (2020-12) of a policy file.

    It is wider than ``guard policy check``, which also compiles every path, pattern and expression.
    """
    kinds = tuple(discover_rule_types().values())
    rule: Any = Annotated[reduce(or_, kinds), Field(discriminator="type")]
    text = PolicyDocument.model_fields["rules"].description
    rules = (tuple[rule, ...], Field((), description=text))
    model = create_model("Policy", __base__=PolicyDocument, rules=rules)
    schema: dict[str, Any] = _plain(model.model_json_schema())
    for kind in kinds:
        _accept_old_names(schema["$defs"][kind.__name__], kind)
    return {
        "$schema": SCHEMA,
        **schema,
        "title": "Policy of the egress guard",
        "description": _first(PolicyDocument),
    }


def schema_text() -> str:
    """Return the schema as it stands in ``policies/schema.json``."""
    return json.dumps(policy_schema(), indent=2, ensure_ascii=False) + "\n"


def reference_text() -> str:
    """Return the reference as it stands in ``docs/reference/policy.md``."""
    schema = policy_schema()
    schema = _inline(schema, schema["$defs"])
    definitions = schema["$defs"]
    types = discover_rule_types()
    shared = set(RuleConfig.model_fields)
    parts = [HEADING, _section("A policy file", _first(PolicyDocument), schema, set())]
    rules = {kind.__name__: name for name, kind in types.items()}
    for name, definition in definitions.items():
        if name not in rules and "properties" in definition:
            parts.append(
                _section(f"`{name}`", definition.get("description", ""), definition, set())
            )
    first = definitions[next(iter(rules))]
    common = {key: value for key, value in first["properties"].items() if key in shared}
    outline = {"properties": common, "required": [r for r in first["required"] if r in shared]}
    parts.append(_section("What all rules share", inspect.getdoc(RuleConfig) or "", outline, set()))
    for name, kind in types.items():
        own = set(vars(kind).get("__annotations__", {}))
        hidden = shared - own
        text = inspect.getdoc(kind) or ""
        parts.append(
            _section(f"Rule `{name}`", text, definitions[kind.__name__], hidden | {"type"})
        )
    return "\n".join(parts).rstrip() + "\n"


def _plain(value: Any) -> Any:
    """Return a schema with the description of each field on one line."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    plain = {key: _plain(item) for key, item in value.items()}
    if isinstance(text := value.get("description"), str) and "properties" not in value:
        plain["description"] = " ".join(text.split())
    return plain


def _accept_old_names(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """Add the old spelling of each renamed field, marked as deprecated."""
    for info in model.model_fields.values():
        if not isinstance(info.validation_alias, AliasChoices):
            continue
        new, old = map(str, info.validation_alias.choices)
        field = schema["properties"][new]
        text = f"Old spelling of `{new}`."
        schema["properties"][old] = {**field, "description": text, "deprecated": True}
        if new in schema.get("required", ()):
            schema["required"].remove(new)
            schema["oneOf"] = [{"required": [new]}, {"required": [old]}]


def _first(model: type[BaseModel]) -> str:
    return (inspect.getdoc(model) or "").split("\n\n", maxsplit=1)[0]


def _section(title: str, text: str, schema: dict[str, Any], hidden: set[str]) -> str:
    rows = list(_rows(schema, hidden))
    lines = [f"\n## {title}\n", text.replace("``", "`").strip() + "\n"]
    if rows:
        lines += ["| field | type | default | meaning |", "|---|---|---|---|", *rows]
    return "\n".join(lines)


def _rows(schema: dict[str, Any], hidden: Iterable[str]) -> Iterator[str]:
    for name, field in schema.get("properties", {}).items():
        if name in hidden or field.get("deprecated"):
            continue
        default = f"`{json.dumps(field['default'])}`" if "default" in field else ""
        text = field.get("description", "").replace("``", "`").replace("|", "\\|")
        yield f"| `{name}` | {_kind(field)} | {default} | {text} |"


def _inline(value: Any, definitions: dict[str, Any]) -> Any:
    """Return a schema with every reference to an enumeration replaced by its values."""
    if isinstance(value, list):
        return [_inline(item, definitions) for item in value]
    if not isinstance(value, dict):
        return value
    target = definitions.get(str(value.get("$ref", "")).rpartition("/")[2], {})
    inner = {key: _inline(item, definitions) for key, item in value.items()}
    if "enum" in target:
        inner.pop("$ref")
        inner["enum"] = target["enum"]
    return inner


def _kind(field: dict[str, Any]) -> str:
    """Return the type of a field in words."""
    if "$ref" in field:
        return f"`{field['$ref'].rpartition('/')[2]}`"
    if "const" in field:
        return f"`{json.dumps(field['const'])}`"
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if "anyOf" in field or "oneOf" in field:
        parts = [_kind(part) for part in field.get("anyOf", field.get("oneOf", ()))]
        return " or ".join(dict.fromkeys(part for part in parts if part != "null"))
    if field.get("type") == "array":
        return f"list of {_kind(field.get('items', {}))}"
    return str(field.get("type", "any")).replace("string", "text").replace("object", "mapping")
