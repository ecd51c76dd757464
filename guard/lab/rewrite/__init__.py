"""Recorded runs told again: other names, other wordings, other shapes of results."""
