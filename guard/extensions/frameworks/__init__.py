"""Agent frameworks: each file puts a guard in front of one framework's tools, on the public API.

A file imports its framework, so import the one that is used.  What a person typed reaches the guard
by itself, where ``prompts`` says that this agent's input is a person's.
"""
