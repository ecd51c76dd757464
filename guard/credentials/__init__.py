"""Key material on disk: authority, label key, credentials of agents and of writers."""
