"""The messages of the benchmark are those that one message may not carry."""

import json

import pytest

from guard.core.work import WorkExceededError, may_exceed, measure
from lab import overload_large


def test_a_list_of_thirty_thousand_tools_is_refused_before_it_is_parsed():
    """A thousand, which is as many as are pinned, pass."""
    body = overload_large._listing().partition(b"\r\n\r\n")[2]
    assert may_exceed(body)
    with pytest.raises(WorkExceededError):
        measure(body)
    document = json.loads(body)
    document["result"]["tools"] = document["result"]["tools"][:1000]
    measure(json.dumps(document).encode())


def test_the_client_sends_arguments_that_no_mapping_declares():
    """From 5 to 7.5 MB, as one text, as many small ones and as some large ones."""
    sizes = [len(body) for body in overload_large._bodies("arguments")]
    assert len(sizes) == 6
    assert min(sizes) >= 5_000_000
    assert max(sizes) < 16 * 1024 * 1024
