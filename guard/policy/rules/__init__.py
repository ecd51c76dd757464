"""Rule types, found by discovery: a new one is a file here; ``base`` is what they share."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from typing import Any, Final, get_args

from guard.policy.rules.base import RuleConfig

__all__ = ["RuleConfig", "discover_rule_types"]

BASE: Final = "base"


def discover_rule_types() -> dict[str, type[RuleConfig]]:
    """Return every rule type by name, from every module in this package's path.

    Raises:
        TypeError: a rule type has no ``type: Literal["name"]`` or declares no reason codes, or
            two have one name.
    """
    found: dict[str, type[RuleConfig]] = {}
    for info in sorted(pkgutil.iter_modules(__path__), key=lambda info: info.name):
        if info.name == BASE:
            continue
        module = importlib.import_module(f"{__name__}.{info.name}")
        for value in vars(module).values():
            if not _is_rule_type(value, module.__name__):
                continue
            name = _type_name(value)
            if name in found:
                raise TypeError(
                    f"rule type `{name}` is defined by `{found[name].__module__}` and by "
                    f"`{module.__name__}`; rename one"
                )
            found[name] = value
    return dict(sorted(found.items()))


def _is_rule_type(value: Any, module: str) -> bool:
    return (
        inspect.isclass(value)
        and issubclass(value, RuleConfig)
        and value is not RuleConfig
        and value.__module__ == module
    )


def _type_name(rule_type: type[RuleConfig]) -> str:
    declared = rule_type.model_fields.get("type")
    names = get_args(declared.annotation) if declared is not None else ()
    if len(names) != 1 or not isinstance(names[0], str):
        raise TypeError(f"`{rule_type.__name__}` must declare `type: Literal[...]` with one name")
    if not getattr(rule_type, "codes", None):
        raise TypeError(f"`{rule_type.__name__}` must declare its reason codes in `codes`")
    return names[0]
