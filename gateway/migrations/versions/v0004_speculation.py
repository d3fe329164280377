"""What speculative decoding did for a call, in full; and the acceptance that each checkpoint began with."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Add them."""
    op.add_column("calls", sa.Column("draft_tokens", sa.BigInteger))
    op.add_column("calls", sa.Column("answer_kind", sa.Text))
    op.create_table(
        "baselines",
        sa.Column("model", sa.Text, primary_key=True),
        sa.Column("checkpoint", sa.Text, primary_key=True),
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    """Drop them."""
    op.drop_table("baselines")
    op.drop_column("calls", "answer_kind")
    op.drop_column("calls", "draft_tokens")
