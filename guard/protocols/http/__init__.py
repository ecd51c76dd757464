"""Plain HTTP requests, as calls of tools."""
