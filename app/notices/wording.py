"""What a notice says, in a sentence or two, for the page and for mail alike. Pure; knows kinds and their words.

A notice is a kind and a payload, written by the room in which it happened. A kind that is not known here is said by its
name: nothing is ever swallowed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from app.web import words

Payload = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Said:
    """A notice in words. `title` is a phrase, `text` whole sentences or nothing; `href` the page that it is about."""

    title: str
    text: str
    icon: str
    href: str | None


@dataclass(frozen=True, slots=True)
class _Kind:
    """`phrase` has {name} and other words of the payload; `text` makes the sentences."""

    phrase: str
    icon: str = "info-circle"
    text: Callable[[Payload, _Reader], str] | None = None


@dataclass(frozen=True, slots=True)
class _Reader:
    """For whom it is said: instants are in the reader's zone."""

    zone: str
    now: datetime

    def at(self, value: Any) -> str:
        return words.moment(datetime.fromisoformat(str(value)), self.zone, self.now)


def say(kind: str, payload: Payload, zone: str, now: datetime) -> Said:
    """The notice for a reader in this zone, at this moment."""
    known = _KINDS.get(kind) or _Kind("{name}: " + kind.replace("_", " ").removeprefix("booking "))
    reader = _Reader(zone, now)
    names = {"name": f"“{payload.get('name') or 'A booking'}”", "by": payload.get("by") or "Somebody"}
    more = {k: v for k, v in payload.items() if k not in names}
    title = words.first_upper(known.phrase.format_map(_Words(more | names)))
    text = known.text(payload, reader) if known.text else ""
    parts = [text or sentence(str(payload.get("why") or ""))]
    if payload.get("by") and "{by}" not in known.phrase:
        parts.append(f"{payload['by']} did that.")
    number = payload.get("number")
    href = f"/bookings/B-{number}" if number else payload.get("href")
    return Said(title, " ".join(p for p in parts if p), known.icon, href if str(href or "").startswith("/") else None)


class _Words(dict):  # a payload of an older release may lack a word
    def __missing__(self, key: str) -> str:
        return "…"


def sentence(text: str) -> str:
    """The text with an end."""
    return text if not text or text.endswith((".", "!", "?")) else f"{text}."


# --- texts ------------------------------------------------------------------------------------------------------------


def _money(p: Payload, name: str) -> str | None:
    try:
        amount = Decimal(str(p[name]))
    except (KeyError, InvalidOperation):
        return None
    return words.money(amount, str(p.get("currency", ""))) if amount else None


def _quiet(first: str) -> Callable[[Payload, _Reader], str]:
    def text(p: Payload, reader: _Reader) -> str:
        parts = [first.format(since=reader.at(p["since"])) if "since" in p else ""]
        if p.get("release_at"):
            parts.append(f"It is released {reader.at(p['release_at'])} unless that changes.")
        refund = _money(p, "refund")
        if refund:
            parts.append(f"Release it now and {refund} is not charged.")
        return " ".join(part for part in parts if part)

    return text


def _ends(p: Payload, reader: _Reader) -> str:
    when = f"It ends {reader.at(p['ends'])}. " if "ends" in p else ""
    return f"{when}What runs in it is stopped then: save what has to be kept, or extend it."


def _no_show(p: Payload, _reader: _Reader) -> str:
    fee = _money(p, "fee")
    charged = "Only the time until then is charged."
    return f"{charged[:-1]}, and a fee of {fee}." if fee else charged


def _because(then: str) -> Callable[[Payload, _Reader], str]:
    def text(p: Payload, _reader: _Reader) -> str:
        return " ".join(part for part in (sentence(str(p.get("why") or "")), then) if part)

    return text


def _replaced(p: Payload, _reader: _Reader) -> str:
    moved = sentence(str(p.get("why") or ""))
    rest = "What runs on its other nodes ran on." if p.get("active") == "True" else "Time and price stay as they were."
    return f"{moved} {rest}".strip()


def _until(lead: str) -> Callable[[Payload, _Reader], str]:
    def text(p: Payload, reader: _Reader) -> str:
        until = p.get("until") or p.get("expires_at")
        return f"{lead} {reader.at(until)}." if until else sentence(str(p.get("why") or ""))

    return text


def _starts(p: Payload, reader: _Reader) -> str:
    return f"It starts {reader.at(p['start'])}." if "start" in p else ""


