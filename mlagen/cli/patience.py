"""A limit on the processor time and memory of a command that takes a stranger's file apart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from mlagen.errors import UnsupportedError
from mlagen.untrusted import SECONDS, Spent, within

seconds_option = click.option(
    "--max-seconds",
    type=click.IntRange(1),
    default=int(SECONDS),
    show_default=True,
    help="Most processor time; a large kernel may need more.",
)


@contextmanager
def at_most(seconds: int, what: str) -> Iterator[None]:
    """UnsupportedError when the body takes more than `within` gives it."""
    try:
        with within(seconds):
            yield
    except Spent as spent:
        raise UnsupportedError(f"{what} met {spent}", hint="--max-seconds allows more") from None
