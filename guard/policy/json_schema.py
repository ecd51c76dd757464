"""The policy language as a JSON schema for editors.

It is made from the models that read policies, so it cannot say anything else.
"""

from __future__ import annotations

import inspect
import json
from functools import reduce
from operator import or_
from typing import Annotated, Any, Final

from pydantic import AliasChoices, BaseModel, Field, create_model

from guard.policy.rules import discover_rule_types
from guard.policy.schema import PolicyDocument

SCHEMA: Final = "https://json-schema.org/draft/2020-12/schema"


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
        "description": (inspect.getdoc(PolicyDocument) or "").split("\n\n", maxsplit=1)[0],
    }


def schema_text() -> str:
    """Return the schema as it stands in ``policies/schema.json``."""
    return json.dumps(policy_schema(), indent=2, ensure_ascii=False) + "\n"


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
