"""What `guard lab bench adopt` measures: the first hour of a new user."""
