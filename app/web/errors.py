"""Every error as an answer: problem documents (RFC 9457) for the API, a page or a fragment for people.

Knows the kernel's errors and HTTP; knows no room. An error nobody foresaw is logged with the request's id and says
nothing of the inside.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlsplit

import psycopg
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException

from app.kernel.clock import wall_now
from app.kernel.errors import Invalid, Problem, Reason, Refused, TooMany, Unauthenticated
from app.plumbing.log import get_log
from app.web.render import render
from app.web.views.parts import Frame, Link
from app.web.views.people import ErrorFragment, ErrorPage

log = get_log("web")
PROBLEM_JSON = "application/problem+json"
BUSY_SECONDS = 2

_TITLES = {
    400: "The request cannot be read",
    401: "Sign in first",
    403: "Not allowed",
    404: "Not found",
    405: "That address does not take this",
    409: "That is no longer so",
    413: "Too much at once",
    415: "Not a form of data that is taken here",
    422: "The request is not valid",
    429: "Too many requests",
    500: "Something went wrong on our side",
    503: "Not available right now",
}
_CODES = {400: "unreadable", 401: "unauthenticated", 403: "forbidden", 404: "not_found", 405: "method_not_allowed",
          413: "too_large", 415: "unsupported_media_type", 429: "too_many", 503: "unavailable"}  # fmt: skip
_SENTENCES = {
    404: "There is nothing here, or it is not yours to see.",
    405: "This address exists, but not for this kind of request.",
    413: "The request is larger than what is taken here.",
}
_PARSING = "There was an error parsing the body"
"""What the framework says of a body that is no text, or nested beyond reading."""
_BUSY = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure,
         psycopg.errors.QueryCanceled)  # fmt: skip


def install(app: FastAPI) -> None:
    """Answer every error of this application in one way."""
    app.add_exception_handler(Problem, _on_problem)
    app.add_exception_handler(RequestValidationError, _on_validation)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(psycopg.Error, _on_database)
    app.add_exception_handler(DBAPIError, _on_database)
    app.add_exception_handler(PoolTimeout, _on_database)
    app.add_exception_handler(UnicodeEncodeError, _on_no_text)


def is_api(request: Request) -> bool:
    """Whether the asker is a program."""
    return request.url.path.startswith("/api/")


def is_fragment(request: Request) -> bool:
    """Whether htmx asked for a part of a page."""
    return request.headers.get("hx-request") == "true" and request.headers.get("hx-history-restore-request") != "true"


def problem_document(
    status: int,
    code: str,
    detail: str,
    title: str | None = None,
    reasons: tuple[Reason, ...] = (),
    alternatives: tuple[Any, ...] = (),
) -> dict[str, Any]:
    """The body of an `application/problem+json`."""
    return {
        "type": "about:blank",
        "title": title or _TITLES.get(status, "Not possible"),
        "status": status,
        "detail": detail,
        "code": code,
        "reasons": [
            {"code": r.code, "message": r.message, "limit": r.limit, "asked": r.asked, "fix": r.fix,
             **({"field": r.field} if r.field else {})}
            for r in reasons
        ],
        "alternatives": [
            {"kind_of_change": a.kind_of_change, "request": a.request, "price": a.price,
             **({"summary": a.summary} if a.summary else {})}
            for a in alternatives
        ],
    }  # fmt: skip


def answer(request: Request, document: dict[str, Any], headers: dict[str, str] | None = None) -> Response:
    """The document in the form that suits who asked."""
    status = document["status"]
    if is_api(request):
        return JSONResponse(document, status, headers, media_type=PROBLEM_JSON)
    helps = tuple(r["fix"] for r in document["reasons"] if r["fix"])
    said = " ".join(r["message"] for r in document["reasons"]) or document["detail"]
    reference = getattr(request.state, "request_id", "") if status >= 500 else ""
    kind = ErrorFragment if is_fragment(request) else ErrorPage
    links = () if kind is ErrorFragment else (Link("Home", "/"),)
    view = kind(status=status, title=document["title"], text=said, helps=helps, links=links, reference=reference)
    try:
        return HTMLResponse(render(view, bare_frame()), status, headers)
    except Exception:  # whatever is wrong with the page, its reader learns what happened
        log.exception("the error page itself failed", path=request.url.path)
        return PlainTextResponse(f"{document['title']}. {said}", status, headers)


def bare_frame(csrf_token: str = "") -> Frame:
    """The frame of a page before anybody is known. Its clock is the wall's: the database may be what is failing."""
    return Frame(now=wall_now().replace(microsecond=0), zone="UTC", csrf_token=csrf_token, book_href=None)


