"""Pictures by matplotlib."""

from __future__ import annotations

import io
from typing import Any

from mlagen.disk import MARK
from mlagen.errors import required
from mlagen.extras import install


def new_figure(**options: Any) -> Any:
    """A figure that no window belongs to. MissingError without matplotlib."""
    why = "plots are made by matplotlib, which is not installed"
    return required("matplotlib.figure", why, install("plot")).Figure(**options)


def drawn(figure: Any, suffix: str, **options: Any) -> bytes:
    """The figure as a file of the kind that `suffix` names: ".png", ".svg", ".pdf"."""
    data = io.BytesIO()
    maker = "Software" if suffix == ".png" else "Creator"
    figure.savefig(data, format=suffix.removeprefix("."), metadata={maker: MARK}, **options)
    return data.getvalue()
