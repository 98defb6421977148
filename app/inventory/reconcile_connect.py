"""Tries out a cluster that is not connected yet: what its own backend says of the settings, and what it sees there.

Nothing is written, here or on the cluster. The backend is asked once, in time, as everywhere.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.backends.contract import Backend, BackendError, Probe
from app.backends.registry import UnknownBackend, backend_class, backend_names, make_backend
from app.inventory.connections import ask, product_clock
from app.kernel.errors import Invalid, Reason
from app.plumbing.runtime import Plumbing


@dataclass(frozen=True, slots=True)
class Kind:
    """A backend that is installed: its name, one line of what it is, and what its settings mean."""

    name: str
    what: str
    settings: str


@dataclass(frozen=True, slots=True)
class Tried:
    """What a try came to. `error` is a sentence: the cluster could not be asked at all, then there is no probe."""

    probe: Probe | None
    error: str = ""

    @property
    def usable(self) -> bool:
        """Whether Berth can work there, if not in everything: rights or nodes may still be missing."""
        return self.probe is not None and self.probe.capabilities is not None


_WHAT = {
    "simulated": "Exists in Berth alone: to try things out",
    "slurm": "A Slurm cluster, by its REST interface or its commands",
    "kubernetes": "A Kubernetes cluster with GPU nodes",
}
"""In a newcomer's words; a backend that is not ours speaks for itself."""


def installed() -> tuple[Kind, ...]:
    """Every backend of this installation, by name."""
    return tuple(_described(name) for name in backend_names())


def with_defaults(plumbing: Plumbing, name: str, backend: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with what needs not be said: where a simulated cluster keeps its log."""
    if backend == "simulated" and not config.get("path"):
        return {**config, "path": str(plumbing.settings.data / f"cluster-{name}.sqlite")}
    return dict(config)


def refuse_wrong(
    plumbing: Plumbing, backend: str, config: Mapping[str, Any], secrets: Mapping[str, str] | None = None
) -> Backend:
    """The backend over these settings, which connects to nothing yet.

    Raises `Invalid` at the field: `backend` for one that is not installed, `config` or `secrets` for what it refuses.
    """
    try:
        return make_backend(backend, config, product_clock(plumbing.database), dict(secrets or {}).__getitem__)
    except UnknownBackend:
        known = ", ".join(backend_names()) or "none"
        said = f"There is no kind of cluster called “{backend[:63]}” here. Installed: {known}."
        raise _wrong("unknown_backend", said, "backend") from None
    except BackendError as error:
        raise _wrong("backend_settings", error.sentence, "config") from error
    except KeyError as error:
        said = f"The secret “{error.args[0]}” is missing."
        raise _wrong("backend_secret", said, "secrets") from error


def try_out(
    plumbing: Plumbing, backend: str, config: Mapping[str, Any], secrets: Mapping[str, str] | None = None
) -> Tried:
    """What the cluster answers to the backend's own probe. Raises `Invalid` as `refuse_wrong` does."""
    made = refuse_wrong(plumbing, backend, config, secrets)
    try:
        probe = ask(made, made.probe)
    except BackendError as error:
        return Tried(None, error.sentence)
    return Tried(probe)


def _described(name: str) -> Kind:
    """A backend says in the docstring of its module what it is (its beginning) and what it takes (the paragraph that
    begins with "Configuration:")."""
    try:
        text = inspect.getdoc(sys.modules[backend_class(name).__module__]) or ""
    except UnknownBackend as error:
        return Kind(name, str(error), "")
    paragraphs = [" ".join(part.split()).replace("`", "") for part in re.split(r"\n\s*\n", text)]
    settings = (
        next((p for p in paragraphs if p.startswith("Configuration:")), "").removeprefix("Configuration:").strip()
    )
    if name == "simulated":
        settings = "None is needed. Who wants to: " + settings.replace(" (required)", " (made in the data folder)")
    return Kind(name, _WHAT.get(name, paragraphs[0]), settings)


def _wrong(code: str, sentence: str, field: str) -> Invalid:
    return Invalid(code, sentence, (Reason(code, sentence, field=field, in_request=True),))
