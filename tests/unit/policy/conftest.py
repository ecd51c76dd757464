"""Policies as texts."""

import pytest

from guard.policy import load_policies


@pytest.fixture
def load(tmp_path):
    """Return a function that loads texts as the files of one policy."""

    def load(*texts):
        paths = [tmp_path / f"{'abc'[number]}.yaml" for number in range(len(texts))]
        for path, text in zip(paths, texts, strict=True):
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_policies(paths)

    return load


@pytest.fixture
def warnings(load):
    """Return a function that tells what a policy is warned about."""
    return lambda *texts: list(map(str, load(*texts).source.warnings))
