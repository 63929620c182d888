"""Fixtures that several folders share."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from small_kernel import make

from mlagen.artifact import Artifact


@pytest.fixture(scope="session")
def make_artifact() -> Callable[..., Artifact]:
    """Makes the artifact of the small kernel; keyword arguments replace manifest fields."""
    return make


@pytest.fixture(scope="session")
def add_artifact() -> Artifact:
    """The artifact of the small kernel."""
    return make()
