"""Memory servers and the operator's checker: what the write path asks outside."""
