"""The file of write credentials: what is refused at start, and what never prints."""

import pytest

from guard.core.errors import GuardError
from guard.credentials.write_credentials import WriteCredential, load_write_credentials


def _file(tmp_path, text):
    path = tmp_path / "write.toml"
    path.write_text(f'["127.0.0.1:1"]\n{text}\n', encoding="utf-8")
    return path


SECRET = "secret = " + chr(34) + "0123456789" + chr(34)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (SECRET, "one of `header`, `query` and `client_certificate`"),
        (f'header = "a"\nquery = "b"\n{SECRET}', "one of"),
        (f'client_certificate = "w.pem"\nheader = "a"\n{SECRET}', "stands alone"),
        ('client_certificate = "missing.pem"', "cannot be read"),
        (f'host = "no port"\nheader = "a"\n{SECRET}', "host"),
        ('header = "a"', "`secret` or `secret_file`"),
    ],
)
def test_a_table_that_is_unclear_is_refused_at_start(tmp_path, text, says):
    """With what is right, and without the secret."""
    with pytest.raises(GuardError, match=says) as error:
        load_write_credentials(_file(tmp_path, text))

    assert "0123456789" not in str(error.value)


@pytest.mark.parametrize("text", [f'header = "a"\n{SECRET}'])
def test_a_forward_listener_needs_the_host_of_its_store(tmp_path, text):
    """Its clients name the upstream: without a host, any of them would get the credential."""
    with pytest.raises(GuardError, match="needs the `host`"):
        load_write_credentials(_file(tmp_path, text), ["127.0.0.1:1"])

    named = _file(tmp_path, f'host = "Store.test:443"\n{text}')
    [found] = load_write_credentials(named, ["127.0.0.1:1"]).values()
    assert found.is_for("store.test", 443)
    assert not found.is_for("store.test", 80)
    assert not found.is_for("evil.test", 443)


def test_a_credential_does_not_print():
    """Neither as text nor as a representation."""
    made = WriteCredential(header="x", secret="s3cret-s3cret", value="Bearer s3cret-s3cret")

    assert "s3cret" not in f"{made} {made!r}"
