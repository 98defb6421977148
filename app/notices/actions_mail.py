"""Sends notices as mail: claim, send with no transaction open, say what became of it.

At least once, and as seldom twice as SMTP allows: a row is taken under a lease, and what the server took is marked at
once. A server that is away loses nothing: everything waits, ever longer, for some days.
"""

from __future__ import annotations

import smtplib
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

from app.notices import queries
from app.notices.letters import compose
from app.notices.queries import Claimed, Letter
from app.plumbing.log import get_log
from app.plumbing.runtime import Plumbing
from app.settings import Settings

log = get_log("mail")

MOST = 50
"""How many are sent over one connection."""
LEASE = timedelta(minutes=10)
"""Longer than so many mails can take."""
FIRST, LONGEST = timedelta(minutes=1), timedelta(hours=1)
TRIES = 130
"""With pauses up to an hour that is five days; then the notice stands in the page alone."""
_TIMEOUT = 15.0


def send_due(plumbing: Plumbing) -> int:
    """Send what is due, over one connection; answers how many mails the server took. Nothing where none is configured."""
    settings = plumbing.settings
    if settings.smtp_host is None:
        return 0
    with plumbing.database.work() as work:
        claimed = queries.claim(work, MOST, LEASE)
    if not claimed:
        return 0
    done: set[Claimed] = set()
    taken = 0
    try:
        with _connection(settings) as server:
            for one in claimed:
                taken += _send_one(plumbing, server, one)
                done.add(one)
    except (OSError, smtplib.SMTPException) as error:
        _server_away(plumbing, [c for c in claimed if c not in done], error)
    return taken


def _send_one(plumbing: Plumbing, server: smtplib.SMTP, one: Claimed) -> int:
    """Send one mail. Raises what the connection raises when it is of no more use; then nothing was said of this one."""
    with plumbing.database.work(one.tenant_id) as work:
        letter = queries.letter_of(work, one.notice_id)
        now = work.product_now()
        if letter is None or letter.sent_at is not None or not letter.to:
            queries.forget(work, one)
            return 0
    settings = plumbing.settings
    try:
        mail = compose(letter, str(settings.mail_from), settings.address, now, plumbing.wall())
        server.send_message(mail)
    except ValueError as error:
        return _give_up(plumbing, one, letter, str(error))
    except smtplib.SMTPRecipientsRefused as error:
        code, said = next(iter(error.recipients.values()))
        return _refused(plumbing, one, letter, code, said)
    except smtplib.SMTPResponseException as error:
        if error.smtp_code == 421 or not 400 <= error.smtp_code < 600:
            raise  # the server closes the connection
        return _refused(plumbing, one, letter, error.smtp_code, error.smtp_error)
    with plumbing.database.work(one.tenant_id) as work:
        queries.sent(work, one)
    return 1


def _refused(plumbing: Plumbing, one: Claimed, letter: Letter, code: int, said: bytes | str) -> int:
    words = f"{code} {said.decode(errors='replace') if isinstance(said, bytes) else said}"
    if code >= 500 or one.tries + 1 >= TRIES:
        return _give_up(plumbing, one, letter, words)
    with plumbing.database.work() as work:
        queries.put_off(work, [one], work.wall + _pause(one.tries), words)
    return 0


def _give_up(plumbing: Plumbing, one: Claimed, letter: Letter, why: str) -> int:
    log.warning("a mail cannot be delivered; the notice stands in the page", kind=letter.kind, why=why)
    with plumbing.database.work() as work:
        queries.forget(work, one)
    return 0


def _server_away(plumbing: Plumbing, claimed: Sequence[Claimed], error: Exception) -> None:
    """Nothing is lost: what was taken is tried again later, and so is all that waits."""
    log.warning("the mail server does not answer", waiting=len(claimed), error=str(error) or type(error).__name__)
    with plumbing.database.work() as work:
        for one in claimed:
            pause = _pause(one.tries)
            queries.put_off(work, [one], work.wall + pause, str(error) or type(error).__name__)
        queries.put_all_off(work, work.wall + FIRST)


def _pause(tries: int) -> timedelta:
    return min(FIRST * 2 ** min(tries, 10), LONGEST)


@contextmanager
def _connection(settings: Settings) -> Iterator[smtplib.SMTP]:
    """A session with the server, as encrypted as is set. Raises OSError or SMTPException."""
    host, port = str(settings.smtp_host), settings.smtp_port
    if settings.smtp_tls == "tls":
        server: smtplib.SMTP = smtplib.SMTP_SSL(host, port, timeout=_TIMEOUT, context=ssl.create_default_context())
    else:
        server = smtplib.SMTP(host, port, timeout=_TIMEOUT)
    with server:
        if settings.smtp_tls == "starttls":
            server.starttls(context=ssl.create_default_context())
        if settings.smtp_user is not None:
            password = settings.smtp_password.get_secret_value() if settings.smtp_password else ""
            server.login(settings.smtp_user, password)
        yield server
