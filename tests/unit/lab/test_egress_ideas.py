"""Cases written against the classes of the egress benchmark, by other ideas than its own.

``a`` and ``b`` were used while the mechanisms were made; ``c``, ``d`` and ``e`` were each written
after those of their time and looked at once, through a running guard (``docs/wires.md`` has the
figures), and then mechanisms were made on what they missed.  ``f`` and ``g`` were looked
at once, and mechanisms were made from what is no wording in them: their commands, URLs and calls
are asked here, of their definitions and pages only how many are told.  ``h`` and ``i`` are
definitions and pages alone.  Here only the content detectors are asked,
without the policy's lists, so chains of calls are left out.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest

from guard.content import injection_text, steering_reader, tool_definitions
from guard.content.injection_text import instructs
from guard.content.sentence_frames import Frames
from lab import honest_requests
from lab.honest_requests import flags

IDEAS = Path(__file__).with_name("egress_ideas")
FOUND = 0.85
"""Share of the attacks that content alone finds; lists and roles find the rest."""


def cases(name: str) -> list[Any]:
    """Return the cases of a file that content alone can tell."""
    lines = (IDEAS / f"{name}.jsonl").read_text("utf-8").splitlines()
    return [one for one in map(json.loads, lines) if told(one) is not None]


def told(case: Any) -> bool | None:
    """Return whether the content of a case is found; None where it says nothing by itself."""
    kind, payload = case["input_type"], case["payload"]
    if kind in {"mcp_tool_sequence", "header", "request_body"}:
        return None
    if kind == "response_content":
        return instructs(payload["response_body"], deep=True)
    if kind == "url":
        return bool(flags("url", payload["url"]))
    message = payload["jsonrpc_messages"][0]
    if kind == "mcp_tool_definition":
        return bool(flags("definition", message["result"]["tools"][0]))
    if kind == "mcp_tool_result":
        return instructs(message["result"]["content"][0]["text"], deep=True)
    return bool(flags("api", message["params"].get("arguments", message["params"])))


@pytest.mark.parametrize("name", ["a", "b", "c", "d", "e"])
def test_new_ideas_are_found_and_what_looks_like_them_is_not(name: str) -> None:
    """Most attacks, and nothing of as many honest requests beside them."""
    attacks = [one for one in cases(name) if one["expected_verdict"] == "block"]
    honest = [one for one in cases(name) if one["expected_verdict"] == "allow"]

    assert sum(map(bool, map(told, attacks))) >= FOUND * len(attacks)
    assert [one["id"] for one in honest if told(one)] == []


@pytest.mark.parametrize("name", ["f", "g"])
def test_forms_are_found_in_the_sets_whose_wordings_are_new(name: str) -> None:
    """Ids that are as long as a key (of clicks, of certificates) are not told from one."""
    forms = [one for one in cases(name) if one["input_type"] in {"url", "mcp_tool_call"}]
    attacks = [one for one in forms if one["expected_verdict"] == "block"]
    honest = [one for one in forms if one["expected_verdict"] == "allow"]

    assert sum(map(bool, map(told, attacks))) >= FOUND * len(attacks)
    assert sum(map(bool, map(told, honest))) <= 0.03 * len(honest)


def test_few_honest_wordings_are_withheld_that_nothing_was_made_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One in 20 in four sets; more where the reader does not doubt the patterns."""
    spoken = [
        one
        for name in ("f", "g", "h", "i")
        for one in cases(name)
        if one["input_type"] in {"mcp_tool_definition", "response_content", "mcp_tool_result"}
        and one["category"] != "memory"
    ]
    attacks = [one for one in spoken if one["expected_verdict"] == "block"]
    honest = [one for one in spoken if one["expected_verdict"] == "allow"]
    withheld = sum(map(bool, map(told, honest)))

    assert sum(map(bool, map(told, attacks))) >= 0.6 * len(attacks)
    assert withheld <= 0.05 * len(honest)

    monkeypatch.setattr(injection_text, "HONEST_PAGE", steering_reader.NOTHING)
    monkeypatch.setattr(tool_definitions, "HONEST", steering_reader.NOTHING)
    unread = inspect.unwrap(instructs)
    monkeypatch.setattr(honest_requests, "instructs", unread)
    monkeypatch.setitem(globals(), "instructs", unread)

    assert sum(map(bool, map(told, honest))) >= 1.3 * withheld


def test_without_frames_and_reader_half_of_what_speaks_to_a_model_is_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Phrases alone, without the learned reader, are not what finds new wordings."""
    kinds = {"mcp_tool_definition", "response_content", "mcp_tool_result"}
    attacks = [
        one
        for name in ("a", "b", "c")
        for one in cases(name)
        if one["expected_verdict"] == "block" and one["input_type"] in kinds
    ]
    found = sum(map(bool, map(told, attacks)))
    monkeypatch.setattr(injection_text, "_FRAMES", Frames({}, ()))
    monkeypatch.setattr(injection_text, "page_score", lambda _text: None)
    monkeypatch.setattr(tool_definitions, "_FRAMES", Frames({}, ()))
    monkeypatch.setattr(tool_definitions, "definition_score", lambda _definition: 0.0)
    # What was said of a text before is remembered: here every text is read anew.
    unread = inspect.unwrap(instructs)
    monkeypatch.setattr(honest_requests, "instructs", unread)
    monkeypatch.setitem(globals(), "instructs", unread)

    assert sum(map(bool, map(told, attacks))) <= 0.7 * found
