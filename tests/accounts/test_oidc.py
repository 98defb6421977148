"""What is believed of a provider: whole ID tokens, signed by its private key, for this client and this very attempt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from joserfc.jwk import RSAKey

from app.accounts.groups import Identity
from app.accounts.oidc import Provider
from app.kernel.errors import Forbidden, Unavailable
from app.settings import Settings
from tests.accounts.provider import CLIENT, SECRET, FakeProvider
from tests.accounts.world import ADDRESS, World

NOW = datetime(2026, 12, 1, 9, 0, tzinfo=UTC)
STAMP = int(NOW.timestamp())


@pytest.fixture(scope="module")
def server() -> Iterator[FakeProvider]:
    """One server for the module; its keys take a moment to make."""
    made = FakeProvider()
    yield made
    made.stop()


@pytest.fixture
def fake(server: FakeProvider) -> FakeProvider:
    """The server, honest again."""
    server.published = [server.key]
    server.metadata, server.without, server.sign, server.token_extra = {}, set(), None, {}
    server.claims = {"iat": STAMP, "exp": STAMP + 300, "name": "Person One", "email": "one@example.test",
                     "email_verified": True}  # fmt: skip
    server.keys_asked = 0
    return server


def provider(fake: FakeProvider, ticks: Callable[[], float] | None = None, **words: Any) -> Provider:
    settings = Settings(environment="test", oidc_issuer=fake.issuer, oidc_client_id=CLIENT, oidc_client_secret=SECRET,
                        oidc_name="Company sign-in", **words)  # fmt: skip
    return Provider(settings, lambda: NOW, ticks or (lambda: 0.0))


def sign_in(fake: FakeProvider, known: Provider | None = None) -> Identity:
    client = known or provider(fake)
    attempt = client.begin()
    return client.finish(fake.authorize(attempt.url), attempt.kept)


def test_an_honest_answer_is_believed(fake: FakeProvider) -> None:
    found = sign_in(fake)
    assert (found.issuer, found.subject, found.name, found.email) == (
        fake.issuer, "person-1", "Person One", "one@example.test"
    )  # fmt: skip
    assert found.groups == ()


@pytest.mark.parametrize(
    ("lie", "code"),
    [
        ({"iss": "http://127.0.0.1:1/realm"}, "oidc_identity"),
        ({"aud": "another-client"}, "oidc_identity"),
        ({"aud": ["another-client", "a-third"], "azp": CLIENT}, "oidc_identity"),
        ({"aud": [CLIENT, "another-client"]}, "oidc_identity"),  # several, and nobody says for whom it was made
        ({"aud": [CLIENT, "another-client"], "azp": "another-client"}, "oidc_identity"),
        ({"azp": "another-client"}, "oidc_identity"),
        ({"exp": STAMP - 61}, "oidc_identity"),
        ({"iat": STAMP + 3600}, "oidc_identity"),
        ({"nbf": STAMP + 3600}, "oidc_identity"),
        ({"nonce": "another"}, "oidc_identity"),
        ({"nonce": None}, "oidc_identity"),
        ({"at_hash": "bm90IHRoZSBoYXNo"}, "oidc_identity"),
        ({"sub": ""}, "oidc_subject"),
        ({"sub": 17}, "oidc_identity"),
    ],
    ids=str,
)
def test_a_claim_that_does_not_fit_is_refused(fake: FakeProvider, lie: dict[str, Any], code: str) -> None:
    fake.claims |= lie
    with pytest.raises(Forbidden) as refused:
        sign_in(fake)
    assert refused.value.code == code


@pytest.mark.parametrize("claim", ["iss", "aud", "exp", "iat", "sub", "nonce"])
def test_a_claim_that_is_missing_is_refused(fake: FakeProvider, claim: str) -> None:
    fake.without = {claim}
    with pytest.raises(Forbidden):
        sign_in(fake)


def test_several_readers_are_fine_when_it_was_made_for_us(fake: FakeProvider) -> None:
    fake.claims |= {"aud": ["kubernetes", CLIENT], "azp": CLIENT}
    assert sign_in(fake).subject == "person-1"


def test_a_minute_between_the_clocks_is_fine(fake: FakeProvider) -> None:
    fake.claims |= {"iat": STAMP + 45, "exp": STAMP - 30}
    assert sign_in(fake).subject == "person-1"


@pytest.mark.parametrize(
    "how", ["unsigned", "by the client's secret", "by the public key as a secret", "by a stranger's key"]
)
def test_only_the_providers_private_key_signs(fake: FakeProvider, how: str) -> None:
    stranger = RSAKey.generate_key(2048, {"kid": fake.key.kid})
    fake.sign = {
        "unsigned": fake.unsigned,
        "by the client's secret": lambda claims: fake.by_secret(claims, SECRET),
        "by the public key as a secret": lambda claims: fake.by_secret(
            claims, fake.key.as_bytes(encoding="DER", private=False)
        ),
        "by a stranger's key": lambda claims: fake.by_key(claims, stranger),
    }[how]
    with pytest.raises(Forbidden) as refused:
        sign_in(fake)
    assert refused.value.code == "oidc_identity"


def test_a_new_key_is_fetched_and_not_at_every_token(fake: FakeProvider) -> None:
    seconds = [0.0]
    known = provider(fake, lambda: seconds[0])
    sign_in(fake, known)
    newer = RSAKey.generate_key(2048, {"kid": "newer", "use": "sig", "alg": "RS256"})
    fake.sign, fake.published = (lambda claims: fake.by_key(claims, newer)), [newer, fake.key]
    seconds[0] = 60.0
    assert sign_in(fake, known).subject == "person-1"
    assert fake.keys_asked == 2
    unknown = RSAKey.generate_key(2048, {"kid": "unknown"})
    fake.sign = lambda claims: fake.by_key(claims, unknown)
    for _ in range(5):  # whoever sends tokens of unknown keys does not make us ask each time
        with pytest.raises(Forbidden):
            sign_in(fake, known)
    assert fake.keys_asked == 2


def test_an_attempt_is_bound_to_its_browser_and_its_answer(fake: FakeProvider) -> None:
    known = provider(fake)
    one, other = known.begin(), known.begin()
    assert one.state != other.state
    for kept in (None, "", other.kept):
        with pytest.raises(Forbidden) as refused:
            known.finish(fake.authorize(one.url), kept)
        assert refused.value.code == "oidc_state"
    answer = fake.authorize(one.url)
    with pytest.raises(Forbidden):
        known.finish({**answer, "iss": "http://127.0.0.1:1"}, one.kept)
    with pytest.raises(Forbidden, match="access_denied"):
        known.finish({"state": one.state, "error": "access_denied<script>"}, one.kept)
    with pytest.raises(Forbidden, match="no code"):
        known.finish({"state": one.state}, one.kept)
    assert known.finish(answer, one.kept).subject == "person-1"
    with pytest.raises(Forbidden) as refused:  # a code is good once
        known.finish(answer, one.kept)
    assert refused.value.code == "oidc_code"


def test_the_code_of_another_attempt_does_not_fit_the_verifier(fake: FakeProvider) -> None:
    known = provider(fake)
    mine, stolen = known.begin(), known.begin()
    code = fake.authorize(stolen.url)["code"]
    with pytest.raises(Forbidden) as refused:
        known.finish({"code": code, "state": mine.state}, mine.kept)
    assert refused.value.code == "oidc_code"


def test_an_answer_without_an_identity_is_refused(fake: FakeProvider) -> None:
    fake.token_extra = {"id_token": None}
    with pytest.raises(Forbidden) as refused:
        sign_in(fake)
    assert refused.value.code == "oidc_no_id_token"


def test_metadata_of_another_issuer_are_refused(fake: FakeProvider) -> None:
    """As Dex's own documentation prints it: served below /realm, but naming the issuer without it."""
    fake.metadata = {"issuer": fake.issuer.removesuffix("/realm")}
    with pytest.raises(Unavailable) as refused:
        provider(fake).begin()
    assert refused.value.code == "provider_wrong"


