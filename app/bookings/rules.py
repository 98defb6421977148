"""What a booking must keep to, as reasons with sentences. Pure: policy, placement and time in, reasons out.

One function for each thing that can be asked; page, API, worker and demo all come through here. All reasons at once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from difflib import get_close_matches

from app.bookings.capacity import Level, Shape
from app.bookings.placement import NoPlace
from app.inventory.policy import Policy
from app.kernel.errors import Reason
from app.kernel.window import Window

LATE_BY = timedelta(seconds=60)
"""How far a start may lie in the past: clocks of people differ from the server's."""

_LEVELS: dict[Level | None, str] = {
    "node": "node",
    "nvlink": "NVLink domain",
    "leaf": "leaf switch",
    "rack": "rack",
    None: "pool",
}


def length_text(length: timedelta) -> str:
    """A length in words: `6 h`, `7 days`, `1 h 30 min`, `90 s`."""
    seconds = int(abs(length).total_seconds())
    days, rest = divmod(seconds, 86400)
    if days >= 2 and not rest:
        text = f"{days} days"
    else:
        hours, rest = divmod(seconds, 3600)
        minutes, left = divmod(rest, 60)
        parts = [f"{n} {unit}" for n, unit in ((hours, "h"), (minutes, "min"), (left, "s")) if n]
        text = " ".join(parts) or "0 min"
    return f"−{text}" if length < timedelta(0) else text


def shape_text(shape: Shape) -> str:
    """What is asked, in words: `8 units`, `2 nodes x 8 units`, with the closeness."""
    many = f"{shape.units} unit{'s' if shape.units != 1 else ''}" if shape.units else ""
    text = many or f"{shape.nodes} node{'s' if shape.nodes != 1 else ''} × {shape.per_node} units"
    return text if shape.within is None else f"{text} in one {_LEVELS[shape.within]}"


def check_length(length: timedelta, policy: Policy) -> list[Reason]:
    """Too short, too long, not a multiple of the grid, or the wrong way round."""
    asked = length_text(length)
    if length <= timedelta(0):
        return [
            Reason("ends_before_start", "The end lies at or before the start.", None, asked,
                   "Choose a later end, or a length.", "duration", True)
        ]  # fmt: skip
    reasons = []
    if length < policy.min_length:
        least = length_text(policy.min_length)
        reasons.append(
            Reason("too_short", f"A booking lasts at least {least}. You asked for {asked}.", least, asked,
                   f"Book {least} and release it early: only the time until then is charged.", "duration", True)
        )  # fmt: skip
    if length > policy.max_length:
        most = length_text(policy.max_length)
        reasons.append(
            Reason("too_long", f"A booking lasts at most {most}. You asked for {asked}.", most, asked,
                   f"Book {most}, and extend or book again.", "duration", True)
        )  # fmt: skip
    if length % policy.grid:
        grid = length_text(policy.grid)
        reasons.append(
            Reason("length_off_grid", f"Lengths are multiples of {grid}. You asked for {asked}.", grid, asked,
                   f"Choose {length_text(snap_up(length, policy.grid))}.", "duration", True)
        )  # fmt: skip
    return reasons


def check_start(start: datetime, policy: Policy, now: datetime) -> list[Reason]:
    """In the past, off the grid, or sooner than the pool allows. Only for a start that was asked for exactly."""
    reasons = []
    asked = iso(start)
    if start < now - LATE_BY:
        reasons.append(
            Reason("start_in_past", f"The start lies in the past: it is {iso(now)} now.", iso(now), asked,
                   "Choose a later start, or as soon as possible.", "start", True)
        )  # fmt: skip
    if int(start.timestamp()) % int(policy.grid.total_seconds()):
        grid = length_text(policy.grid)
        reasons.append(
            Reason("start_off_grid", f"Starts are on multiples of {grid}.", grid, asked,
                   f"Choose {iso(snap_instant(start, policy.grid))}, or as soon as possible.", "start", True)
        )  # fmt: skip
    if policy.lead and start < now + policy.lead:
        lead = length_text(policy.lead)
        reasons.append(
            Reason("too_soon", f"This pool is booked at least {lead} ahead.", iso(now + policy.lead), asked,
                   f"Choose a start from {iso(now + policy.lead)} on.", "start", True)
        )  # fmt: skip
    return reasons