def _at_operators(p: Payload, _reader: _Reader) -> str:
    return f"{p.get('nodes', 'Some nodes')}: {p.get('bookings', '')}. There are no other units for them now."


def _extended(p: Payload, reader: _Reader) -> str:
    return f"It now ends {reader.at(p['end'])}." if "end" in p else ""


def _shortened(p: Payload, reader: _Reader) -> str:
    return " ".join(part for part in (_extended(p, reader), sentence(str(p.get("why") or ""))) if part)


def _replanned(p: Payload, _reader: _Reader) -> str:
    parts = [sentence(str(p.get("why") or "")), f"It is planned on {p['nodes']} now." if p.get("nodes") else ""]
    return " ".join([*(part for part in parts if part), "Time and price stay as they were."])


_ALERT, _CLOCK = "alert-triangle", "clock"
_KINDS: dict[str, _Kind] = {
    "booking_active": _Kind("{name} is active", "player-play"),
    "booking_ended": _Kind("{name} has ended", "check"),
    "booking_ending": _Kind("{name} ends soon", _CLOCK, _ends),
    "booking_ends_now": _Kind("{name} ends in a few minutes", _CLOCK, _ends),
    "booking_unused": _Kind("nobody uses {name}", "zzz", _quiet("Nothing has used it since {since}.")),
    "booking_idle": _Kind("{name} is idle", "zzz", _quiet("Its units have computed nothing since {since}.")),
    "booking_no_show": _Kind("{name} was released: nobody used it", "ban", _no_show),
    "booking_released_idle": _Kind("{name} was released: it was idle", "ban", _no_show),
    "booking_degraded": _Kind("{name} has lost units", _ALERT, _because("Their time is taken back on the bill.")),
    "booking_late": _Kind("{name} is late", _CLOCK, _because("Time before it is in place is not charged.")),
    "booking_blocked": _Kind("{name} cannot start", _ALERT, _because("Time before it is in place is not charged.")),
    "booking_not_provided": _Kind("{name} was not provided", "ban", _because("Nothing is charged.")),
    "booking_at_risk": _Kind("{name} is at risk", _ALERT, _because("Other units are looked for until it starts.")),
    "booking_replaced": _Kind("{name} has other units", "arrows-exchange", _replaced),
    "booking_extended": _Kind("{by} extended {name}", _CLOCK, _extended),
    "booking_shrunk": _Kind("{by} made {name} smaller", "info-circle"),
    "booking_replanned": _Kind("{name} is planned on other units", "arrows-exchange", _replanned),
    "booking_shortened": _Kind("{by} made {name} end earlier", _CLOCK, _shortened),
    "booking_runs_on": _Kind("the project of {name} has ended", _CLOCK, _because("The booking runs to its end.")),
    "booking_moved": _Kind("{name} was moved", "arrows-exchange"),
    "booking_cancelled": _Kind("{by} cancelled {name}", "ban"),
    "booking_released": _Kind("{by} released {name}", "check"),
    "booking_displaced": _Kind("{by} took the units of {name}", _ALERT, _because("Nothing more is charged for it.")),
    "booking_shared": _Kind("{by} shared {name} with the project", "users"),
    "booking_unshared": _Kind("{by} no longer shares {name}", "users"),
    "booking_handed_over": _Kind("{by} handed {name} over to {to}", "users"),
    "booking_handed_to_you": _Kind("{name} is yours now", "users"),
    "approval_asked": _Kind("{by} asks for {name}", "user-question", _until("Answer it until")),
    "request_granted": _Kind("{name} was approved", "check"),
    "request_approved": _Kind("{name} was approved", "check"),
    "request_rejected": _Kind("{name} was refused", "ban"),
    "request_lapsed": _Kind("nobody answered for {name} in time", _CLOCK),
    "offer_made": _Kind("units are offered for {name}", "gift", _until("They are held for you until")),
    "offer_lapsed": _Kind("the offer for {name} is over", _CLOCK),
    "wait_booked": _Kind("{name} waited and is booked", "check", _starts),
    "wait_limited": _Kind("{name} fits, but a limit stands in the way", _ALERT),
    "wait_lapsed": _Kind("{name} waits no longer", _CLOCK),
    "wait_place": _Kind("{name} is number {place} of {of} on the waiting list", "list"),
    "units_at_risk": _Kind("{count} bookings on {cluster} are at risk", _ALERT, _at_operators),
}
