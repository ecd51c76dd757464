"""MCP over standard input and output: the wrapper, and the socket it asks for decisions."""