def check_open(policy: Policy, kind: str, cluster: str) -> list[Reason]:
    """Whether the pool takes bookings of those whose policy it is."""
    if policy.may_book:
        return []
    return [
        Reason("not_open", f"{kind} on {cluster} is open to tenants and projects that are named, and this one is not.",
               None, kind, "Ask the operators to open it, or choose another kind or cluster.", "kind")
    ]  # fmt: skip


def check_horizon(end: datetime, policy: Policy, now: datetime) -> list[Reason]:
    """Beyond what is planned ahead."""
    last = now + policy.horizon
    if end <= last:
        return []
    ahead = length_text(policy.horizon)
    return [
        Reason("beyond_horizon", f"Bookings end at most {ahead} from now, by {iso(last)}.", iso(last), iso(end),
               "Choose an earlier time.", "start", True)
    ]  # fmt: skip


def check_extension(booked: Window, first_end: datetime, end: datetime, policy: Policy, now: datetime) -> list[Reason]:
    """A later end for a booking: `first_end` is the end that was booked at first, before any extension.

    The same limits as for a new booking, by its whole length. An edit that does not lengthen is not asked for its length.
    """
    if end <= booked.end:
        return [
            Reason("not_later", "An extension ends after the booking's end.", iso(booked.end), iso(end),
                   "Choose a later end, or release the booking early.", "end", True)
        ]  # fmt: skip
    reasons = []
    if end <= now:
        reasons.append(
            Reason("start_in_past", f"That end lies in the past: it is {iso(now)} now.", iso(now), iso(end),
                   "Choose a later end.", "end", True)
        )  # fmt: skip
    length = end - booked.start
    if length > policy.max_length:
        most, asked = length_text(policy.max_length), length_text(length)
        reasons.append(
            Reason("too_long", f"A booking lasts at most {most}, with extensions. It would last {asked}.", most, asked,
                   f"It can be extended until {iso(booked.start + policy.max_length)}.", "end", True)
        )  # fmt: skip
    if (end - booked.end) % policy.grid:
        grid, asked = length_text(policy.grid), length_text(end - booked.end)
        reasons.append(
            Reason("length_off_grid", f"Extensions are multiples of {grid}. You asked for {asked}.", grid, asked,
                   f"Choose {length_text(snap_up(end - booked.end, policy.grid))}.", "end", True)
        )  # fmt: skip
    ahead = booked.end - now
    if policy.extend_within is not None and ahead > policy.extend_within:
        within, asked = length_text(policy.extend_within), length_text(ahead)
        reasons.append(
            Reason("extended_too_early", f"Bookings are extended in their last {within}. This one has {asked} to go.",
                   within, asked, f"Extend it from {iso(booked.end - policy.extend_within)} on.", "end")
        )  # fmt: skip
    if policy.max_extension is not None and end - first_end > policy.max_extension:
        most, asked = length_text(policy.max_extension), length_text(end - first_end)
        reasons.append(
            Reason("extended_too_often", f"All extensions together add at most {most}. They would add {asked}.", most,
                   asked, f"It can be extended until {iso(first_end + policy.max_extension)}.", "end", True)
        )  # fmt: skip
    return reasons + check_horizon(end, policy, now)


