"""Notices that become mail, over a real SMTP conversation: sent once, lost never."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from app import rounds
from app.notices import actions_mail
from app.notices.actions_mail import send_due
from app.plumbing import outbox
from app.settings import WrongSettings, load_settings
from tests.notices.conftest import sends_by
from tests.notices.server import MailServer
from tests.world import START, World


def tell(world: World, person: str = "physics-member", kind: str = "booking_active", key: str | None = None, **words):
    with world.work("physics") as work:
        outbox.tell(work, kind, START, world.people[person], None, key=key, **({"number": 7, "name": "Run"} | words))


def waiting(world: World) -> list[tuple[int, str | None]]:
    with world.work() as work:
        return work.pg.execute("SELECT tries, last_error FROM mail ORDER BY notice_id").fetchall()


def make_due(world: World) -> None:
    """As if the pause were over."""
    with world.work() as work:
        work.pg.execute("UPDATE mail SET next_at = %s", [work.wall - timedelta(seconds=1)])


def lapse_leases(world: World) -> None:
    """As if the worker that has the mail had died long ago."""
    with world.work() as work:
        work.pg.execute("UPDATE mail SET leased_until = %s WHERE lease_token IS NOT NULL", [work.wall])


def test_a_mail_says_what_happened_where_to_look_and_comes_from_the_installation(world: World, server) -> None:
    tell(world, kind="booking_ending", ends=(START + timedelta(minutes=30)).isoformat(), name="Glühwein «Lauf»")
    assert send_due(world.plumbing) == 1
    (mail,) = server.mails
    assert mail["From"] == "Berth <berth@physics.example>"
    assert mail["To"].addresses[0].addr_spec == "member@physics.example"
    assert mail["Subject"] == "B-7: “Glühwein «Lauf»” ends soon"
    assert mail["Auto-Submitted"] == "auto-generated"
    text = mail.get_content()
    assert "13:30" in text, "in the person's zone, one hour after UTC"
    assert "https://berth.physics.example/bookings/B-7" in text
    assert mail.get_content_type() == "text/plain"
    assert waiting(world) == []
    assert send_due(world.plumbing) == 0


def test_the_same_thing_is_told_once_and_mailed_once(world: World, server) -> None:
    for _ in range(3):
        tell(world, key="end:7")
    tell(world, "physics-lead", key="end:7")
    assert send_due(world.plumbing) == 2
    assert sorted(m["To"].addresses[0].username for m in server.mails) == ["lead", "member"]


def test_what_is_only_worth_a_line_in_the_page_is_no_mail(world: World, server) -> None:
    tell(world, kind="booking_ended")
    assert waiting(world) == []
    assert send_due(world.plumbing) == 0


def test_an_outage_loses_nothing(world: World, server) -> None:
    server.shut()
    for n in range(3):
        tell(world, number=n)
    assert send_due(world.plumbing) == 0
    assert [tries for tries, _ in waiting(world)] == [1, 1, 1]
    assert not any(h.name == "mail.send" for h in rounds.find_work(world.plumbing)), "nothing hammers a dead server"
    make_due(world)
    assert send_due(world.plumbing) == 0
    server.open(server.port)
    make_due(world)
    assert [h.name for h in rounds.find_work(world.plumbing)].count("mail.send") == 1
    rounds.do_all(world.plumbing)
    assert len({m["Message-ID"] for m in server.mails}) == len(server.mails) == 3
    assert waiting(world) == []


def test_a_server_that_hangs_up_in_the_middle_has_the_rest_sent_once_later(world: World, server) -> None:
    for n in range(1, 6):
        tell(world, number=n)
    taken: list[str] = []

    def after_two(step: str, words: str) -> str | None:
        if step == "TAKEN":
            taken.append(words)
        return "hang up" if step == "MAIL" and len(taken) == 2 else None

    server.answer = after_two
    assert send_due(world.plumbing) == 2
    assert len(waiting(world)) == 3
    server.answer = lambda _step, _words: None
    make_due(world)
    assert send_due(world.plumbing) == 3
    ids = [m["Message-ID"] for m in server.mails]
    assert len(ids) == len(set(ids)) == 5


def test_a_mail_that_had_to_be_sent_again_is_the_same_mail(world: World, server) -> None:
    """The server took it and its answer was lost: nobody can know. The same Message-ID tells the two apart for nobody."""
    tell(world)
    server.answer = lambda step, _words: "hang up" if step == "TAKEN" else None
    assert send_due(world.plumbing) == 0
    server.answer = lambda _step, _words: None
    make_due(world)
    assert send_due(world.plumbing) == 1
    first, second = server.mails
    assert first["Message-ID"] == second["Message-ID"]
    assert first["Message-ID"].endswith("@berth.physics.example>")


def test_a_worker_that_died_with_mail_in_hand_is_followed_by_another(world: World, server, monkeypatch) -> None:
    tell(world)

    def die(*_args: object) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(actions_mail, "_send_one", die)
        with pytest.raises(KeyboardInterrupt):
            send_due(world.plumbing)
    assert send_due(world.plumbing) == 0, "it is still somebody's"
    lapse_leases(world)
    assert send_due(world.plumbing) == 1
    assert len(server.mails) == 1


def test_an_address_that_is_refused_for_good_is_given_up_and_holds_up_nobody(world: World, server) -> None:
    tell(world, "physics-member", number=1)
    tell(world, "physics-lead", number=2)
    server.answer = lambda step, words: "550 no such user" if step == "RCPT" and "member" in words else None
    assert send_due(world.plumbing) == 1
    assert [m["Subject"][:3] for m in server.mails] == ["B-2"]
    assert waiting(world) == []
    with world.work("physics") as work:
        assert work.pg.execute("SELECT count(*) FROM outbox WHERE sent_at IS NULL").fetchone() == (1,)


def test_an_address_that_is_refused_for_now_is_tried_again(world: World, server) -> None:
    tell(world)
    server.answer = lambda step, _words: "451 try later" if step == "RCPT" else None
    assert send_due(world.plumbing) == 0
    ((tries, error),) = waiting(world)
    assert (tries, error) == (1, "451 try later")
    server.answer = lambda _step, _words: None
    make_due(world)
    assert send_due(world.plumbing) == 1


def test_nothing_in_a_name_becomes_a_header(world: World, server) -> None:
    tell(world, name="Run\r\nBcc: everybody@physics.example\r\n\r\nHello")
    assert send_due(world.plumbing) == 1
    (mail,) = server.mails
    assert mail["Bcc"] is None
    assert "Bcc: everybody" in mail["Subject"]


def test_who_has_no_address_or_is_shut_out_gets_none(world: World, server) -> None:
    with world.work("physics") as work:
        work.pg.execute("UPDATE accounts SET email = '' WHERE id = %s", [world.people["physics-member"]])
        work.pg.execute("UPDATE accounts SET disabled = true WHERE id = %s", [world.people["physics-lead"]])
    tell(world, "physics-member")
    tell(world, "physics-lead")
    assert send_due(world.plumbing) == 0
    assert waiting(world) == []


def test_without_a_server_notices_stay_in_the_page_and_nothing_piles_up(world: World, server) -> None:
    world.plumbing = replace(world.plumbing, settings=world.plumbing.settings.with_values(smtp_host=None))
    tell(world)
    assert send_due(world.plumbing) == 0
    assert not any(h.name == "mail.send" for h in rounds.find_work(world.plumbing))
    with world.work() as work:
        work.pg.execute("UPDATE mail SET next_at = %s", [work.wall - timedelta(hours=2)])
    rounds.tidy(world.plumbing)
    assert waiting(world) == []


def test_settings_that_cannot_work_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongSettings, match="BERTH_MAIL_FROM"):
        load_settings(data=tmp_path, smtp_host="mail.example")
    with pytest.raises(WrongSettings, match="BERTH_MAIL_FROM is an address"):
        load_settings(data=tmp_path, smtp_host="mail.example", mail_from="nobody")


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[ssl.SSLContext, Path]:
    """A server's context with a certificate for 127.0.0.1, and the file that vouches for it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    at = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(at - timedelta(days=1))
        .not_valid_after(at + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(True, None), True)
        .sign(key, hashes.SHA256())
    )
    file = tmp_path / "server.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    file.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context, trusted


