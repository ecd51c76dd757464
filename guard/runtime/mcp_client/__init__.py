"""The guard as an MCP client, through the official SDK; never on the path of a request."""
