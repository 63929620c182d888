"""A tuner of the toy space as a process of its own: STORE JUDGE JOBS."""

from __future__ import annotations

import sys
from pathlib import Path

import toy_judges
from toy_question import SPACE, question

from mlagen.tune.judge import Described
from mlagen.tune.session import TuneRequest, TuneResult, search_described
from mlagen.tune.store import Store
from mlagen.tune.workers import LocalWorkers, Workers


def toy(
    store: Store,
    judge: str,
    jobs: int = 2,
    *,
    limit: float = 20.0,
    workers: Workers | None = None,
    **request: object,
) -> TuneResult:
    described = Described(question(), SPACE, SPACE.default, (), {"code": "now"})
    made = workers or LocalWorkers(jobs, getattr(toy_judges, judge), limit)
    asked = TuneRequest("toy", {}, limit=limit, **request)  # type: ignore[arg-type]
    return search_described(described, asked, store, made)


if __name__ == "__main__":
    toy(Store(Path(sys.argv[1])), sys.argv[2], int(sys.argv[3]))
