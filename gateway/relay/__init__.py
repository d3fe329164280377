"""Upstream bytes to the caller: held until they commit, then passed on as they came, and read while they pass."""
