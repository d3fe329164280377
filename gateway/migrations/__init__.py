"""The tables, version by version (alembic); how to add one: `gateway/database.py`."""
