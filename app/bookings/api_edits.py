"""The JSON routes of the verbs that change a booking: shrink, move, hand over, share, claim; and who can be handed one.

`dry_run` answers with the effect of a verb (time, money, quota) and does nothing.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response

from app.bookings import claiming, edits, leaving, moving, queries_edits, rules, sharing, shrinking
from app.bookings.api import IdempotencyKey, IfMatch, answer_of, key_of, version_of
from app.bookings.facts import Booking
from app.bookings.own_use import OwnUse
from app.bookings.schemas_edits import ClaimIn, HandOverIn, MoveIn, ShrinkIn
from app.kernel import ids
from app.kernel.errors import Refusal, Refused
from app.web.deps import Booker, InTransaction, Parts, Reader, rate_limit

router = APIRouter(prefix="/api/v1", tags=["bookings"])
UseId = Annotated[int, Path(ge=1, le=10**15)]


@router.get("/bookings/{booking_id}/cancel")
def cancel_terms(booking_id: str, work: InTransaction, actor: Booker) -> dict[str, Any]:
    """What cancelling the booking would cost now, and until when it is free."""
    booking = edits.find(work, actor, booking_id)
    terms = leaving.quote_cancel(work, actor, booking.id)
    return {
        "fee": _money(booking, terms.fee),
        "percent": terms.percent,
        "free_until": None if terms.free_until is None else rules.iso(terms.free_until),
    }


@router.post("/bookings/{booking_id}/shrink")
def shrink(
    booking_id: str, body: ShrinkIn, request: Request, response: Response, work: InTransaction, actor: Booker,
    parts: Parts, key: IdempotencyKey = None, if_match: IfMatch = None, dry_run: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """End a booking earlier, or give some of its units back, from now on."""
    booking = edits.find(work, actor, booking_id)
    end = booking.ends_at - body.duration if body.duration is not None else body.end
    kept = shrinking.Kept(end, body.units, body.nodes)
    if dry_run:
        plan = shrinking.quote_shrink(work, actor, booking.id, kept)
        return {
            "end": rules.iso(plan.end),
            "units": plan.to.units,
            "gives_back": _money(booking, plan.back),
            "price": _money(booking, plan.total.amount),
            "nodes": [{"node": leave.held.node, "gives_back": leave.units} for leave in plan.leaves],
            "quota": [e.as_json() for e in plan.effects],
        }
    made = key_of(key, request, body.model_dump(mode="json"))
    after = shrinking.shrink(work, parts.queue, actor, booking.id, kept, made, version_of(if_match))
    return answer_of(work, response, after)


@router.post("/bookings/{booking_id}/move")
def move(
    booking_id: str, body: MoveIn, request: Request, response: Response, work: InTransaction, actor: Booker,
    parts: Parts, key: IdempotencyKey = None, if_match: IfMatch = None, dry_run: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Give up its place for another time or cluster, before it starts, at the prices published now."""
    booking = edits.find(work, actor, booking_id)
    to = moving.To(body.start, body.duration, body.cluster)
    if dry_run:
        plan = moving.quote_move(work, actor, booking.id, to)
        return {
            "start": rules.iso(plan.offer.window.start),
            "end": rules.iso(plan.offer.window.end),
            "cluster": plan.offer.pool.cluster,
            "change": _money(booking, plan.change),
            "price": _money(booking, plan.offer.cost.amount),
            "quota": [e.as_json() for e in plan.effects],
        }
    made = key_of(key, request, body.model_dump(mode="json"))
    after = moving.move(work, parts.queue, actor, booking.id, to, made, version_of(if_match))
    return answer_of(work, response, after)


@router.get("/bookings/{booking_id}/members")
def members(booking_id: str, work: InTransaction, actor: Booker) -> dict[str, Any]:
    """Whom the booking could be handed over to: members and leads of its project."""
    booking = edits.find(work, actor, booking_id)
    edits.allow(actor, booking)
    found = queries_edits.members_of(work, booking.project_id)
    return {"items": [{"id": ids.public(ids.ACCOUNT, m.account_id), "name": m.name} for m in found], "next": None}


