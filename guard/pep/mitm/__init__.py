"""The default PEP: mitmproxy in our own process, with only the addons the guard needs."""
