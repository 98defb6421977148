"""The data model of the first release, as one SQL file beside this one.

Revision ID: 0001
Revises:
"""

from pathlib import Path

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create everything; the roles exist already."""
    text = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
    op.get_bind().connection.driver_connection.execute(text)


def downgrade() -> None:
    """There is nothing before the first release to go back to."""
    raise RuntimeError("There is no release before the first one: restore a backup instead.")
