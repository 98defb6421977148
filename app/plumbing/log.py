"""One shape of log line for every process: sentences for people on a console, or JSON for a collector.

Knows no business word. Lines carry names and ids, never a secret, a token or a person's address.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog

# Loud libraries: what matters of their everyday lines our own lines say better.
_QUIET = ("httpx2", "httpcore2", "kombu", "amqp", "celery", "alembic", "uvicorn.error", "asyncio")
_COMMON: list[Any] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
]

# Always through the standard library's logging, so that tests see our lines like anybody else's.
structlog.configure(
    processors=[structlog.stdlib.filter_by_level, *_COMMON, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
    wrapper_class=structlog.stdlib.BoundLogger,
    logger_factory=structlog.stdlib.LoggerFactory(),
    cache_logger_on_first_use=True,
)


def get_log(name: str) -> Any:
    """A logger that takes a sentence and named values: `log.info("booked", booking="bk_…")`."""
    return structlog.get_logger(name)


def configure_logging(*, json: bool = False, level: str = "INFO", instants: bool = True) -> None:
    """Send our lines and the libraries' to standard output, one line each. Called once by every process.

    `json`: one object a line. `instants`: False where somebody else writes the time before each line.
    """
    stamp = [structlog.processors.TimeStamper(fmt="iso", utc=True, key="at")] if instants or json else []
    last = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()] if json else [_sentence]
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*_COMMON, structlog.stdlib.ExtraAdder()],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *stamp, *last],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("celery.apps.worker").setLevel(logging.INFO)  # says that it is ready
    logging.captureWarnings(True)


def _sentence(_logger: Any, _method: str, line: dict[str, Any]) -> str:
    """`2026-11-30T15:25:00Z warning: the sentence  name=value name=value`"""
    at, event, level = line.pop("at", None), line.pop("event", ""), line.pop("level", "info")
    line.pop("logger", None)
    trouble = line.pop("exc_info", None)
    words = [at] if at else []
    words.append(f"{level}: {event}" if level not in ("info", "debug") else str(event))
    if line:
        words.append(" " + " ".join(f"{name}={_value(value)}" for name, value in line.items() if value is not None))
    text = " ".join(words)
    if trouble:
        if not isinstance(trouble, tuple):
            trouble = sys.exc_info() if trouble is True else (type(trouble), trouble, trouble.__traceback__)
        text += "\n" + logging.Formatter().formatException(trouble)
    return text


def _value(value: Any) -> str:
    text = str(value)
    return repr(text) if " " in text or not text else text
