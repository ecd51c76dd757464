"""What happens to one message, whichever enforcement point brought it."""
