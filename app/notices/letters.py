"""A notice as a plain mail: headers and words. Pure; knows no server.

The Message-ID comes from the notice, so that a mail that had to be sent again is the same mail to whoever sorts it.
"""

from __future__ import annotations

from datetime import datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import format_datetime
from urllib.parse import urlsplit

from app.notices.queries import Letter
from app.notices.wording import say


def compose(letter: Letter, sender: str, address: str, now: datetime, wall: datetime) -> EmailMessage:
    """The mail of a notice. `address` is how people reach the pages, `now` the product clock, `wall` when it is sent.

    Raises ValueError when the person's address is no address.
    """
    said = say(letter.kind, letter.payload, letter.zone, now)
    number = letter.payload.get("number")
    mail = EmailMessage()
    mail["Subject"] = _one_line(f"B-{number}: {said.title}" if number else said.title)
    mail["From"] = sender
    mail["To"] = _to(letter.person, letter.to)
    mail["Date"] = format_datetime(wall)
    mail["Message-ID"] = message_id(letter, address)
    mail["Auto-Submitted"] = "auto-generated"
    lines = [f"{said.title}."]
    if said.text:
        lines += ["", said.text]
    if said.href:
        lines += ["", f"{address}{said.href}"]
    lines += ["", f"All notices: {address}/notices", f"Times are those of {letter.zone}.", ""]
    mail.set_content("\n".join(lines), charset="utf-8", cte="quoted-printable")
    return mail


def message_id(letter: Letter, address: str) -> str:
    """The same for the same notice, always."""
    host = urlsplit(address).hostname or "localhost"
    return f"<notice.{letter.notice_id.hex}@{host}>"


def _to(person: str, address: str) -> Address:
    user, at, domain = address.rpartition("@")
    if not at or not user or not domain or any(c.isspace() or ord(c) < 32 for c in address):
        raise ValueError(f"{address!r} is no address to which mail can be sent")
    return Address(_one_line(person), user, domain)


def _one_line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
