"""Pictures by matplotlib."""

from __future__ import annotations

import io
from typing import Any

from mlagen.errors import MissingError


def new_figure(**options: Any) -> Any:
    """A figure that no window belongs to. MissingError without matplotlib."""
    try:
        from matplotlib.figure import Figure  # type: ignore[import-not-found,unused-ignore]
    except ModuleNotFoundError:
        raise MissingError(
            "plots are made by matplotlib, which is not installed",
            hint="pip install 'mlagen[plot]'",
        ) from None
    return Figure(**options)


def drawn(figure: Any, suffix: str, **options: Any) -> bytes:
    """The figure as a file of the kind that `suffix` names: ".png", ".svg", ".pdf"."""
    data = io.BytesIO()
    figure.savefig(data, format=suffix.removeprefix("."), **options)
    return data.getvalue()
