"""One broken file per defect: each is refused at the exact line, with the rule's id and a hint."""

from pathlib import Path

import pytest

from guard.core.errors import PolicyError
from guard.policy import load_policies

INVALID = Path(__file__).parent / "invalid"


@pytest.mark.parametrize("path", sorted(INVALID.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_broken_file_is_refused_at_its_line_and_rule(path):
    """The first line of each file says which line, rule and words the one problem must have."""
    head = path.read_text(encoding="utf-8").splitlines()[0]
    _, _, line, rule, words = head.split(" ", maxsplit=4)

    with pytest.raises(PolicyError) as caught:
        load_policies([path])

    found = [(p.path, p.line, p.rule) for p in caught.value.problems]
    assert found == [(str(path), int(line), None if rule == "-" else rule.replace("%", " "))]
    assert words in caught.value.problems[0].message


BASE = """version: 1
name: base
tools:
  - {match: [mail_send], role: send, destinations: ["$.to"]}
  - {match: [memory_read], role: recall}
rules:
  - {id: asks, type: tool, effect: ask}
  - {id: allows, type: tool, roles: [recall], effect: allow}
"""
TOOLS = "tools:\n"
RULES = "rules:\n"


@pytest.mark.parametrize(
    ("section", "entry", "words"),
    [
        ("", "approvals: {two_people: [nobody]}", "no rule `nobody` has effect `ask`"),
        ("", "ask: {elicit: [{by: form}]}", "takes an answer from the agent's own client"),
        ("", "ask: {elicit: [{by: form, rules: [asks], principals: [p]}]}", "in his own name"),
        ("", "ask: {elicit: [{by: url, rules: [nobody]}]}", "no rule `nobody` has effect `ask`"),
        ("", "ask: {quiet: 5s}", "`quiet` bounds what `hold` allows"),
        ("", "memory: {}", "no write to judge"),
        ("", "propagation: {}", "no tool has a `store`"),
        (
            "",
            "established: [{to: a.test, tool: x, principal: p, until: 2027-01-31}]",
            "name one receiver",
        ),
        ("", "state: {established: 367d}", "a duration is a number"),
        ("", "servers: [{name: one, listener: 'a:1'}]", "say what its tools do"),
        ("", "extends: [builtin:nothing]", "nothing"),
        (TOOLS, 'match: [a], role: retrieve, item: "$.id"', "`store` is missing"),
        (TOOLS, 'match: [a], role: retrieve, reply: "$.id"', "with role `send` only"),
        (
            TOOLS,
            'match: [a], role: other, inert: [{path: "$[*]", why: it is a name}]',
            "names no argument",
        ),
        (TOOLS, "match: [a], role: retrieve, delegates: [pay]", "`delegates` needs `named_by`"),
        (TOOLS, 'match: [a], role: retrieve, supplies: ["$.a"]', "`supplies` needs `delegates`"),
        (
            TOOLS,
            'match: [a], role: retrieve, fields: [{path: "$.a", as: counterparty, complete: true}]',
            "`complete` belongs to",
        ),
        (
            TOOLS,
            'match: [a], role: retrieve, fields: [{path: "$", as: own_record, for: [nobody]}]',
            "no tool is of a service",
        ),
        (RULES, "id: r, type: provenance, rungs: [tainted], effect: allow", "must not be allowed"),
        (
            RULES,
            "id: r, type: provenance, of: guarded, rungs: [unknown], effect: allow",
            "can only be restricted",
        ),
        (RULES, "id: r, type: private_body, effect: ask", "nothing is private"),
        (RULES, "id: r, type: action, effect: ask", "no tool mapping declares an `action`"),
        (RULES, 'id: r, type: argument, path: "$.a", effect: ask', "no test; give one of"),
        (
            RULES,
            'id: r, type: argument, path: "$.a", glob: x, re2: x, effect: ask',
            "more than one test",
        ),
        (RULES, 'id: r, type: argument, path: "$.a", min: 2, max: 1, effect: ask', "swap them"),
        (
            RULES,
            'id: r, type: program, path: "$.a", programs: {ls: any}, directory: src, effect: ask',
            "not an absolute path",
        ),
        (RULES, "id: r, type: expression, when: 'facts.odd > 1', effect: ask", "unknown fact"),
        (RULES, "id: r, type: expression, when: 'size(facts) > 1', effect: ask", "name each fact"),
        (RULES, "id: r, type: result, effect: ask", "withheld or released"),
        (RULES, "id: r, type: result, effect: block, status: [external]", "has no destinations"),
        (RULES, "id: r, type: content, finds: [odd], effect: ask", "unknown finding"),
        (RULES, "id: r, type: tool, rungs: [denied], effect: allow", "can never be allowed"),
    ],
)
def test_a_setting_without_effect_or_sense_is_refused(tmp_path, section, entry, words):
    """Each with what is wrong, beside a policy that loads without it."""
    path = tmp_path / "policy.yaml"
    path.write_text(BASE, encoding="utf-8")
    assert load_policies([path])
    item = f"{section}  - {{{entry}}}\n"
    path.write_text(BASE.replace(section, item) if section else f"{BASE}{entry}\n", "utf-8")

    with pytest.raises(PolicyError) as caught:
        load_policies([path])

    assert words in str(caught.value)
