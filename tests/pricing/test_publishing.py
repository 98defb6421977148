"""Price books on the real database: published by finance, never changed, read in one statement."""

from __future__ import annotations

from decimal import Decimal

import psycopg
import pytest

from app.kernel.actor import Actor
from app.kernel.errors import Conflict, Forbidden, Invalid
from app.kernel.window import Window
from app.pricing import actions, queries
from app.pricing.rules import schedule
from tests.billing.world import NOW, World, hours

NINA = Actor(None, "Nina F.", platform_roles=frozenset({"finance"}))


def publish(world: World, effective, prices, actor=NINA, group="internal", currency="CHF"):
    with world.db.work() as work:
        return actions.publish_version(work, actor, group, currency, effective, prices, "yearly")


def test_a_published_version_counts_from_its_instant(world):
    version = publish(world, hours(3.5), {"h100": Decimal("2.50"), "h200": Decimal("3.1")})
    with world.work() as work:
        prices = queries.price_list(work, "internal", "CHF", ["h100"], NOW)
        assert [s.per_hour for s in schedule(prices, "h100", Window(NOW, hours(6)), NOW)] == [2, Decimal("2.5")]
        assert queries.price_list(work, "internal", "EUR", ["h100"], NOW) == ()
        assert len(queries.price_list(work, "internal", "CHF", ["h100", "h200"], NOW)) == 3
        newest = queries.versions(work, "internal", "CHF")[0]
        assert (newest.id, newest.prices, newest.published_by) == (
            version,
            {"h100": Decimal("2.50"), "h200": Decimal("3.1")},
            "Nina F.",
        )
        assert queries.price_books(work) == (("internal", "CHF"),)
    assert world.rows("SELECT action, actor, after->'prices'->>'h100' FROM platform_audit") == [
        ("publish prices", "Nina F.", "2.50")
    ]


def test_what_was_not_published_yet_is_not_known(world):
    world.move_to(hours(1))
    publish(world, hours(2), {"h100": Decimal("9")})
    with world.work() as work:
        assert len(queries.price_list(work, "internal", "CHF", ["h100"], hours(0.9))) == 1
        assert len(queries.price_list(work, "internal", "CHF", ["h100"], hours(1))) == 2


def test_the_past_is_refused_and_now_is_not(world):
    with pytest.raises(Invalid) as refused:
        publish(world, hours(-0.001), {"h100": Decimal("-1"), "x": Decimal("1.1234567")})
    codes = {r.code for r in refused.value.reasons}
    assert codes == {"effective_in_past", "price_out_of_range", "unknown_kind", "price_too_fine"}
    publish(world, NOW, {"h100": Decimal("3")})


def test_only_the_platforms_finance_publishes(world):
    for roles in ({"operator"}, {"auditor"}, set()):
        with pytest.raises(Forbidden):
            publish(world, NOW, {"h100": Decimal("3")}, Actor(None, "X", platform_roles=frozenset(roles)))
    with pytest.raises(Forbidden):
        publish(world, NOW, {"h100": Decimal("3")}, Actor(None, "X", tenant_roles=frozenset({"finance"})))
    assert world.rows("SELECT count(*) FROM price_versions") == [(1,)]


def test_sent_twice_is_one_version_and_other_prices_in_that_second_are_told(world):
    first = publish(world, hours(1), {"h100": Decimal("3")})
    assert publish(world, hours(1), {"h100": Decimal("3.00")}) == first
    with pytest.raises(Conflict):
        publish(world, hours(1), {"h100": Decimal("4")})
    assert world.rows("SELECT count(*) FROM price_versions") == [(2,)]


def test_books_in_use_are_in_the_order_of_how_many_pay_by_them(world):
    world.add_tenant("bio", "Bio Lab")
    for slug, group in (("a", "academic"), ("b", "zoo"), ("c", "zoo"), ("d", "zoo")):
        tenant, _ = world.add_tenant(slug, slug.upper())
        world.owner.execute("UPDATE tenants SET price_group = %s WHERE tenant_id = %s", [group, tenant])
    with world.db.work() as work:
        assert queries.books_in_use(work) == ()  # whoever reads across tenants says so
        with work.read_all():
            assert queries.books_in_use(work) == (("zoo", "CHF"), ("internal", "CHF"), ("academic", "CHF"))


def test_a_published_price_cannot_be_changed_by_the_app(world):
    for sql in ("UPDATE prices SET per_hour = 1", "DELETE FROM prices", "UPDATE price_versions SET note = ''"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege), world.work() as work:
            work.pg.execute(sql)
