"""Kinds of the vendors' SDK types that the tables of the model APIs lack.

``make model-api-tables`` installs the newest SDKs into a virtual environment of their own, runs
this file there and lists the kinds that no table classifies.
"""

import importlib
import sys
import tomllib
import types
import typing
from importlib.metadata import version
from pathlib import Path

TABLES = Path(__file__).parents[1] / "guard" / "protocols" / "llm"
CLASSES = ("text", "call", "result", "inert", "refuse")


def kinds_of(annotation, tag):
    """Return the values of the discriminator in a union of SDK types.

    Args:
        annotation: a type, union or alias.
        tag: name of the discriminator; ``*`` returns the member names instead.
    """
    if typing.get_origin(annotation) in {typing.Union, types.UnionType, typing.Annotated}:
        return set().union(*(kinds_of(one, tag) for one in typing.get_args(annotation)))
    fields = getattr(annotation, "model_fields", None)
    if tag == "*":
        return {field.alias or name for name, field in (fields or {}).items()}
    if fields is not None:
        return _literals(fields[tag].annotation) if tag in fields else set()
    if hasattr(annotation, "__required_keys__"):
        return _literals(typing.get_type_hints(annotation).get(tag))
    return set()


def _literals(annotation):
    if typing.get_origin(annotation) is typing.Literal:
        return set(typing.get_args(annotation))
    return set().union(*map(_literals, typing.get_args(annotation)))


def classified(table, section):
    """Return the kinds that a section of a table has; ``*`` at the end stands for a family."""
    if section in table["units"]:
        return {kind for one in CLASSES for kind in table["units"][section].get(one, ())}
    found = table
    for name in section.split("."):
        found = found[name]
    return {*found, *(table["passes"] if section == "events" else ())}


def unclassified(name):
    """Return the kinds of the installed SDK that the table of an API lacks."""
    table = tomllib.loads((TABLES / f"{name}.toml").read_text(encoding="utf-8"))
    found = []
    for section, paths in table["source"]["types"].items():
        known = classified(table, section)
        families = tuple(kind[:-1] for kind in known if kind.endswith("*"))
        for path in paths:
            module, _, rest = path.rpartition(".")
            type_name, _, tag = rest.partition("#")
            kinds = kinds_of(getattr(importlib.import_module(module), type_name), tag or "type")
            if not kinds:  # The type has moved.
                found.append(f"{section}: {path} has no kinds")
            kinds -= known | set(table["source"].get("scalars", ()))
            missing = {kind for kind in kinds if not kind.startswith(families)}
            found += [f"{section}: {kind} ({path})" for kind in sorted(missing)]
    return found


def main():
    """Print the missing kinds of each API; return 1 if there are any."""
    total = 0
    for path in sorted(TABLES.glob("*.toml")):
        sdk = tomllib.loads(path.read_text(encoding="utf-8"))["source"]["sdk"]
        missing = unclassified(path.stem)
        print(f"{path.stem}: {sdk} {version(sdk)}, {len(missing)} kinds without a class")
        print("".join(f"  {kind}\n" for kind in missing), end="")
        total += len(missing)
    return min(total, 1)


if __name__ == "__main__":
    sys.exit(main())
