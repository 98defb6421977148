"""The databases that tests get are what they say they are."""

import psycopg
import pytest
import redis

from app.plumbing.db import DangerousRole, refuse_dangerous_role


@pytest.mark.parametrize("turn", [1, 2])
def test_each_test_has_an_empty_migrated_database(database, turn):
    with psycopg.connect(database.owner_url) as owner:
        assert owner.execute("SELECT to_regclass('left_behind')").fetchone() == (None,)
        owner.execute("CREATE TABLE left_behind ()")
    with psycopg.connect(database.app_url) as app:
        assert app.execute("SELECT current_user, movable FROM clock").fetchone() == ("berth_app", False)


def test_only_the_app_role_passes_the_look_at_rights(database):
    with psycopg.connect(database.app_url) as app:
        refuse_dangerous_role(app)
    for url in (database.owner_url, database.superuser_url):
        with psycopg.connect(url) as connection, pytest.raises(DangerousRole):
            refuse_dangerous_role(connection)


@pytest.mark.parametrize("turn", [1, 2])
def test_each_test_has_an_empty_valkey(valkey_url, turn):
    with redis.Redis.from_url(valkey_url) as client:
        assert client.dbsize() == 0
        client.set("left", "behind")
