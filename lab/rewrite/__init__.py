"""Rewrites recorded runs with other names, other wordings and other shapes of results."""
