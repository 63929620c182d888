"""A question that no kernel has to answer, and where the judges of it lie."""

from __future__ import annotations

from pathlib import Path

from mlagen.tune.space import Dimension, SearchSpace
from mlagen.tune.values import Question

HERE = Path(__file__).parent
BROKEN = str(HERE / "broken_merge.py")


def question(**changes: object) -> Question:
    """A question that no kernel has to answer."""
    fields = {
        "kernel": "toy", "name": "toy", "target": "gfx950", "problem_type": "Toy",
        "problem": {"size": 1}, "shape": {"n": 64}, "cost": "predicted",
        "device": {"name": "a toy model"}, **changes,
    }  # fmt: skip
    return Question(**fields)  # type: ignore[arg-type]


SPACE = SearchSpace(
    (Dimension("a", (0, 1, 2, 3, 4)), Dimension("b", ("x", "y", "z")), Dimension("c", (8, 4, 2)))
)
