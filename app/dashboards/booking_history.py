"""A booking's history in words: what happened, when, by whom, and what it meant for money. Newest first."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from app.bookings.facts import Booking, ConditionLine, HistoryLine
from app.bookings.lifecycle import EVENTS, Event
from app.web import words
from app.web.views.parts import Step

OUTCOMES = {
    "completed": "ended as booked",
    "released": "released early",
    "cancelled": "cancelled",
    "no_show": "not used, released by Berth",
    "failed": "failed",
    "not_provided": "not provided, nothing charged",
}
CONDITIONS = {"at_risk": "At risk", "late": "Late", "degraded": "Degraded", "blocked": "Blocked", "idle": "Idle"}


def steps(
    booking: Booking, lines: Iterable[HistoryLine], conditions: Iterable[ConditionLine], zone: str, now: datetime
) -> tuple[Step, ...]:
    """Events and conditions, the newest first."""
    lines = tuple(lines)
    first = next((line.changes["quoted"][0] for line in lines if line.changes and "quoted" in line.changes), None)
    promised = f"{booking.currency} {first}" if first else words.money(booking.quoted, booking.currency)
    found = [_step(booking, line, promised, zone, now) for line in lines]
    for it in conditions:
        over = "" if it.until is None else f" Over since {words.moment(it.until, zone, now)}."
        state = "bad" if it.type in ("degraded", "blocked") else "warn"
        found.append(Step(state, CONDITIONS.get(it.type, it.type), f"{_sentence(it.why)}{over}".strip(), it.since,
                          icon="alert-triangle"))  # fmt: skip
    if booking.first_used_at is not None:
        found.append(Step("none", "First used", "A workload took units.", booking.first_used_at, icon="cpu"))
    order = sorted(enumerate(found), key=lambda pair: (pair[1].at or now, pair[0]), reverse=True)
    return tuple(step for _, step in order)


def _step(booking: Booking, line: HistoryLine, promised: str, zone: str, now: datetime) -> Step:
    at = line.at
    if line.changes and "at" in line.changes and line.event in ("provide", "end", "emptied", "release", "give_up"):
        at = datetime.fromisoformat(line.changes["at"])
    why = _sentence(line.why)
    match line.event:
        case "book":
            return Step(
                "ok", f"Booked by {line.actor}", f"Price promised: {promised}. {why}".strip(), at, icon="calendar-check"
            )
        case "begin":
            return Step("ok", "Starting", "The units are fixed and the cluster is asked for them.", at, icon="loader-2")
        case "provide":
            late = at - booking.starts_at
            said = (
                "on time" if late.total_seconds() <= 0 else f"{words.length(late)} late; the time before is not charged"
            )
            units = words.count(booking.units, "unit")
            return Step("ok", "Active", f"{units} handed over {said}. Metering started.", at, icon="player-play")
        case "extend":
            end, quoted = (line.changes or {}).get("end"), (line.changes or {}).get("quoted")
            said = "" if not end else f"Until {words.moment(datetime.fromisoformat(end[1]), zone, now)}"
            said += f", {booking.currency} {quoted[1]} in all." if quoted else ""
            return Step("ok", f"Extended by {line.actor}", said, at, icon="clock-plus")
        case "shrink":
            return Step(
                "ok", f"Made smaller by {line.actor}", _shrunk(booking, line, zone, now), at, icon="arrow-bar-left"
            )
        case "move":
            start, quoted = (line.changes or {})["start"], (line.changes or {})["quoted"]
            where = f" on {line.changes['cluster'][1]}" if "cluster" in line.changes else ""  # type: ignore[operator,index]
            begins = words.moment(datetime.fromisoformat(start[1]), zone, now)
            said = f"Starts {begins}{where}, {booking.currency} {quoted[1]} in all."
            return Step("ok", f"Moved by {line.actor}", said, at, icon="arrows-exchange")
        case "hand_over":
            was, becomes = (line.changes or {})["person"]
            said = f"From {was} to {becomes}. What was charged before stays {was}'s."
            return Step("ok", f"Handed over by {line.actor}", said, at, icon="users")
        case "share" | "unshare":
            said = (
                "Every member of the project may enter it."
                if line.event == "share"
                else "Only its owner and leads may."
            )
            title = "Shared" if line.event == "share" else "No longer shared"
            return Step("ok", f"{title} by {line.actor}", said, at, icon="users")
        case "fee":
            amount = (line.changes or {}).get("amount", "")
            return Step("warn", f"Fee: {booking.currency} {amount}", why, at, icon="info-circle")
        case "replace":
            was, becomes = (line.changes or {})["nodes"]
            said = f"{', '.join(becomes)} instead of {', '.join(was)}. {why}".strip()
            return Step("ok", "Given other units", said, at, icon="arrows-exchange")
        case "replan":
            return Step("none", "Planned on other units", why, at, icon="arrows-exchange")
        case "project_end":
            return Step("warn", "Its project has ended", f"{why} It runs to its end.", at, icon="info-circle")
        case "cancel" | "withdraw":
            said = "Nothing is charged." if booking.provided_at is None else "Charged until then."
            return Step("none", f"Cancelled by {line.actor}", f"{said} {why}".strip(), at, icon="x")
        case "release":
            return Step("ok", f"Released by {line.actor}", f"Charged to this second. {why}".strip(), at, icon="logout")
        case "no_show":
            return Step("warn", "Released by Berth", f"Nobody used it. {why}".strip(), at, icon="clock-off")
        case "give_up":
            return Step("bad", "Not provided", f"{why} Nothing is charged.".strip(), at, icon="ban")
        case "fail":
            return Step("bad", "Failed", why, at, icon="ban")
        case "end":
            return Step("ok", "Over", "The window ended. Its units are being emptied.", at, icon="logout")
        case "emptied":
            return Step("ok", "Ended", "All units were seen empty; others can have them.", at, icon="check")
        case "ask":
            said = f"Price promised: {promised}. Units and hours are held until somebody answers, or it lapses."
            return Step("none", f"Asked for by {line.actor}", f"{said} {why}".strip(), at, icon="user-question")
        case "approve":
            return Step("ok", f"Approved by {line.actor}", f"It is booked. {why}".strip(), at, icon="check")
        case "reject":
            return Step("bad", f"Rejected by {line.actor}", why, at, icon="ban")
        case "wait":
            return Step("none", f"Waits for units, asked by {line.actor}", why, at, icon="clock")
        case "offer":
            said = f"Held for the answer until {_at((line.changes or {}).get('until'), zone, now)}."
            return Step("ok", "Units offered", said, at, icon="gift")
        case "ask_extend":
            end = (line.changes or {}).get("end")
            said = f"Until {_at(end[1], zone, now)}, when somebody has approved it." if end else ""
            return Step("none", f"Extension asked for by {line.actor}", said, at, icon="user-question")
        case "reject_extend" | "lapse_extend" | "withdraw_extend":
            done = {"reject": "rejected", "lapse": "lapsed", "withdraw": "taken back"}[line.event.partition("_")[0]]
            said = f"The extension that was asked for is {done}. {why}".strip()
            return Step("none", f"Extension {done}", said, at, icon="clock-off")
    known = line.event in Event.__members__.values()
    said = words.first_upper(EVENTS[Event(line.event)]) if known else ""
    return Step(
        "none", f"{words.first_upper(line.event.replace('_', ' '))} by {line.actor}", f"{said}. {why}".strip(), at
    )


def _at(instant: str | None, zone: str, now: datetime) -> str:
    return "…" if instant is None else words.moment(datetime.fromisoformat(instant), zone, now)


def _shrunk(booking: Booking, line: HistoryLine, zone: str, now: datetime) -> str:
    changes = line.changes or {}
    said = []
    if "end" in changes:
        said.append(f"Ends {words.moment(datetime.fromisoformat(changes['end'][1]), zone, now)}.")
    if "units" in changes:
        left = ", ".join(f"{units} on {node}" for node, units in changes.get("left", ()))
        said.append(
            f"{changes['units'][1]} of {changes['units'][0]} units are kept{f'; given back: {left}' if left else ''}."
        )
    if "quoted" in changes:
        said.append(f"{booking.currency} {changes['quoted'][1]} in all.")
    return " ".join(said)


def _sentence(text: str) -> str:
    text = text.strip()
    return text if not text or text.endswith((".", "!", "?")) else f"{text}."
