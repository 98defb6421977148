"""A data folder for tests that start servers of their own."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def folder() -> Iterator[Path]:
    """Empty, and gone afterwards."""
    yield from _folder()


@pytest.fixture(scope="module")
def kept_folder() -> Iterator[Path]:
    """The same for all tests of a module: making a database folder takes longer than everything else."""
    yield from _folder()


def _folder() -> Iterator[Path]:
    """Not pytest's `tmp_path`: pytest shuts the folder above that to all others each time it starts anywhere, and
    where we are root PostgreSQL is another user who has to walk through it."""
    made = Path(tempfile.mkdtemp(prefix="berth-setup-"))
    yield made
    shutil.rmtree(made, ignore_errors=True)