def test_the_way_is_encrypted_and_signed_in_to(world: World, certificate, monkeypatch) -> None:
    context, trusted = certificate
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    server = MailServer(context, password="lange Nacht")
    try:
        sends_by(world, server, smtp_tls="starttls", smtp_user="berth", smtp_password="lange Nacht")
        tell(world)
        assert send_due(world.plumbing) == 1
        assert server.encrypted == [True]
        sends_by(world, server, smtp_tls="starttls", smtp_user="berth", smtp_password="falsch")
        tell(world)
        assert send_due(world.plumbing) == 0
        assert "535" in waiting(world)[0][1]
    finally:
        server.close()


def test_a_server_that_nobody_vouches_for_gets_nothing(world: World, certificate) -> None:
    context, _ = certificate
    server = MailServer(context)
    try:
        sends_by(world, server, smtp_tls="starttls")
        tell(world)
        assert send_due(world.plumbing) == 0
        assert server.mails == []
        assert "certificate" in waiting(world)[0][1].lower()
    finally:
        server.close()


def test_a_server_without_encryption_gets_nothing_where_it_is_asked_for(world: World, server) -> None:
    sends_by(world, server, smtp_tls="starttls")
    tell(world)
    assert send_due(world.plumbing) == 0
    assert server.mails == []


def test_ids_of_mail_are_the_notices_own(world: World, server) -> None:
    tell(world)
    send_due(world.plumbing)
    with world.work("physics") as work:
        (notice,) = work.pg.execute("SELECT id FROM outbox WHERE sent_at IS NOT NULL").fetchall()
    assert UUID(server.mails[0]["Message-ID"].split("@")[0].removeprefix("<notice.")) == notice[0]
