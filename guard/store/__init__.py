"""The session store on Redis: one script and one round trip per direction."""
