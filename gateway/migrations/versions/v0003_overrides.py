"""What is changed at run time; and the indexes that single calls are found by."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

FAILED = sa.text("outcome NOT IN ('ok', 'client_closed')")


def upgrade() -> None:
    """Create them."""
    op.create_table(
        "overrides",
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
    )
    settings = sa.table("settings", sa.column("name", sa.Text), sa.column("value", sa.Text))
    op.bulk_insert(settings, [{"name": "overrides_version", "value": "0"}, {"name": "reloads", "value": "0"}])
    op.create_index("calls_request", "calls", ["request_id"])
    op.create_index("calls_failed", "calls", ["at_ms"], sqlite_where=FAILED, postgresql_where=FAILED)


def downgrade() -> None:
    """Drop them."""
    op.drop_index("calls_failed", "calls")
    op.drop_index("calls_request", "calls")
    op.execute("DELETE FROM settings WHERE name IN ('overrides_version', 'reloads')")
    op.drop_table("overrides")
