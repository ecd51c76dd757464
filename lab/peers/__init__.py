"""Other MCP gateways beside the guard: requests per second in one run."""
