"""A PEP for reverse listeners over HTTP/1.1 in the clear: asyncio and httptools."""
