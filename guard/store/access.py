"""The least privileges of the guard's Redis user (``guard doctor`` prints them)."""

from __future__ import annotations

from typing import Final

COMMANDS: Final = (
    # Connections, and what a server is.
    *("client|setname", "config|get", "info", "ping", "role", "select", "time"),
    # Scripts; what they call is checked as well.
    *("evalsha", "eval", "script|load"),
    # State.
    *("get", "getdel", "set", "mget", "del", "unlink", "exists", "pexpire", "pttl", "scan"),
    *("hget", "hgetall", "hmget", "hset", "hsetnx", "hdel", "hexists", "hincrby", "hlen", "hscan"),
    *("lrange", "rpush", "sadd", "scard", "smembers", "xadd", "xrange", "xrevrange"),
    *("zadd", "zrem", "zrangebyscore", "zrevrange", "zremrangebyrank", "zremrangebyscore"),
    # Durability `replicated`.
    "wait",
    # A Cluster.
    *("asking", "cluster|slots", "command"),
)
"""Commands and subcommands, as ACL rules name them."""


def acl_rule() -> str:
    """Return the ACL rule of a user ``guard``; the digest of a password is to be put in."""
    allowed = " ".join(f"+{command}" for command in COMMANDS)
    return f"user guard on #SHA256-OF-PASSWORD resetkeys ~guard:* resetchannels -@all {allowed}"
