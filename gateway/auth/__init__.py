"""Credential -> Caller. No I/O: everything is in memory."""
