"""Which backends there are: entry points of the group `berth.backends`, ours registered like anyone else's.

Knows no cluster and no database; the caller brings configuration, clock and secrets.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Any

from app.backends.contract import Backend, Secrets
from app.kernel.clock import Clock

GROUP = "berth.backends"


class UnknownBackend(LookupError):
    """No backend of that name, or it cannot be loaded. The text is a sentence for the operator."""


def make_backend(name: str, config: Mapping[str, Any], clock: Clock, secrets: Secrets | None = None) -> Backend:
    """A backend over a cluster's configuration. `clock` is the product clock.

    Raises `UnknownBackend` with a sentence for a name that nobody registered or whose class cannot be loaded, and
    `BackendError` (`invalid`) for a configuration that the backend refuses.
    """
    return backend_class(name)(MappingProxyType(dict(config)), clock, secrets or _no_secrets)  # type: ignore[no-any-return]


def backend_class(name: str) -> Any:
    """What makes backends of that name. Raises `UnknownBackend` as `make_backend` does."""
    found = entry_points(group=GROUP, name=name)
    if not found:
        known = ", ".join(backend_names()) or "none"
        raise UnknownBackend(f"There is no backend {name!r}. Installed: {known}. Check the cluster's settings.")
    try:
        return next(iter(found)).load()
    except (ImportError, AttributeError) as e:
        raise UnknownBackend(f"The backend {name!r} is registered and cannot be loaded: {e}.") from e


def backend_names() -> tuple[str, ...]:
    """The names of all installed backends, sorted."""
    return tuple(sorted({point.name for point in entry_points(group=GROUP)}))


def require_backends(names: Mapping[str, str]) -> None:
    """Stops the start-up when a cluster names a backend that is not installed: cluster name -> backend name."""
    for cluster, name in names.items():
        if name not in backend_names():
            known = ", ".join(backend_names()) or "none"
            sentence = f"Cluster {cluster!r} needs the backend {name!r}, which is not installed. Installed: {known}."
            raise UnknownBackend(sentence)


def _no_secrets(name: str) -> str:
    raise KeyError(name)
