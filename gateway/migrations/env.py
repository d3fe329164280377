"""What alembic runs: all steps in the one transaction of the connection that `gateway/database.py` gives."""

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"], transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
