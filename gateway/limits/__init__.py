"""Admission: reserves requests, tokens, concurrency and budget for a call; settled exactly once at its end."""
