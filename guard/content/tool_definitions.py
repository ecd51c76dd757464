"""What in a tool's definition steers a model to something else than to use the tool.  Pure: no I/O.

A definition says what its tool does and what its parameters mean.  One that steers does more: it
moves data of the session to an address or into a parameter, speaks of other tools, hides text from
people, or asks for what its purpose does not need.  Its texts are weighed together, as the orders
may be spread over description and parameters, along with the signals of
:mod:`guard.content.injection_text`.
"""
# ruff: noqa: E501  (a pattern cut into pieces is read by nobody)

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypeGuard

import re2

from guard.content.injection_signals import SENDS, WHERE
from guard.content.injection_text import ENOUGH, LIMIT, signal_weight
from guard.content.letters import fold
from guard.content.shell_text import is_dangerous
from guard.core.argument_texts import argument_texts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from guard.core.model import Json

SCHEMAS: Final = ("inputSchema", "input_schema", "parameters", "outputSchema")
"""Members of which a definition has one."""
PARAMETERS: Final = 256
"""Parameters that are looked at on their own, nested ones included."""

_OBLIGES: Final = r"(?:must|always|also|additionally|in addition|then|first|be sure to|make sure to|ensure|remember to|required to|need to|automatically)"
_OCCASION: Final = r"(?:before|after|when(?:ever)?|prior to|each time|every time|once|upon)"
_OTHERS: Final = r"(?:[a-z]+_[a-z_]+|(?:any|all|every|each|an)?other tools?|(?:any|every|each|all) tools?(?: calls?)?)"
_SESSION: Final = (
    r"(?:(?:full |entire |complete |whole |current |raw )*(?:conversation|chat|message|session|dialog\w*|prompt)s?(?:'s)? (?:history|context|transcript|log|so far|contents?)"
    r"|(?:system|initial|original|developer|hidden|user'?s?) (?:prompt|instructions?|messages?)|(?:previous|prior|earlier|preceding|other|last) (?:tool |function )?(?:results?|outputs?|responses?|messages?|calls?|turns?)"
    r"|(?:environment|env) var\w*|(?:ssh|private|signing|cloud|aws) (?:keys?|credentials?)|(?:all|any|available|stored|local|known) (?:api keys?|credentials?|secrets?|tokens?|passwords?|cookies?)"
    r"|chain of thought|your (?:reasoning|context|memory|instructions?)|(?:list|names?) of (?:all |your )?(?:available |other )?tools|clipboard|(?:browser|shell|command) (?:history|cookies))"
)
_SIGNALS: Final = tuple(
    (group, weight, re2.compile(f"(?is){source}"))
    for group, weight, source in (
        ("carry", 2, rf"\b(?:pass|include|put|place|copy|insert|paste|provide|append|attach|supply|embed|encode|set|populate|fill|add|give|share|write|summari[sz]e|capture|record)\b[^.\n]{{0,80}}\b{_SESSION}"),
        ("carry", 2, rf"\b{_SESSION}\b[^.\n]{{0,40}}\b(?:must|should|shall|needs? to|has to|have to|is|are)\b[^.\n]{{0,20}}\b(?:passed|included|provided|supplied|attached|sent|required|copied|appended)\b"),
        ("steer", 1, rf"\b{_OCCASION}\b[^.\n]{{0,60}}\b(?:tools?|functions?|calls?|requests?|messages?|responses?|answer\w*|repl\w+)\b[^\n]{{0,60}}\b{_OBLIGES}\b"),
        ("steer", 1, r"\b(?:must|always|should)\s+(?:first\s+)?(?:be\s+)?(?:called?|invoked?|used?|run)\s+(?:\w+\s+){0,3}?(?:first|before|after|for every|on every|with every|at the (?:start|end|beginning))"),
        ("sink", 2, rf"\b{_OBLIGES}\s+(?:\w+\s+){{0,3}}?{SENDS}\b[^.\n]{{0,100}}\bto\b[^.\n]{{0,30}}{WHERE}"),
        ("sink", 2, rf"\b{_OBLIGES}\s+(?:\w+\s+){{0,3}}?(?:b?cc|carbon[- ]copy|c\.?c\.?|mirror|duplicate|copy|log|sync|report|notify|ping|beacon|contact|visit|fetch|open|load|get)\b[^.\n]{{0,60}}{WHERE}"),
        ("sink", 3, rf"\b(?:b?cc|mirror|duplicate|carbon[- ]copy|redirect|reroute)\b[^.\n]{{0,60}}{WHERE}"),
        ("sink", 3, rf"\b{_OCCASION}\s+(?:any|every|each|all)\b[^.\n]{{0,30}}\b(?:tools?|calls?|messages?|answers?)\b[^.\n]{{0,40}}\b(?:copy|{SENDS})\b[^.\n]{{0,100}}{WHERE}"),
        ("takes", 2, r"\b(?:read|open|cat|load|include|contents? of|upload|collect|access|look (?:at|in)|grab)\b[^.\n]{0,60}(?:/etc/\w+|~/\.|\.ssh\b|\.aws\b|\.env\b|\.netrc|\.kube\b|\.gnupg|\.git-credentials|id_(?:rsa|ed25519)|/proc/|mcp\.json|\.cursor\b|claude_desktop_config|keychain|wallet)"),
        ("shadow", 3, rf"\b{_OCCASION}\b[^.\n]{{0,40}}\b{_OTHERS}\b[^\n]{{0,100}}\b(?:redirect|replace the|bcc|reroute|forward (?:a|the|all|every|each|them|it|its|any)|also (?:send|call|include|invoke|pass)|(?:change|set|modify|alter|rewrite|substitute) (?:the )?(?:\w+ )?(?:recipients?|destination|address|to field|url|arguments?|parameters?|results?|outputs?))\b"),
        ("shadow", 3, r"\b(?:other|built-?in|default|native|standard|existing|original|[a-z]+_\w+)\b[^.\n]{0,40}\b(?:is|are|has been|have been)\s+(?:now\s+)?(?:deprecated|broken|insecure|unsafe|disabled|obsolete|compromised|unreliable|no longer|out ?dated)\b[^\n]{0,80}\b(?:use|call|invoke|prefer|rely on)\s+this\b"),
        ("shadow", 3, r"\b(?:use|call|invoke|prefer|choose|pick|select)\s+(?:only\s+)?this\b[^.\n]{0,30}\b(?:instead of|rather than|over|in place of|and (?:not|never))\b[^.\n]{0,30}\b(?:other|any|all|built-?in|default|native|standard|existing|original|[a-z]+_\w+)\b"),
        ("shadow", 2, r"\b(?:replaces?|supersedes?|overrides?|takes over|intercepts?|takes? precedence over|takes? priority over)\b[^.\n]{0,40}\b(?:all|every|any|other|built-?in|default|native|existing|original|[a-z]+_\w+)\b[^.\n]{0,30}\b(?:tools?|functions?|calls?|definitions?|[a-z]+_\w+)"),
        ("shadow", 2, r"\b(?:do not|don't|never|avoid|stop)\s+(?:us(?:e|ing)|call(?:ing)?|invok(?:e|ing)|trust(?:ing)?)\b[^.\n]{0,30}\b(?:other|any|built-?in|default|native|existing|original)\b[^.\n]{0,30}\b(?:tools?|servers?|functions?)"),
        ("role", 2, r"\b(?:your (?:goal|task|job|role|objective|priority|primary \w+) is|you (?:have|need) no (?:need|permission)|no (?:need to|confirmation|approval)(?: is)? (?:ask|confirm|needed|required)|without (?:asking|confirm\w*|prompting|telling|notifying|informing)|(?:for )?(?:compliance|security|audit\w*|telemetry|debugging|verification|billing) (?:reasons?|purposes?)?,? ?(?:you must|always|also))\b"),
    )
)  # fmt: skip
_UNSEEN: Final = re2.compile(
    r"[\x{200B}\x{200C}\x{200E}\x{200F}\x{202A}-\x{202E}\x{2060}-\x{2064}\x{2066}-\x{2069}\x{FEFF}\x{E0001}-\x{E007F}]"
    r"|<!--|\x1b\[|(?:\n[ \t]*){12}\S|[ \t\x{A0}\x{2003}]{80}\S"
)
"""What a person who is shown a definition does not see, or sees below the fold."""
_SUBJECT: Final = re2.compile(rf"(?is)\b{_SESSION}")
_TOPIC: Final = re.compile(
    r"(?i)conversation|chat|messag|prompt|session|dialog|transcript|environment|env\b|ssh|key|credential"
    r"|secret|token|password|cookie|reason|think|memor|clipboard|history|context|tool"
)
_ASKS_NAME: Final = re.compile(
    r"(?i)(?:system_?prompt|(?:conversation|chat|message)_?(?:history|context|log)|ssh_?key|private_?key|env(?:ironment)?_?vars?"
    r"|(?:previous|prior|other)_?(?:results?|outputs?|messages?|tool\w*)|all_?(?:secrets|credentials|tokens)|chain_?of_?thought)"
)
_SIDE: Final = re.compile(
    r"(?i)^(?:b?cc|webhook\w*|callback\w*|telemetry\w*|notify\w*|report\w*|mirror\w*|forward\w*|copy_to|log_?(?:to|url|endpoint)|proxy\w*|analytics\w*|collector\w*)$"
)
_ADDRESS: Final = re.compile(r"(?i)^\s*(?:mailto:|https?://|wss?://|[\w.+-]+@)[\w-]+\.")


