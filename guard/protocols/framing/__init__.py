"""Framing that wire formats share: JSON, JSON-RPC, server-sent events, content codings."""