def test_an_issuer_that_ends_in_a_slash_is_the_same(fake: FakeProvider) -> None:
    fake.metadata = {"issuer": fake.issuer + "/"}
    fake.claims |= {"iss": fake.issuer + "/"}
    known = provider(fake)
    attempt = known.begin()
    answer = fake.authorize(attempt.url)
    del answer["iss"]
    assert known.finish(answer, attempt.kept).issuer == fake.issuer + "/"


def test_a_provider_that_is_away_is_a_sentence(fake: FakeProvider) -> None:
    settings = Settings(environment="test", oidc_issuer="http://127.0.0.1:1/realm", oidc_client_id=CLIENT,
                        oidc_name="Company sign-in")  # fmt: skip
    away = Provider(settings, lambda: NOW)
    with pytest.raises(Unavailable, match="Company sign-in cannot be reached"):
        away.begin()
    assert away.sign_out_address("x") is None


def test_signing_out_there_is_offered_where_it_exists(fake: FakeProvider) -> None:
    assert provider(fake).sign_out_address("token") is None
    fake.metadata = {"end_session_endpoint": f"{fake.issuer}/logout"}
    address = provider(fake).sign_out_address("token")
    assert address.startswith(f"{fake.issuer}/logout?")
    assert "id_token_hint=token" in address