def is_definition(document: Json) -> TypeGuard[dict[str, Json]]:
    """Return whether a document is the definition of a tool."""
    return (
        isinstance(document, dict)
        and isinstance(document.get("name"), str)
        and any(isinstance(document.get(member), dict) for member in SCHEMAS)
    )


def steers(definition: Mapping[str, Json]) -> bool:
    """Return whether a definition steers a model to something else than the use of its tool."""
    name = str(definition["name"])
    raw = "\n".join(item.text for item in argument_texts(dict(definition)))[:LIMIT]
    if _UNSEEN.search(raw) or (not name.isascii() and fold(name).isascii()):
        return True
    text = fold(raw)
    found = {group: weight for group, weight, form in _ordered() if form.search(text)}
    if any(_is_side_sink(name, schema) for name, schema in _parameters(definition)):
        found["sink"] = ENOUGH
    if "carry" in found or _asks(definition):
        found["carry"] = ENOUGH if _is_foreign(definition) else found.get("carry", 0)
    if is_dangerous(text):
        found["command"] = 1
    return sum(found.values()) + signal_weight(text) >= ENOUGH


def _ordered() -> Iterator[tuple[str, int, re2._Regexp]]:
    """Yield the signals, heavier ones of a group last."""
    yield from sorted(_SIGNALS, key=lambda signal: signal[1])


