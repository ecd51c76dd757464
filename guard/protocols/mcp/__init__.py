"""The Model Context Protocol."""
