"""The Celery application: the timetable in one dict, and one thin task for each kind of work.

Tasks named `reconcile.` call backends and wait on a queue of their own, served by threads; everything else is `default`.
A message is a hint: losing it costs one sweep, having it twice finds nothing to do.
"""

from __future__ import annotations

from typing import Any

from celery import Celery
from celery.signals import setup_logging, worker_process_shutdown, worker_shutdown

from app import rounds
from app.plumbing.log import configure_logging, get_log
from app.settings import load_settings
from workers import runtime

log = get_log("worker")

TIMETABLE: dict[str, dict[str, Any]] = {
    "sweep": {"task": "sweep", "schedule": 5.0, "options": {"queue": "default", "expires": 15}},
    "tidy": {"task": "tidy", "schedule": 3600.0, "options": {"queue": "default", "expires": 1800}},
}

app = Celery("berth", broker=load_settings().redis_url)
app.conf.update(
    beat_schedule=TIMETABLE,
    task_default_queue="default",
    task_ignore_result=True,
    task_acks_late=False,  # the row is the truth: a message that dies with its worker is found again by the sweep
    worker_prefetch_multiplier=1,
    worker_hijack_root_logger=False,
    worker_send_task_events=False,
    worker_max_tasks_per_child=None,
    broker_connection_retry_on_startup=True,
    broker_transport_options={"visibility_timeout": 3600},
    timezone="UTC",
    enable_utc=True,
)


def _task(name: str) -> None:
    work = rounds.TASKS[name]

    @app.task(name=name, ignore_result=True)
    def run(*args: Any) -> None:
        work(runtime.plumbing(), *args)


for _name in rounds.TASKS:
    _task(_name)


@app.task(name="sweep", ignore_result=True)
def sweep() -> None:
    """Send a hint for everything that is due. Hints that are still waiting from the last sweep do no harm."""
    plumbing = runtime.plumbing()
    for hint in rounds.find_work(plumbing):
        plumbing.queue.send(hint.name, *hint.args)


@app.task(name="tidy", ignore_result=True)
def tidy() -> None:
    """Remove what nobody needs any more: old samples' minutes, ended sessions, idempotency keys."""
    rounds.tidy(runtime.plumbing())


@setup_logging.connect
def _log(**_words: Any) -> None:
    """Our lines instead of Celery's own."""
    settings = load_settings()
    configure_logging(json=settings.log == "json", level=settings.log_level, instants=settings.log_instants)


@worker_process_shutdown.connect
@worker_shutdown.connect
def _close(**_words: Any) -> None:
    runtime.close()