@router.post("/bookings/{booking_id}/hand-over")
def hand_over(
    booking_id: str, body: HandOverIn, request: Request, response: Response, work: InTransaction, actor: Booker,
    parts: Parts, key: IdempotencyKey = None, if_match: IfMatch = None, dry_run: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Make a booking another member's, who has it, and whose limits it counts in, from now on."""
    booking = edits.find(work, actor, booking_id)
    edits.allow(actor, booking)
    to = ids.parse(ids.ACCOUNT, body.to)
    if to is None:
        raise Refused(Refusal((sharing.no_member(booking),)))
    if dry_run:
        plan = sharing.quote_hand_over(work, actor, booking.id, to)
        return {
            "to": {"id": ids.public(ids.ACCOUNT, plan.to.account_id), "name": plan.to.name},
            "since": rules.iso(plan.since),
            "quota": [e.as_json() for e in plan.effects],
        }
    made = key_of(key, request, body.model_dump(mode="json"))
    after = sharing.hand_over(work, parts.queue, actor, booking.id, to, made, version_of(if_match))
    return answer_of(work, response, after)


@router.post("/bookings/{booking_id}/share")
def share(
    booking_id: str, request: Request, response: Response, work: InTransaction, actor: Booker, parts: Parts,
    key: IdempotencyKey = None, if_match: IfMatch = None,
) -> dict[str, Any]:  # fmt: skip
    """Let every member of the project enter it."""
    booking = edits.find(work, actor, booking_id)
    made, version = key_of(key, request, {}), version_of(if_match)
    return answer_of(work, response, sharing.share(work, parts.queue, actor, booking.id, True, made, version))


@router.post("/bookings/{booking_id}/unshare")
def unshare(
    booking_id: str, request: Request, response: Response, work: InTransaction, actor: Booker, parts: Parts,
    key: IdempotencyKey = None, if_match: IfMatch = None,
) -> dict[str, Any]:  # fmt: skip
    """Let only whoever has it, and the leads of the project, enter it."""
    booking = edits.find(work, actor, booking_id)
    made, version = key_of(key, request, {}), version_of(if_match)
    return answer_of(work, response, sharing.share(work, parts.queue, actor, booking.id, False, made, version))


@router.get("/uses")
def uses(work: InTransaction, actor: Reader) -> dict[str, Any]:
    """What the caller uses now without a booking, where the cluster says whose a use is."""
    return {"items": [_use(use) for use in claiming.own_uses(work, actor)], "next": None}


@router.post("/uses/{use_id}/claim", status_code=201, dependencies=[rate_limit("book", 6000, 60)])
def claim(
    use_id: UseId, body: ClaimIn, request: Request, response: Response, work: InTransaction, actor: Booker,
    parts: Parts, key: IdempotencyKey = None, dry_run: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Book the units that one uses already, from now on."""
    wish = claiming.Wish(body.project, body.name, body.duration, body.cost_center, body.reference)
    if dry_run:
        response.status_code = 200
        plan = claiming.quote_claim(work, actor, use_id, wish)
        offer = plan.offer
        return {
            "use": _use(plan.use),
            "start": rules.iso(offer.window.start),
            "end": rules.iso(offer.window.end),
            "units": offer.placement.units,
            "price": {"currency": offer.cost.currency, "amount": str(offer.cost.amount)},
            "quota": [e.as_json() for e in plan.effects],
        }
    made = key_of(key, request, body.model_dump(mode="json"))
    booked = claiming.claim(work, parts.queue, actor, use_id, wish, made)
    response.headers["Location"] = f"/api/v1/bookings/{booked.public_id}"
    return answer_of(work, response, booked)


def _money(booking: Booking, amount: Any) -> dict[str, str]:
    return {"currency": booking.currency, "amount": str(amount)}


def _use(use: OwnUse) -> dict[str, Any]:
    return {
        "id": use.id,
        "node": use.node,
        "kind": use.kind,
        "units": sum((upper + 63) // 64 - lower // 64 for lower, upper in use.positions),
        "what": use.what,
        "since": rules.iso(use.since),
        "until": None if use.until is None else rules.iso(use.until),
    }
