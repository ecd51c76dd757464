"""From calls and results to candidates."""

import pytest

from guard.core.calls import ClassifiedCall
from guard.core.jsonpath import compile_path
from guard.core.mappings import MemoryLimits, ProposalMapping, WriteMapping
from guard.core.memory import NO_EVIDENCE, MemoryClass
from guard.core.model import Identity, Role, ToolCall
from guard.memory.candidate import candidate_of_call, candidates_of_result

LIMITS = MemoryLimits(max_chars=200)


def _call(arguments, protocol="mcp", **fields):
    call = ToolCall("id-1", Identity("p", "s"), "save", arguments, protocol, 0.0, **fields)
    return ClassifiedCall(call, Role.SAVE)


def _mapping(**paths):
    queries = {name: compile_path(path) for name, path in paths.items() if name != "content"}
    content = tuple(compile_path(path) for path in paths.get("content", ()))
    return WriteMapping("", lambda _: True, "facts", MemoryClass.L3, content=content, **queries)


def test_nonce_and_token_are_no_part_of_the_content():
    """A retry with another nonce or a token is the same content, so a token can be bound to it."""
    mapping = _mapping(nonce="$.nonce", token="$.token")
    first = candidate_of_call(_call({"text": "a", "nonce": "1"}), mapping, NO_EVIDENCE, LIMITS)
    second = candidate_of_call(
        _call({"text": "a", "nonce": "2", "token": "t"}), mapping, NO_EVIDENCE, LIMITS
    )

    assert first.digest == second.digest
    assert (second.nonce, second.token) == ("2", "t")


@pytest.mark.parametrize(
    ("fields", "nonce", "token"),
    [({"nonce": "n", "token": "t"}, "n", "t"), ({}, "id-1", "")],
    ids=["headers", "the call's own id"],
)
def test_a_tool_without_a_place_for_nonce_and_token_gets_them_elsewhere(fields, nonce, token):
    """Stores that know neither still get replay protection and promotion."""
    made = candidate_of_call(_call({"text": "a"}, **fields), _mapping(), NO_EVIDENCE, LIMITS)

    assert (made.nonce, made.token) == (nonce, token)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        pytest.param({"text": "x" * 300}, "candidate_oversize", id="too long"),
        pytest.param({"text": "a\x00b"}, "candidate_not_text", id="binary"),
        pytest.param({"text": [1.5, 2.5]}, "candidate_not_text", id="numbers only"),
        pytest.param({"text": "a", "class": "L0"}, "class_unknown", id="unknown class"),
        pytest.param({"text": "a", "class": 2}, "class_unknown", id="class is a number"),
        pytest.param({"text": "a", "class": "l2"}, "class_unknown", id="class in another case"),
    ],
)
def test_bad_input_is_named(arguments, problem):
    """What cannot be remembered as asked has a name; an unknown class counts as the highest."""
    mapping = _mapping(content=("$.text",), target_path="$.class")
    made = candidate_of_call(_call(arguments), mapping, NO_EVIDENCE, LIMITS)

    assert problem in made.problems
    assert made.target is (MemoryClass.L1 if problem == "class_unknown" else MemoryClass.L3)


def test_a_proposal_and_the_write_of_it_share_their_text_digest():
    """So the write cannot differ from what was proposed under the same nonce."""
    proposals = ProposalMapping(
        lambda _: True,
        updates=compile_path("$.memory_update"),
        content=compile_path("$.value"),
        nonce=compile_path("$.nonce"),
        key=compile_path("$.key"),
    )
    result = {"content": [{"text": '{"memory_update": {"key": "k", "value": "v", "nonce": "n"}}'}]}
    [proposed] = candidates_of_result(_call({}), proposals, result, NO_EVIDENCE, LIMITS)
    write = candidate_of_call(
        _call({"key": "k", "value": "v", "nonce": "n"}),
        _mapping(content=("$.value",), nonce="$.nonce"),
        NO_EVIDENCE,
        LIMITS,
    )

    assert proposed.text_digest == write.text_digest
    assert proposed.nonce == write.nonce


@pytest.mark.parametrize(
    "result",
    [
        {"structuredContent": {"memory_update": {"value": "v"}}},
        {"content": [], "structuredContent": {"result": {"memory_update": {"value": "v"}}}},
        {"taskId": "t", "result": {"structuredContent": {"memory_update": {"value": "v"}}}},
    ],
    ids=["structured", "wrapped", "of a task"],
)
def test_an_update_in_the_structured_form_alone_is_found(result):
    """A server need not say it twice."""
    updates, content = compile_path("$.memory_update"), compile_path("$.value")
    proposals = ProposalMapping(lambda _: True, updates=updates, content=content)

    [proposed] = candidates_of_result(_call({}), proposals, result, NO_EVIDENCE, LIMITS)

    assert proposed.texts == ("v",)


@pytest.mark.parametrize(
    ("arguments", "further"),
    [
        ({"text": "a", "note": "send it to evil"}, ("send it to evil",)),
        ({"text": "a", "metadata": {"always copy evil": "1"}}, ("always copy evil", "1")),
        ({"text": {"always copy evil": "a"}}, ("always copy evil",)),
        ({"text": "a", "nonce": "n 1"}, ("n 1",)),
        ({"text": "a", "user_id": "ada"}, ("ada",)),
    ],
)
def test_the_candidate_is_the_whole_request(arguments, further):
    """Member names, metadata and extra arguments are kept by some store."""
    mapping = _mapping(content=("$.text",), nonce="$.nonce")

    made = candidate_of_call(_call(arguments), mapping, NO_EVIDENCE, LIMITS)

    assert set(made.further) == set(further)


def test_the_query_and_headers_of_a_plain_request_belong_to_it():
    """Not its host and method."""
    arguments = {
        "method": "PUT",
        "url": "http://store/points?note=send+it+to+evil",
        "host": "store",
        "headers": {"x-note": "send it"},
        "body": '{"text": "a"}',
    }

    made = candidate_of_call(
        _call(arguments, "http"), _mapping(content=("$.body.text",)), NO_EVIDENCE, LIMITS
    )

    assert (made.texts, set(made.further)) == (
        ("a",),
        {"note=send it to evil", "send it", "x-note"},
    )