@pytest.mark.parametrize(
    ("claims", "name"),
    [({"name": "A"}, "A"), ({"name": " ", "preferred_username": "b"}, "b"), ({"name": None, "email": "c@d"}, "c@d"),
     ({"name": None, "email": None}, "person-1"), ({"name": "x" * 500}, "x" * 120)],
)  # fmt: skip
def test_somebody_always_has_a_name(fake: FakeProvider, claims: dict[str, Any], name: str) -> None:
    fake.claims |= claims
    assert sign_in(fake).name == name


@pytest.mark.parametrize(
    ("verified", "email"),
    [(True, "one@example.test"), ("true", "one@example.test"), (False, ""), (None, ""), ("false", ""), (1, "")],
)
def test_an_address_counts_only_when_it_is_the_persons_own(fake: FakeProvider, verified: Any, email: str) -> None:
    """Where people type any address, anybody could be anybody: user names on clusters are made of it."""
    fake.claims |= {"email_verified": verified}
    if verified is None:
        fake.without = {"email_verified"}
    assert sign_in(fake).email == email
    assert sign_in(fake, provider(fake, oidc_trusts_email=True)).email == "one@example.test"


def test_the_user_name_on_clusters_comes_from_the_claim_that_the_settings_name(fake: FakeProvider) -> None:
    fake.claims |= {"posix": {"uid": "pone"}, "preferred_username": "person.one"}
    assert sign_in(fake).cluster_user is None
    assert sign_in(fake, provider(fake, oidc_cluster_user_claim="posix.uid")).cluster_user == "pone"


def test_groups_come_from_the_claim_that_the_settings_name(fake: FakeProvider) -> None:
    fake.claims |= {"realm_access": {"roles": ["a", "b"]}, "groups": ["c"]}
    known = provider(fake, oidc_groups_claim="realm_access.roles")
    assert sign_in(fake, known).groups == ("a", "b")


def test_the_way_begins_where_it_ends(fake: FakeProvider, database, valkey_url) -> None:
    """On a machine of one's own, localhost and 127.0.0.1 are two places for cookies."""
    world = World(database, valkey_url, people=False, oidc_issuer=fake.issuer, oidc_client_id=CLIENT)
    try:
        browser = world.browser()
        elsewhere = browser.get("http://localhost:8000/oidc/start", params={"next": "/me"})
        assert elsewhere.headers["location"] == f"{ADDRESS}/oidc/start?next=%2Fme"
        assert browser.get("/oidc/start").headers["location"].startswith(f"{fake.issuer}/auth?")
    finally:
        world.close()


def test_a_provider_that_is_away_leaves_the_form(database, valkey_url) -> None:
    world = World(database, valkey_url, people=False, oidc_issuer="http://127.0.0.1:1/realm", oidc_client_id=CLIENT,
                  oidc_name="Company sign-in")  # fmt: skip
    try:
        page = world.browser().get("/oidc/start")
        assert page.status_code == 503
        assert "Company sign-in cannot be reached" in page.text
        assert 'name="password"' in page.text
    finally:
        world.close()
