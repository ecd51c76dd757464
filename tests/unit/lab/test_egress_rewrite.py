"""Cases are rewritten with a seed, and what they are after is found, or not where nobody looks."""

from __future__ import annotations

import json
from typing import Any

from guard.content.host_names import host_hides_data
from guard.content.injection_text import instructs
from guard.content.leak_patterns import find_leaks
from guard.content.tool_definitions import steers
from guard.content.url_parts import url_hides_data
from guard.core.argument_texts import argument_texts
from guard.lab.egress_rewrite import Draw, obfuscated, rewritten
from guard.rules.program import ProgramRule

MANY = 200


def case(category: str, name: str = "one", verdict: str = "block", **payload: Any) -> Any:
    """Return a case in the form of the benchmark."""
    kind = "mcp_tool_call" if category.startswith(("mcp", "shell")) else "url"
    return {
        "id": name,
        "category": category,
        "input_type": kind,
        "transport": "fetch_proxy",
        "expected_verdict": verdict,
        "payload": payload,
    }


def test_the_same_seed_writes_the_same() -> None:
    """Another seed, and another copy, writes something else."""
    cases = [case("url"), case("mcp_tool"), case("shell_obfuscation")]

    first = rewritten(cases, 3, 2)

    assert first == rewritten(cases, 3, 2)
    assert len({json.dumps(one["payload"]) for one in first}) == len(first)
    assert first != rewritten(cases, 4, 2)


def test_a_benign_case_goes_elsewhere_with_other_numbers() -> None:
    """Its words stay what they are."""
    found = rewritten([case("url", verdict="allow", url="https://a.test/x?page=12")], 1)[0]

    assert found["payload"]["url"].endswith(found["payload"]["url"].rpartition("/")[2])
    assert "a.test" not in found["payload"]["url"]
    assert "/x?page=" in found["payload"]["url"]


def test_a_class_without_a_rewriting_is_left_out() -> None:
    """What cannot be made anew is not counted as if it had been."""
    assert rewritten([case("something_else")], 1) == []


def test_obfuscated_commands_are_asked_about() -> None:
    """However they are spelt."""
    raw = '{"id":"r","type":"program","effect":"ask","path":"$.command","programs":{"ls":"any"}}'
    rule = ProgramRule.model_validate_json(raw)
    spelt = [obfuscated(Draw(str(number))) for number in range(MANY)]

    assert [text for text in spelt if not any(rule.findings({"command": text}))] == []


def test_steering_definitions_are_found() -> None:
    """Wherever the order stands."""
    cases = rewritten([case("mcp_tool", f"d{n}") for n in range(MANY)], 5)
    tools = [c["payload"]["jsonrpc_messages"][0]["result"]["tools"][0] for c in cases]

    missed = [
        tool
        for tool in tools
        if not steers(tool) and not any(instructs(t.text, deep=True) for t in argument_texts(tool))
    ]

    assert len(missed) <= MANY // 20, missed[:5]


def test_data_in_hosts_and_urls_is_found() -> None:
    """In any coding that a name survives."""
    cases = rewritten([case("hostname_exfiltration", f"h{n}") for n in range(MANY)], 5)
    hosts = [str(c["payload"]["url"]).split("/")[2] for c in cases]

    missed = [host for host in hosts if not host_hides_data(host)]

    assert len(missed) <= MANY // 20, missed[:5]


def test_numbers_of_accounts_are_found_in_urls() -> None:
    """Cards, accounts and wallets have their checksums."""
    cases = rewritten([case("crypto_financial", f"c{n}") for n in range(MANY)], 5)
    urls = [str(c["payload"]["url"]) for c in cases]

    assert [url for url in urls if not find_leaks(url, "url") and not url_hides_data(url)] == []