def on_unforeseen(request: Request, error: Exception) -> Response:
    """An error that nobody wrote a sentence for: all of it in the log, its number in the answer."""
    reference = getattr(request.state, "request_id", "")
    log.error("unforeseen error", path=request.url.path, method=request.method, request=reference, exc_info=error)
    detail = "Something failed that should not have. It has been recorded"
    return answer(
        request, problem_document(500, "internal", f"{detail} as {reference}." if reference else detail + ".")
    )


def _on_problem(request: Request, error: Problem) -> Response:
    reasons: tuple[Reason, ...] = ()
    alternatives: tuple[Any, ...] = ()
    headers: dict[str, str] = {}
    if isinstance(error, Refused):
        reasons, alternatives = error.refusal.reasons, error.refusal.alternatives
    elif isinstance(error, Invalid):
        reasons = error.reasons
    if isinstance(error, TooMany):
        headers["Retry-After"] = str(error.retry_after)
    elif error.status == 503:
        headers["Retry-After"] = str(BUSY_SECONDS)
    if isinstance(error, Unauthenticated):
        if not is_api(request):
            return _to_sign_in(request)
        headers["WWW-Authenticate"] = 'Bearer realm="berth"'
    if error.code == "no_tenant" and request.method == "GET" and not is_api(request) and not is_fragment(request):
        return RedirectResponse(f"/scope?next={quote(request.url.path, safe='')}", 303)
    document = problem_document(error.status, error.code, error.detail, error.title, reasons, alternatives)
    return answer(request, document, headers)


def _to_sign_in(request: Request) -> Response:
    """People go to the sign-in page and come back to where they were."""
    came_from = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    if is_fragment(request):
        page = urlsplit(request.headers.get("hx-current-url", ""))
        target = f"/sign-in?next={quote((page.path or '/') + (f'?{page.query}' if page.query else ''), safe='')}"
        return Response(status_code=401, headers={"HX-Redirect": target})
    wanted = came_from if request.method in ("GET", "HEAD") else "/"
    return RedirectResponse("/sign-in" if wanted == "/" else f"/sign-in?next={quote(wanted, safe='')}", 303)


def _on_validation(request: Request, error: RequestValidationError) -> Response:
    reasons = []
    for found in error.errors():
        where = [str(p) for p in found["loc"] if p not in ("body", "query", "path", "header", "form")]
        name = ".".join(where) or None
        if found["type"] == "json_invalid":
            sentence = f"The body is not JSON: {found.get('ctx', {}).get('error', 'it cannot be read')}."
            reasons.append(Reason("not_json", sentence, in_request=True))
            continue
        message = found["msg"].removeprefix("Value error, ")
        sentence = f"{name}: {message}." if name else f"{message}."
        reasons.append(Reason(found["type"], sentence.replace("..", "."), field=name, in_request=True))
    detail = " ".join(r.message for r in reasons)
    return answer(request, problem_document(422, "invalid", detail, reasons=tuple(reasons)))


def _on_http(request: Request, error: HTTPException) -> Response:
    status = error.status_code
    detail = _SENTENCES.get(status) or str(error.detail)
    if detail == _PARSING:
        detail = "The body cannot be read as what it is said to be."
    document = problem_document(status, _CODES.get(status, "http"), detail)
    return answer(request, document, dict(error.headers or {}))


def _on_no_text(request: Request, error: Exception) -> Response:
    """A null byte or half a character: no text that could be kept or looked for, wherever in the request it was."""
    log.info("a request with what is no text", path=request.url.path, error=type(error).__name__)
    detail = "The request holds a null byte or half a character, which is no text. Leave it out."
    return answer(request, problem_document(422, "not_text", detail))


def _is_no_text(error: BaseException) -> bool:
    return isinstance(error, (psycopg.errors.UntranslatableCharacter, psycopg.errors.CharacterNotInRepertoire)) or (
        isinstance(error, psycopg.DataError) and "NUL (0x00)" in str(error)
    )


def _on_database(request: Request, error: Exception) -> Response:
    cause = getattr(error, "orig", None) or error
    if _is_no_text(cause):
        return _on_no_text(request, error)
    busy = isinstance(cause, _BUSY)
    gone = isinstance(cause, psycopg.OperationalError) and not busy
    if not (busy or gone or isinstance(error, PoolTimeout)):
        return on_unforeseen(request, error)
    log.warning("database did not answer in time", path=request.url.path, error=type(cause).__name__, gone=gone)
    detail = (
        "The database cannot be reached; nothing was changed that was not confirmed. Try again in a moment."
        if gone
        else "Others are changing the same things right now, and nothing was changed here. Try again in a moment."
    )
    document = problem_document(503, "database_away" if gone else "busy", detail)
    return answer(request, document, {"Retry-After": str(BUSY_SECONDS)})
