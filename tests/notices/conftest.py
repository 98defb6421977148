"""A small company whose installation sends mail to a server of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.notices.server import MailServer
from tests.world import World, make_world, nodes_csv


@pytest.fixture
def server() -> Iterator[MailServer]:
    made = MailServer()
    yield made
    made.close()


@pytest.fixture
def world(database, tmp_path, server: MailServer) -> Iterator[World]:
    made = make_world(database, tmp_path, csv=nodes_csv(1))
    sends_by(made, server, smtp_tls="none")
    yield made
    made.close()


def sends_by(world: World, server: MailServer, **words: object) -> None:
    """Set the world's mail server, as settings would."""
    settings = world.plumbing.settings.with_values(
        smtp_host="127.0.0.1",
        smtp_port=server.port,
        mail_from="Berth <berth@physics.example>",
        base_url="https://berth.physics.example",
        **words,
    )
    world.plumbing = replace(world.plumbing, settings=settings)
