"""Fixtures that several folders share."""

from __future__ import annotations

import os
from collections.abc import Callable

# The tests run in several processes: BLAS threads would fight for the same cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

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
