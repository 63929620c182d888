"""Options that several verbs share."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from mlagen.app.texts import BuildTexts
from mlagen.cli.types import NAME, SEED

json_option = click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")

seed_option = click.option(
    "--seed", type=SEED, default=0, show_default=True, help="Of what is made up or drawn."
)

problem_option = click.option(
    "--problem",
    "problem_file",
    type=NAME,
    metavar="FILE.py",
    help="The schedule file that knows the problem of an ARTIFACT_DIR, where mlagen does not.",
)

_LAUNCH = (
    click.option(
        "--allow-outside",
        is_flag=True,
        help="Let the launch file read and write outside of its folder.",
    ),
    click.option(
        "--max-memory",
        type=click.IntRange(1),
        metavar="BYTES",
        help="Most that all buffers of the launch may have. Default: 256 MiB.",
    ),
)


def launch_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--allow-outside`, `--max-memory`: what a launch file may have of this machine."""
    for option in reversed(_LAUNCH):
        function = option(function)
    return function


_SCHEDULE = (
    click.option(
        "--target", type=NAME, help="What to build for. Default: what the schedule is for."
    ),
    click.option("--set", "fields", multiple=True, metavar="FIELD=VALUE", help="A problem field."),
    click.option("--knob", "knobs", multiple=True, metavar="NAME=VALUE", help="A schedule's knob."),
    click.option(
        "--templates",
        type=NAME,
        metavar="DIR",
        help="A folder of templates that go before the shipped ones.",
    ),
)
_UNPROVED = click.option(
    "--allow-unproved",
    is_flag=True,
    help="Build though the proof fails; the artifact is marked and never launched.",
)


def schedule_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--target`, `--set`, `--knob`, `--templates`."""
    for option in reversed(_SCHEDULE):
        function = option(function)
    return function


def build_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--target`, `--set`, `--knob`, `--templates`, `--allow-unproved`: one argument, `texts`."""

    @wraps(function)
    def command(
        *,
        target: str | None,
        fields: tuple[str, ...],
        knobs: tuple[str, ...],
        templates: str | None,
        allow_unproved: bool,
        **others: Any,
    ) -> Any:
        texts = BuildTexts(fields, knobs, target, templates, allow_unproved)
        return function(texts=texts, **others)

    return schedule_options(_UNPROVED(command))
