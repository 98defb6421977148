"""The three database roles and the database, made by an administrator once and as often as one likes.

`berth_owner` owns the tables and runs migrations; `berth_app` is what web and workers are; `berth_reader` is entered by
`SET LOCAL ROLE` to read across tenants and is not inherited, or else everybody would read everything at all times.
Knows nothing of the tables.
"""

from __future__ import annotations

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

OWNER, APP, READER = "berth_owner", "berth_app", "berth_reader"


def ensure_roles(superuser_url: str, *, owner_url: str, app_url: str) -> None:
    """Make roles and database where they are missing, and set right what is there.

    `superuser_url` may name any database of the server. The other two are what DATABASE_OWNER_URL and DATABASE_URL will
    be: their database is made, their passwords (if any) are set. Raises ValueError when they name other roles.
    """
    owner, app = conninfo_to_dict(owner_url), conninfo_to_dict(app_url)
    for parts, role, name in ((owner, OWNER, "DATABASE_OWNER_URL"), (app, APP, "DATABASE_URL")):
        if parts.get("user") != role:
            raise ValueError(f"{name} has to name the role {role}, not {parts.get('user')}")
    if not owner.get("dbname") or owner.get("dbname") != app.get("dbname"):
        raise ValueError("DATABASE_OWNER_URL and DATABASE_URL have to name one database")
    with psycopg.connect(superuser_url, autocommit=True) as connection:
        _ensure_login(connection, OWNER, owner.get("password"))
        _ensure_login(connection, APP, app.get("password"))
        if not _there(connection, "SELECT FROM pg_roles WHERE rolname = %s", READER):
            connection.execute(sql.SQL("CREATE ROLE {}").format(sql.Identifier(READER)))
        connection.execute(sql.SQL("ALTER ROLE {} NOLOGIN NOBYPASSRLS").format(sql.Identifier(READER)))
        connection.execute(
            sql.SQL("GRANT {} TO {} WITH INHERIT FALSE, SET TRUE").format(sql.Identifier(READER), sql.Identifier(APP))
        )
        database = sql.Identifier(str(owner["dbname"]))
        if not _there(connection, "SELECT FROM pg_database WHERE datname = %s", str(owner["dbname"])):
            # a managed server's administrator is often no superuser and has to be a member of a role to give to it
            connection.execute(sql.SQL("GRANT {} TO CURRENT_USER").format(sql.Identifier(OWNER)))
            connection.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(database, sql.Identifier(OWNER)))
        connection.execute(sql.SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC").format(database))
        connection.execute(
            sql.SQL("GRANT CONNECT, TEMPORARY ON DATABASE {} TO {}").format(database, sql.Identifier(APP))
        )


def url_of(superuser_url: str, *, user: str, database: str) -> str:
    """The address of another role and database on the same server, without a password."""
    parts = conninfo_to_dict(superuser_url)
    parts.pop("password", None)
    parts.update(user=user, dbname=database)
    return as_url(make_conninfo(**parts))


def as_url(conninfo: str) -> str:
    """A connection string in the form that every library understands."""
    from urllib.parse import quote

    parts = {name: str(value) for name, value in conninfo_to_dict(conninfo).items() if value is not None}
    user, password = quote(parts.get("user", ""), safe=""), parts.get("password")
    login = user + (f":{quote(password, safe='')}" if password else "")
    host, port, database = parts.get("host", ""), parts.get("port"), quote(parts.get("dbname", ""), safe="")
    if host.startswith("/"):
        return f"postgresql://{login}@/{database}?host={quote(host, safe='/')}" + (f"&port={port}" if port else "")
    return f"postgresql://{login}@{host}" + (f":{port}" if port else "") + f"/{database}"


def _ensure_login(connection: psycopg.Connection, role: str, password: str | None) -> None:
    name = sql.Identifier(role)
    if not _there(connection, "SELECT FROM pg_roles WHERE rolname = %s", role):
        connection.execute(sql.SQL("CREATE ROLE {}").format(name))
    connection.execute(sql.SQL("ALTER ROLE {} LOGIN NOCREATEDB NOCREATEROLE").format(name))
    dangerous = "SELECT FROM pg_roles WHERE rolname = %s AND (rolsuper OR rolbypassrls)"
    if _there(connection, dangerous, role):
        connection.execute(sql.SQL("ALTER ROLE {} NOSUPERUSER NOBYPASSRLS").format(name))
    if password:
        # hashed here: the server may log the statement
        hashed = connection.pgconn.encrypt_password(password.encode(), role.encode(), b"scram-sha-256").decode()
        connection.execute(sql.SQL("ALTER ROLE {} PASSWORD {}").format(name, sql.Literal(hashed)))


def _there(connection: psycopg.Connection, query: str, name: str) -> bool:
    return connection.execute(query, [name]).fetchone() is not None