def no_place(why: NoPlace, kind: str, cluster: str) -> Reason:
    """Why units do not fit: the fact, beside what was asked."""
    shape, asked = why.shape, shape_text(why.shape)
    level = _LEVELS[shape.within]
    if why.never:
        room = why.installed
        if shape.units is not None:
            most = room.domain_units if shape.within else room.units
            where = (
                f"The largest {level} of {cluster} has {most} {kind}"
                if shape.within
                else f"{cluster} has {most} {kind}"
            )
            code, text = "too_many_units", f"{where} in all."
        elif room.largest_node < (shape.per_node or 0):
            level = "node"
            code, most, text = (
                "node_too_small",
                room.largest_node,
                f"The largest {kind} node of {cluster} has {room.largest_node} units.",
            )
        else:
            most, code = room.domain_nodes, "domain_too_small"
            text = f"A {level} of {cluster} has {most} such nodes."
        limit = f"{most} {'units' if shape.units or code == 'node_too_small' else 'nodes'}"
        article = "an" if level.startswith("NV") else "a"
        small = f"{article.capitalize()} {level} is too small. " if shape.within or shape.nodes else ""
        return Reason(
            code,
            f"{small}You asked for {asked}. {text}",
            limit,
            asked,
            "Ask for fewer, or for less closeness.",
            "within" if shape.within else "units",
            True,
        )
    if why.power is not None:
        short = why.power
        fact = f"{short.budget} may draw {short.limit:,} W, of which {short.drawn:,} W are promised then"
        return Reason("power_short", f"Units are free, but not the power for them: {fact}, and {asked} draw {short.asked:,} W.",
                      f"{short.limit} W", f"{short.asked} W", "Choose another time, fewer units, or another kind.", "start")  # fmt: skip
    free = why.free
    if shape.units is not None and shape.within:
        fact, limit = (
            f"The most that one {level} has free is {free.domain_units}.",
            f"{free.domain_units} units in one {level}",
        )
    elif shape.units is not None:
        fact, limit = f"{free.units} are free for all of that time.", f"{free.units} units"
    else:
        where = f" in one {level}" if shape.within else ""
        fact, limit = (
            f"{free.domain_nodes} such nodes are free{where} for all of that time.",
            f"{free.domain_nodes} nodes",
        )
    if why.bookkeeping:
        fact += (
            " Enough are free at every moment, but not the same ones throughout, and what holds them cannot be moved."
        )
    if why.pinned:
        fact += " Whoever has them could give way, but is being put in place already."
    ill = why.installed.units - why.offered.units
    if ill:
        fact += f" {ill} units are out of service."
    return Reason("no_units_free", f"Not enough {kind} on {cluster} are free then. {fact}", limit, asked,
                  "Choose another time, kind or shape.", "start")  # fmt: skip


def no_start(shape: Shape, kind: str, cluster: str, until: datetime) -> Reason:
    """As soon as possible, but there is no such time within the horizon."""
    return Reason("no_time_found", f"{shape_text(shape)} of {kind} on {cluster} do not fit before {iso(until)}.", iso(until),
                  shape_text(shape), "Ask for fewer, for less closeness, or for a shorter time.", "start")  # fmt: skip


def no_price(kind: str, group: str) -> Reason:
    """Nothing can be promised without a price."""
    return Reason("no_price", f"{kind} has no price for the group {group} in that time.", None, kind,
                  "Finance has to publish a price first.", "kind")  # fmt: skip


def unknown(what: str, name: str, known: Sequence[str], field: str) -> Reason:
    """A name that is not there, with the nearest ones that are."""
    near = get_close_matches(name, known, 3, 0.5)
    fix = (
        f"Did you mean {' or '.join(near)}?"
        if near
        else (f"Known: {', '.join(sorted(known)[:12])}." if known else None)
    )
    return Reason(
        f"unknown_{what}", f"There is no {what} named {name!r} that you may use.", None, name, fix, field, True
    )


def snap_up(length: timedelta, grid: timedelta) -> timedelta:
    """The next multiple of the grid, itself when it is one."""
    return -(-length // grid) * grid


def snap_instant(instant: datetime, grid: timedelta) -> datetime:
    """The next instant on the grid (multiples since 1970 UTC), itself when it is on it."""
    step = int(grid.total_seconds())
    return datetime.fromtimestamp(-(-int(instant.timestamp()) // step) * step, UTC)


def energy_kwh(
    units: int, hours: Decimal, tdp_watts: int | None, node_kw: Decimal | None, units_per_node: int
) -> Decimal | None:
    """At most so much in the rack: a unit's share of its node's power, or its own, over the time. None: not known."""
    if node_kw is not None:
        watts = Decimal(node_kw) * 1000 / units_per_node
    elif tdp_watts is not None:
        watts = Decimal(tdp_watts)
    else:
        return None
    return (watts * units * hours / 1000).quantize(Decimal("0.1"))


def quote_digest(facts: dict) -> str:
    """Names a quote: what it promises, so that a change between showing and confirming is noticed."""
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"), default=str)
    return f"q1:{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def iso(instant: datetime) -> str:
    """An instant as the API writes it: UTC, `Z`."""
    return instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
