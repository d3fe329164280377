"""Created keys, the settings that belong to them, and who changed what."""

from __future__ import annotations

import secrets

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the tables, and the two settings that every process reads."""
    op.create_table(
        "keys",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("team", sa.Text),
        *(sa.Column(name, sa.JSON) for name in ("models", "limits", "budget", "metadata")),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("expires_ms", sa.BigInteger),
        sa.Column("revoked_ms", sa.BigInteger),
        sa.Column("changed", sa.BigInteger, nullable=False, index=True),
    )
    op.create_table(
        "key_secrets",
        sa.Column("digest", sa.LargeBinary, primary_key=True),
        sa.Column("key", sa.Text, sa.ForeignKey("keys.name"), nullable=False, index=True),
        sa.Column("prefix", sa.Text, nullable=False),
        sa.Column("created_ms", sa.BigInteger, nullable=False),
        sa.Column("until_ms", sa.BigInteger),
    )
    settings = op.create_table(
        "settings",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
    op.create_table(
        "audit",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("at_ms", sa.BigInteger, nullable=False, index=True),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("detail", sa.JSON, nullable=False),
    )
    pepper = {"name": "pepper", "value": secrets.token_hex(32)}
    op.bulk_insert(settings, [pepper, {"name": "keys_version", "value": "0"}])


def downgrade() -> None:
    """Drop them."""
    for table in ("audit", "settings", "key_secrets", "keys"):
        op.drop_table(table)
