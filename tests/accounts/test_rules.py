"""Names, lock-out, and what groups give: pure rules."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.accounts import rules
from app.accounts.rules import Grant
from app.accounts.secrets import TOKEN_PREFIX, digest, new_token_secret
from app.kernel.errors import Invalid

NOW = datetime(2026, 12, 1, 9, 0, tzinfo=UTC)
ADMIN = Grant("admin", "acme")


@pytest.mark.parametrize(
    ("claims", "path", "groups"),
    [
        # the forms of well-known providers
        ({"groups": ["/lab", "/lab/vision", "/admins/gpu admins"]}, "groups", ("/lab", "/lab/vision", "/admins/gpu admins")),
        ({"realm_access": {"roles": ["offline_access", "portal-admin"]}}, "realm_access.roles",
         ("offline_access", "portal-admin")),
        ({"resource_access": {"portal": {"roles": ["booker"]}}}, "resource_access.portal.roles", ("booker",)),
        ({"groups": ["Everyone", "gpu-users"]}, "groups", ("Everyone", "gpu-users")),
        ({"https://example.org/groups": ["a"]}, "https://example.org/groups", ("a",)),  # a name with dots in it
        ({"hd": "example.org"}, "hd", ("example.org",)),  # one text alone
        # none
        ({}, "groups", ()),
        ({"groups": None}, "groups", ()),
        ({"groups": []}, "groups", ()),
        ({"groups": {"a": 1}}, "groups", ()),
        ({"groups": 7}, "groups", ()),
        ({"groups": ["a", 7, None, ["b"]]}, "groups", ("a",)),
        ({"realm_access": ["x"]}, "realm_access.roles", ()),
        ({"realm_access": None}, "realm_access.roles", ()),
    ],
)  # fmt: skip
def test_groups_are_found_in_every_form(claims: dict[str, Any], path: str, groups: tuple[str, ...]) -> None:
    assert rules.groups_in(claims, path) == groups


def test_groups_give_what_the_map_says_and_nothing_else() -> None:
    plain = {"/a/admins": "acme:admin", "/a/x": ["acme/plasma:lead", "acme/vision:viewer"], "ops": "platform:operator"}
    known = rules.read_group_map(plain)
    assert rules.grants_of(["/a/admins", "/a/x"], known) == {
        ADMIN, Grant("lead", "acme", "plasma"), Grant("viewer", "acme", "vision")
    }  # fmt: skip
    assert rules.grants_of(["ops"], known) == {Grant("operator")}
    assert rules.grants_of(["Everyone", "/A/ADMINS", "/a", "admins", ""], known) == frozenset()


@pytest.mark.parametrize(
    "value",
    ["acme", "acme:king", "acme/plasma:admin", "acme:lead", "platform:lead", "platform/x:king", ":admin", "acme/:lead",
     "Acme:admin", "a/b/c:lead", "", 7, None, {"acme": "admin"}, ["acme:admin", "nonsense"]],
)  # fmt: skip
def test_a_map_that_makes_no_sense_is_refused_with_its_group(value: Any) -> None:
    with pytest.raises(ValueError, match="the-group"):
        rules.read_group_map({"the-group": value})


@pytest.mark.parametrize("slug", ["", "-a", "A", "a b", "ä", "a" * 64, "platform", "all", "a/b", "a\n"])
def test_short_names(slug: str) -> None:
    assert rules.wrong_slug(slug) is not None
    assert rules.wrong_slug("a-1") is None


@pytest.mark.parametrize("name", ["", "  ", "x" * 121, "a\nb", "a\x00b", "‮abc"])
def test_names_are_read_by_people(name: str) -> None:
    assert rules.wrong_name(name) is not None


def test_every_reason_is_said_at_once() -> None:
    with pytest.raises(Invalid) as refused:
        rules.refuse_wrong(rules.wrong_slug("A"), None, rules.wrong_zone("Mars/Base"), rules.wrong_currency("franc"))
    assert [r.field for r in refused.value.reasons] == ["slug", "zone", "currency"]
    rules.refuse_wrong(None, None)


@given(st.lists(st.integers(0, 3600), max_size=40), st.integers(1, 12))
def test_the_door_is_shut_after_so_many_within_the_window(ages: list[int], most: int) -> None:
    tries = [NOW - timedelta(seconds=age) for age in ages]
    shut = rules.locked_until(tries, NOW, most)
    recent = [t for t in tries if NOW - t < rules.TRY_WINDOW]
    assert (shut is not None) == (len(recent) >= most)
    if shut is not None:
        assert NOW < shut <= NOW + rules.TRY_WINDOW
        assert rules.locked_until(tries, shut, most) is None  # and it does open then


def test_token_secrets_are_random_recognisable_and_kept_as_hashes() -> None:
    secrets = {new_token_secret() for _ in range(100)}
    assert len(secrets) == 100
    assert all(s.startswith(TOKEN_PREFIX) and len(s) >= 53 for s in secrets)
    assert len(digest(secrets.pop())) == 32
