"""Evaluation of intent: actions and destinations that somebody asked for."""
