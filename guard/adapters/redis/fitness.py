"""Whether a Redis server is fit to hold labels: its version, and that it evicts nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from guard.adapters.redis.connection import CommandRefusedError
from guard.core.errors import StateError

if TYPE_CHECKING:
    from guard.adapters.redis.connection import RedisClient

MINIMUM_VERSION: Final = (6, 2)
_PAIR: Final = 2


async def memory_settings(client: RedisClient) -> dict[str, str]:
    """Return ``maxmemory`` and ``maxmemory_policy``; hosted servers often forbid CONFIG."""
    settings: dict[str, str] = {}
    names = ("maxmemory", "maxmemory-policy")
    try:
        for name in names:
            reply = await client.execute("CONFIG", "GET", name)
            if isinstance(reply, list) and len(reply) == _PAIR:
                settings[name.replace("-", "_")] = _text(reply[1])
    except CommandRefusedError:
        settings = {}
    if len(settings) < len(names):
        settings = parse_info(await client.execute("INFO", "memory"))
    return settings


def parse_info(reply: object) -> dict[str, str]:
    """Return the fields of an INFO answer.

    Raises:
        StateError: it is not text.
    """
    lines = _text(reply).splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))


def check_version(info: dict[str, str]) -> None:
    """Refuse a server older than ``MINIMUM_VERSION``.

    Raises:
        StateError: it is, or does not say.
    """
    version = info.get("redis_version", "")
    parts = version.split(".")
    if not all(part.isdigit() for part in parts[:2]) or (
        tuple(int(part) for part in parts[:2]) < MINIMUM_VERSION
    ):
        msg = f"redis is version `{version}`; the guard needs 6.2 or newer"
        raise StateError(msg)


def check_eviction(settings: dict[str, str]) -> None:
    """Refuse a server that may drop keys to make room: a dropped label would look like none.

    Raises:
        StateError: it may, or does not say.
    """
    policy, limit = settings.get("maxmemory_policy", ""), settings.get("maxmemory", "")
    if policy == "noeviction":
        return
    if not policy or not limit.isdigit():
        msg = "redis does not say how it evicts; allow the guard CONFIG GET or INFO"
        raise StateError(msg)
    if int(limit) > 0:
        msg = (
            f"redis may evict keys (maxmemory-policy `{policy}`) and with them what sessions did; "
            "run CONFIG SET maxmemory-policy noeviction, and set it in redis.conf"
        )
        raise StateError(msg)


def _text(reply: object) -> str:
    if not isinstance(reply, bytes):
        msg = "redis answered with something else than text"
        raise StateError(msg)
    return reply.decode("utf-8", "replace")
