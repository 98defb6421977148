"""From a cluster's row to its backend, and how a backend is asked: in time, and with no error but a `BackendError`.

Only files called `reconcile` call backends, and never inside a transaction.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from app.backends.contract import Backend, BackendError
from app.backends.registry import UnknownBackend, make_backend
from app.inventory import vault
from app.inventory.facts import Cluster
from app.inventory.queries import sealed_secret
from app.kernel.clock import Clock
from app.plumbing.db import Database, Work
from app.plumbing.runtime import Plumbing

T = TypeVar("T")
_GRACE_SECONDS = 5.0
_made: WeakKeyDictionary[Database, dict[tuple[Any, ...], Backend]] = WeakKeyDictionary()


def backend_of(plumbing: Plumbing, cluster: Cluster, work: Work | None = None) -> Backend:
    """The backend of a cluster, made once for each configuration. Its secrets are read in `work`, where one is open.

    Raises `BackendError` (`invalid`) when the configuration, the backend's name or the secrets cannot be used.
    """
    if work is None:
        with plumbing.database.work() as own:
            return backend_of(plumbing, cluster, own)
    sealed = sealed_secret(work, cluster.id)
    made = _made.setdefault(plumbing.database, {})
    key = (cluster.id, cluster.backend, repr(sorted(cluster.config.items())), sealed)
    if key not in made:
        try:
            secrets = vault.unseal(plumbing.settings.secret_key.get_secret_value(), sealed) if sealed else {}
            made[key] = make_backend(
                cluster.backend, cluster.config, product_clock(plumbing.database), secrets.__getitem__
            )
        except (UnknownBackend, vault.Unreadable) as error:
            raise BackendError("invalid", f"{str(error)[:1].upper()}{str(error)[1:]}", repr(error)) from error
    return made[key]


def product_clock(database: Database) -> Clock:
    """The product clock for a backend: asked of the database each time, in a transaction of its own."""

    def now() -> datetime:
        with database.work() as work:
            return work.product_now()

    return now


def ask(backend: Backend, call: Callable[[], T]) -> T:
    """The answer of one verb, or `BackendError`: also when the backend hangs beyond its own limit, or fails otherwise.

    Whether the act was done is not known after an error.
    """
    answer: list[T] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            answer.append(call())
        except BaseException as error:
            failure.append(error)

    # a thread of its own: one that never comes back must not hold up the worker's
    thread = threading.Thread(target=run, name="backend", daemon=True)
    thread.start()
    thread.join(backend.limit_seconds + _GRACE_SECONDS)
    if answer:
        return answer[0]
    if not failure:
        raise BackendError(
            "timeout", "The cluster did not answer in time.", f"no answer within {backend.limit_seconds} s"
        )
    if isinstance(failure[0], BackendError):
        raise failure[0]
    raise BackendError("unknown", "Berth's part for this cluster failed.", repr(failure[0])) from failure[0]
