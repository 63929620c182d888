"""What tests of the tuner share: a store of their own, a question, judges that need no kernel."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mlagen import env
from mlagen.tune.judge import Described
from mlagen.tune.space import SearchSpace
from mlagen.tune.store import Store

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # judges are found by their module, in other processes too

from toy_question import SPACE, question  # noqa: E402


@pytest.fixture(autouse=True)
def own_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No test sees a user's store."""
    path = tmp_path / "tuning.sqlite"
    monkeypatch.setenv(env.TUNING, str(path))
    monkeypatch.setenv("PYTHONPATH", f"{HERE}:{HERE.parents[1]}")
    return path


@pytest.fixture
def store(own_store: Path) -> Iterator[Store]:
    made = Store(own_store)
    yield made
    made.close()


@pytest.fixture
def described() -> Callable[..., Described]:
    """A description of the toy's question."""

    def make(space: SearchSpace = SPACE, **changes: object) -> Described:
        return Described(question(**changes), space, space.default, (), {"code": "now"})

    return make
