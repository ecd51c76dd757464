"""mitmproxy in our own process: a master with four of its addons, and ours.

Never ``mitmdump -s``: a syntax error saved into a script unloads it and traffic passes.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from mitmproxy import options
from mitmproxy.addons import core, next_layer, proxyserver, tlsconfig
from mitmproxy.master import Master

from guard.adapters.mitm import layers
from guard.core.errors import GuardError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from guard.adapters.mitm.addon import GuardAddon

log: Final = logging.getLogger("guard.mitm")


class LeanMaster(Master):
    """A master that calls only the hooks somebody listens to."""

    def __init__(self, opts: options.Options, addon: GuardAddon) -> None:
        super().__init__(opts)
        layers.install()
        layers.verify()
        self.server = proxyserver.Proxyserver()
        self.addons.add(
            core.Core(), self.server, next_layer.NextLayer(), tlsconfig.TlsConfig(), addon
        )


def build_master(
    addon: GuardAddon, modes: Sequence[str], *, confdir: Path, body_limit: int
) -> LeanMaster:
    """Return the master, listening as soon as it runs.

    Args:
        addon: the PEP.
        modes: mitmproxy mode specifications.
        confdir: where mitmproxy keeps its certificate authority; only the guard's user may enter.
        body_limit: bytes of one body.
    """
    opts = options.Options(confdir=str(confdir), mode=list(modes))
    master = LeanMaster(opts, addon)
    master.options.update(
        body_size_limit=str(body_limit),
        keep_host_header=True,
        rawtcp=False,
        websocket=False,
        connection_strategy="lazy",
        stream_large_bodies=None,
        validate_inbound_headers=True,
    )
    return master


async def listening(master: LeanMaster, tries: int = 500) -> list[tuple[str, int]]:
    """Wait until every listener is bound and return the addresses.

    Raises:
        GuardError: a listener could not be bound.
    """
    for _ in range(tries):
        instances = list(master.server.servers)
        if errors := [i.last_exception for i in instances if i.last_exception]:
            msg = f"a listener cannot be opened: {errors[0]}"
            raise GuardError(msg)
        if instances and all(i.is_running for i in instances):
            return [a[:2] for i in instances for a in i.listen_addrs]
        await asyncio.sleep(0.01)
    msg = "the listeners did not come up in time"
    raise GuardError(msg)
