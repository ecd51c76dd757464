"""Rule types, found by discovery: a new one is a file here; ``base`` is what they share."""

from __future__ import annotations

from typing import get_args

from guard.core.discovery import classes_in
from guard.policy.rules.base import RuleConfig

__all__ = ["RuleConfig", "discover_rule_types"]


def discover_rule_types() -> dict[str, type[RuleConfig]]:
    """Return every rule type by name, from every module in this package's path.

    Raises:
        TypeError: a rule type has no ``type: Literal["name"]`` or declares no reason codes, or
            two have one name.
    """
    found: dict[str, type[RuleConfig]] = {}
    for rule_type in classes_in(__name__, __path__, RuleConfig):
        name = _type_name(rule_type)
        if name in found:
            raise TypeError(
                f"rule type `{name}` is defined by `{found[name].__module__}` and by "
                f"`{rule_type.__module__}`; rename one"
            )
        found[name] = rule_type
    return dict(sorted(found.items()))


def _type_name(rule_type: type[RuleConfig]) -> str:
    declared = rule_type.model_fields.get("type")
    names = get_args(declared.annotation) if declared is not None else ()
    if len(names) != 1 or not isinstance(names[0], str):
        raise TypeError(f"`{rule_type.__name__}` must declare `type: Literal[...]` with one name")
    if not getattr(rule_type, "codes", None):
        raise TypeError(f"`{rule_type.__name__}` must declare its reason codes in `codes`")
    return names[0]