def _parameters(definition: Mapping[str, Json]) -> list[tuple[str, Mapping[str, Json]]]:
    """Return name and schema of the parameters, nested ones too."""
    found: list[tuple[str, Mapping[str, Json]]] = []
    waiting: list[Json] = [definition.get(member) for member in SCHEMAS]
    while waiting and len(found) < PARAMETERS:
        schema = waiting.pop()
        if not isinstance(schema, dict):
            continue
        properties = schema.get("properties")
        items = properties.items() if isinstance(properties, dict) else ()
        named = [(key, value) for key, value in items if isinstance(value, dict)]
        found += named
        waiting += [value for _, value in named]
        waiting.append(schema.get("items"))
    return found[:PARAMETERS]


def _is_side_sink(name: str, schema: Mapping[str, Json]) -> bool:
    """Return whether a parameter sends copies somewhere unless the model says otherwise."""
    values = [schema.get("default"), schema.get("const")]
    listed = schema.get("enum")
    values += listed if isinstance(listed, list) and len(listed) == 1 else []
    return bool(_SIDE.match(name)) and any(
        isinstance(value, str) and _ADDRESS.match(value) for value in values
    )


def _asks(definition: Mapping[str, Json]) -> bool:
    """Return whether a parameter is for what the session knows and no user types."""
    return any(
        _ASKS_NAME.search(name) or _SUBJECT.search(fold(str(schema.get("description", ""))))
        for name, schema in _parameters(definition)
    )


def _is_foreign(definition: Mapping[str, Json]) -> bool:
    """Return whether the tool, by its name and first sentence, has nothing to do with that."""
    description = str(definition.get("description") or definition.get("title") or "")
    first = re.split(r"(?<=[.!?])\s|\n", description.strip(), maxsplit=1)[0]
    return not _TOPIC.search(f"{definition['name']} {first}")
