"""``guard demo``: a real agent session, an attack on it, and the guard in between.

On loopback: two MCP servers made with the official SDK, ``guard run`` with the shipped policy in
front of them, and the official MCP client.  The agent imports nothing of the guard.
"""
