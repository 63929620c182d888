"""`--force`: whether files that mlagen did not make may be replaced."""

from __future__ import annotations

import click

_FORCED = "mlagen.forced"


def _force(ctx: click.Context, option: click.Parameter, given: bool) -> None:
    if given:
        ctx.meta[_FORCED] = True


# Eager: read before the names of files are, wherever it stands.
force_option = click.option(
    "--force",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_force,
    help="Replace files that mlagen did not make, too.",
)


def forced() -> bool:
    """Whether this command was given `--force`."""
    return bool(click.get_current_context().meta.get(_FORCED, False))
