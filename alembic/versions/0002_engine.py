"""What the whole booking engine needs, as one SQL file beside this one.

Revision ID: 0002
Revises: 0001
"""

from pathlib import Path

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add tables and columns; nothing that stands is rewritten."""
    text = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
    op.get_bind().connection.driver_connection.execute(text)


def downgrade() -> None:
    """What people wrote into these tables cannot be kept by the release before."""
    raise RuntimeError("There is no way back from this revision: restore a backup instead.")
