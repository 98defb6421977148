"""What can be wrong with what was asked. The web turns these into problem documents and pages; nothing else does."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason of a refusal: a stable code, a sentence, the limit, what was asked, and what would help.

    `limit` and `asked` are texts in the same unit ("96 units", "7 days"). `field` names the input it belongs to.
    `in_request` says that the fault lies in the request itself (422) and not in the state of the world (409).
    """

    code: str
    message: str
    limit: str | None = None
    asked: str | None = None
    fix: str | None = None
    field: str | None = None
    in_request: bool = False


@dataclass(frozen=True, slots=True)
class Alternative:
    """A request that would be accepted, ready to post; `kind_of_change` says what differs from what was asked."""

    kind_of_change: str
    request: dict[str, Any]
    price: dict[str, str]
    summary: str = ""


class Problem(Exception):
    """Base of everything that is the asker's to mend. `code` is stable, `detail` is a sentence for people."""

    status = 400
    title = "The request cannot be carried out"

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


class Unauthenticated(Problem):
    """Nobody is signed in, or the token is unknown, expired or revoked."""

    status, title = 401, "Sign in first"


class Forbidden(Problem):
    """The actor is known and may not."""

    status, title = 403, "Not allowed"


class NotFound(Problem):
    """Unknown, or another tenant's: the answer is the same."""

    status, title = 404, "Not found"


class Conflict(Problem):
    """The world is not as the request assumes (stale edit, reused idempotency key, wrong state)."""

    status, title = 409, "That is no longer so"


class Invalid(Problem):
    """The request itself is wrong; `reasons` name each field."""

    status, title = 422, "The request is not valid"

    def __init__(self, code: str, detail: str, reasons: tuple[Reason, ...] = ()) -> None:
        super().__init__(code, detail)
        self.reasons = reasons


class TooMany(Problem):
    """A rate limit; `retry_after` in seconds."""

    status, title = 429, "Too many requests"

    def __init__(self, code: str, detail: str, retry_after: int) -> None:
        super().__init__(code, detail)
        self.retry_after = retry_after


class Unavailable(Problem):
    """Not now: a server behind Berth does not answer, or the data is still being prepared."""

    status, title = 503, "Not available right now"


@dataclass(frozen=True, slots=True)
class Refusal:
    """All reasons at once, and up to three alternatives that pass every rule."""

    reasons: tuple[Reason, ...]
    alternatives: tuple[Alternative, ...] = field(default=())


class Refused(Problem):
    """A booking or an edit that the rules, the quota or the capacity do not allow."""

    title = "This cannot be booked as asked"

    def __init__(self, refusal: Refusal, code: str = "refused") -> None:
        super().__init__(code, " ".join(r.message for r in refusal.reasons))
        self.refusal = refusal
        self.status = 422 if any(r.in_request for r in refusal.reasons) else 409
