"""Options that several verbs share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

json_option = click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")

_BUILD = (
    click.option("--target", help="What to build for. Default: what the schedule is for."),
    click.option("--set", "fields", multiple=True, metavar="FIELD=VALUE", help="A problem field."),
    click.option("--knob", "knobs", multiple=True, metavar="NAME=VALUE", help="A schedule's knob."),
    click.option(
        "--templates", metavar="DIR", help="A folder of templates that go before the shipped ones."
    ),
    click.option(
        "--allow-unproved",
        is_flag=True,
        help="Build though the proof fails; the artifact is marked and never launched.",
    ),
)


def build_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--target`, `--set`, `--knob`, `--templates`, `--allow-unproved`."""
    for option in reversed(_BUILD):
        function = option(function)
    return function
