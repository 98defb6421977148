"""${message}

Revision ID: ${up_revision}
Revises: ${down_revision | comma,n}
"""

from alembic import op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = None
depends_on = None


def upgrade() -> None:
    """${message}."""
    ${upgrades if upgrades else "op.execute('')"}


def downgrade() -> None:
    """Restore a backup instead."""
    raise RuntimeError("Berth migrates forward only: restore a backup instead.")
