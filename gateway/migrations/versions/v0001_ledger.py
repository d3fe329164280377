"""The ledger: one row per call, and the text of the few calls whose text is kept."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

COUNTS = ("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens", "cost_nano_usd")
NAMES = ("endpoint", "key", "team", "route", "rule", "experiment", "arm", "model", "upstream", "task", "outcome")
NEVER_NULL = ("endpoint", "key", "outcome")


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "calls",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("request_id", sa.Text, nullable=False),
        *(sa.Column(name, sa.Text, nullable=name not in NEVER_NULL) for name in NAMES),
        sa.Column("probability", sa.Double),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("tried", sa.JSON, nullable=False),
        sa.Column("stream", sa.Boolean, nullable=False),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in COUNTS),
        sa.Column("reported", sa.Boolean, nullable=False),
        sa.Column("total_ms", sa.Double, nullable=False),
        sa.Column("first_token_ms", sa.Double),
        sa.Column("own_ms", sa.Double, nullable=False),
        sa.Column("status", sa.Integer, nullable=False),
        sa.Column("drafts", sa.BigInteger),
        sa.Column("accepted", sa.BigInteger),
    )
    op.create_index("calls_spent", "calls", ["at_ms", "key", "team", "cost_nano_usd"])
    op.create_table(
        "contents",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("at_ms", sa.BigInteger, nullable=False, index=True),
        sa.Column("prompt", sa.Text, nullable=False),
    )


def downgrade() -> None:
    """Drop them."""
    op.drop_table("contents")
    op.drop_table("calls")
