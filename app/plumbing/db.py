"""One transaction against PostgreSQL, as the app's role. Knows no business word but the tenant and the two clocks.

A `Work` is one transaction. Statements of the heart go through `work.pg` (psycopg, SQL text: the ORM alone costs three
times what a booking needs); rooms around it may use `work.session` (SQLModel). Both are the same transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
from psycopg.adapt import Loader
from sqlalchemy import Engine, create_engine
from sqlalchemy.engine import Connection
from sqlmodel import Session

PRODUCT_NOW = "SELECT berth_now()"
"""The product clock, for a caller who reads several things in one round trip."""


class DangerousRole(RuntimeError):
    """The process would run with rights that pass every row-level policy."""


def sqlalchemy_url(url: str) -> str:
    """The same address with the driver that is used here."""
    head, _, tail = url.partition("://")
    return f"postgresql+psycopg://{tail}" if head in ("postgres", "postgresql") else url


class _UtcLoader(Loader):
    """Instants come back in UTC whatever the server's time zone is."""

    def load(self, data: Any) -> datetime:
        text = bytes(data).decode()
        # psycopg sets the session's zone below, so the text always ends in +00
        return (
            datetime.fromisoformat(text).astimezone(UTC)
            if not text.endswith("+00")
            else datetime.fromisoformat(text).replace(tzinfo=UTC)
        )


def make_engine(url: str, *, pool_size: int = 10, max_overflow: int = 30) -> Engine:
    """The pool of connections of one process. `url` names the app's role.

    READ COMMITTED; a lock is waited for 10 s at most, a statement runs 60 s at most, and the session's zone is UTC.
    """
    options = "-c timezone=UTC -c lock_timeout=10s -c statement_timeout=60s -c idle_in_transaction_session_timeout=120s"
    engine = create_engine(
        sqlalchemy_url(url),
        pool_size=pool_size,
        max_overflow=max_overflow,
        pool_pre_ping=False,
        pool_recycle=1800,
        connect_args={"options": options, "connect_timeout": 10},
    )
    from sqlalchemy import event

    @event.listens_for(engine, "connect")
    def _utc(connection: psycopg.Connection, _record: Any) -> None:
        connection.adapters.register_loader("timestamptz", _UtcLoader)

    return engine


def refuse_dangerous_role(connection: psycopg.Connection) -> None:
    """Raise `DangerousRole` when the role is the tables' owner, a superuser or passes row-level security."""
    name, dangerous = connection.execute(
        """SELECT current_user, rolsuper OR rolbypassrls OR EXISTS (
                    SELECT FROM pg_class c WHERE c.relowner = r.oid AND c.relname IN ('bookings', 'clock'))
             FROM pg_roles r WHERE rolname = current_user"""
    ).fetchone()
    if dangerous:
        raise DangerousRole(
            f"The database role {name} owns the tables or passes row-level security. Set DATABASE_URL to a role like "
            "berth_app (made by `berth admin roles`) and keep the owner for DATABASE_OWNER_URL."
        )


class Work:
    """One transaction. Rooms get it as their first argument; who opened it commits it.

    `after_commit` collects what must happen only once everything is safely written: messages, never facts.
    """

    def __init__(self, connection: Connection, wall: datetime, product: Callable[[], datetime] | None = None) -> None:
        self.connection = connection
        self.pg: psycopg.Connection = connection.connection.driver_connection
        self.wall = wall
        self._product = product
        self.tenant_id: UUID | None = None
        self._transaction = connection.begin()
        self._session: Session | None = None
        self._after: list[Callable[[], None]] = []

    @property
    def session(self) -> Session:
        """A SQLModel session in this very transaction."""
        if self._session is None:
            self._session = Session(bind=self.connection, expire_on_commit=False)
        return self._session

    def act_for(self, tenant_id: UUID | None) -> None:
        """See and write this tenant's rows from here on, and nobody else's. None: no tenant's."""
        self.flush()
        self.pg.execute("SELECT set_config('app.tenant', %s, true)", [str(tenant_id or "")])
        self.tenant_id = tenant_id

    def identify(self, account_id: UUID | None) -> None:
        """Let a person see the list of his or her own memberships."""
        self.pg.execute("SELECT set_config('app.account', %s, true)", [str(account_id or "")])

    @contextmanager
    def read_all(self) -> Iterator[None]:
        """Read across tenants as the platform's people may; writing is impossible inside. The caller writes the audit row."""
        self.flush()
        self.pg.execute("SET LOCAL ROLE berth_reader")
        try:
            yield
        finally:
            if self.pg.info.transaction_status != psycopg.pq.TransactionStatus.INERROR:
                self.pg.execute("RESET ROLE")

    def product_now(self) -> datetime:
        """The product clock, in whole seconds. A statement of its own: call it after the locks are taken."""
        if self._product is not None:
            return self._product()
        return self.pg.execute(PRODUCT_NOW).fetchone()[0]

    def product_now_of(self, rows: list[tuple]) -> datetime:
        """The same, from the rows of PRODUCT_NOW."""
        return rows[0][0] if self._product is None else self._product()

    def together(self, *statements: tuple[str, Any]) -> list[list[tuple]]:
        """Several statements, in order, in one round trip; the rows of each. None may need another's answer."""
        self.flush()
        with self.pg.pipeline() as pipeline:
            cursors = [self.pg.execute(sql, values) for sql, values in statements]
            pipeline.sync()
            return [cursor.fetchall() if cursor.description else [] for cursor in cursors]

    def restart(self) -> None:
        """Drop everything written so far and every lock, and begin anew for the same tenant."""
        self._transaction.rollback()
        self._after.clear()
        if self._session is not None:
            self._session.close()
            self._session = None
        self._transaction = self.connection.begin()
        self.act_for(self.tenant_id)

    def keep(self) -> None:
        """Commit what was written so far, whatever becomes of the rest, and begin anew for the same tenant."""
        self.flush()
        self._transaction.commit()
        self.run_after_commit()
        self._transaction = self.connection.begin()
        self.act_for(self.tenant_id)

    def after_commit(self, action: Callable[[], None]) -> None:
        """Run `action` once the transaction is committed; it vanishes with a rollback."""
        self._after.append(action)

    def flush(self) -> None:
        """Write what the session still keeps to itself."""
        if self._session is not None:
            self._session.flush()

    def run_after_commit(self) -> None:
        """Called by whoever committed."""
        actions, self._after = self._after, []
        for action in actions:
            action()


class Database:
    """The engine of one process and the one way to open a transaction on it.

    `product` is for the one process that moves a stopped product clock and knows where it stands; all others ask the
    database.
    """

    def __init__(
        self, engine: Engine, wall: Callable[[], datetime], product: Callable[[], datetime] | None = None
    ) -> None:
        self.engine = engine
        self.wall = wall
        self.product = product

    @contextmanager
    def work(self, tenant_id: UUID | None = None) -> Iterator[Work]:
        """One transaction: committed when the block ends, rolled back when it raises.

        Messages collected by `after_commit` leave after the commit.
        """
        with self.engine.connect() as connection:
            work = Work(connection, self.wall(), self.product)
            try:
                if tenant_id is not None:
                    work.act_for(tenant_id)
                yield work
                work.flush()
                work._transaction.commit()
            except BaseException:
                work._transaction.rollback()
                raise
            finally:
                if work._session is not None:
                    work._session.close()
        work.run_after_commit()

    def close(self) -> None:
        """Give all connections back."""
        self.engine.dispose()
