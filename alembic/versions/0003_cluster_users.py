"""A person's user name on each cluster, and the one that a sign-in provider's claim gives.

Revision ID: 0003
Revises: 0002
"""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

# `name` is the one in use, `wanted` one that its person entered and an operator has not confirmed yet.
UP = """
ALTER TABLE accounts ADD COLUMN cluster_user text;
CREATE TABLE cluster_users (
  account_id uuid NOT NULL REFERENCES accounts, cluster_id int NOT NULL REFERENCES clusters,
  name text CHECK (name ~ '^[a-z_][a-z0-9_-]{0,31}$'), source text NOT NULL CHECK (source IN ('rule','claim','entered')),
  since timestamptz NOT NULL, wanted text CHECK (wanted ~ '^[a-z_][a-z0-9_-]{0,31}$'),
  PRIMARY KEY (account_id, cluster_id), CONSTRAINT one_user_a_cluster UNIQUE (cluster_id, name),
  CHECK (num_nonnulls(name, wanted) > 0));
GRANT SELECT ON cluster_users TO berth_app, berth_reader;
GRANT INSERT, UPDATE, DELETE ON cluster_users TO berth_app;
"""


def upgrade() -> None:
    """The table, the column, and the app's rights on them."""
    op.get_bind().connection.driver_connection.execute(UP)


def downgrade() -> None:
    """Names that people entered are lost."""
    op.get_bind().connection.driver_connection.execute(
        "DROP TABLE cluster_users; ALTER TABLE accounts DROP COLUMN cluster_user"
    )
