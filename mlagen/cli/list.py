"""`mlagen list`: kernels with their targets, fields and knobs, or what was built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from mlagen.app.texts import assignments
from mlagen.cli.options import json_option
from mlagen.cli.printing import (
    print_facts,
    print_json,
    print_line,
    print_table,
    print_text,
    readable_bytes,
)
from mlagen.cli.types import NAME
from mlagen.errors import ConfigError

if TYPE_CHECKING:
    from mlagen.app.catalogue import Field, KernelEntry


@click.command("list")
@click.argument("kernel", type=NAME, required=False)
@click.option("--target", type=NAME, help="Which of a file's schedules.")
@click.option("--set", "fields", multiple=True, metavar="FIELD=VALUE",
              help="A problem field: which knobs KERNEL has hangs on its problem.")  # fmt: skip
@click.option("--knob", "knobs", multiple=True, metavar="NAME=VALUE",
              help="A knob, on which others may hang.")  # fmt: skip
@click.option("--built", is_flag=True, help="List the artifacts in the store instead.")
@json_option
def command(
    kernel: str | None,
    target: str | None,
    fields: tuple[str, ...],
    knobs: tuple[str, ...],
    built: bool,
    as_json: bool,
) -> None:
    """List kernels; with KERNEL (a name or a schedule file), its fields, and its knobs with what
    they may be: those of the problem that --set says, of an example without."""
    if (built or kernel is None) and (fields or knobs or target is not None):
        raise ConfigError(
            "--set, --knob and --target say of which problem one KERNEL's knobs are listed",
            hint="mlagen list KERNEL --set FIELD=VALUE",
        )
    if built:
        if kernel is not None:
            raise ConfigError(f"--built lists all artifacts of the store, not {kernel}")
        _built(as_json)
        return
    from mlagen.app.catalogue import describe, summaries

    if kernel is None:
        kernels = summaries()
        if as_json:
            print_json("list", {"kernels": kernels})
            return
        rows = [(k.name, k.target, k.problem, ", ".join(k.knobs), k.doc) for k in kernels]
        print_table("kernels", ("name", "target", "problem", "knobs", "what it is"), rows)
        click.echo("\nmlagen list KERNEL shows a kernel's fields and knobs.")
        return
    entry = describe(
        kernel, assignments("--set", fields), assignments("--knob", knobs), target=target
    )
    if as_json:
        print_json("list", {"kernels": [entry]})
        return
    facts = [("kernel", entry.name), ("target", entry.target), ("problem", entry.problem)]
    print_facts(facts)
    click.echo()
    print_text(entry.doc)
    _print_fields(entry.fields)
    click.echo()
    if entry.variants:
        print_table(
            "variants (--knob variant=NAME)",
            ("name", "here", "for"),
            [(one.name, one.here, one.use) for one in entry.variants],
        )
        click.echo()
    _print_knobs(entry)
    for knob in entry.knobs:
        for choice, why in knob.refused.items():
            print_line(f"  {knob.name}={choice} is refused here: {why}")
    if not fields:
        click.echo("\nAnother problem may have other knobs: --set FIELD=VALUE.")


def _print_knobs(entry: KernelEntry) -> None:
    columns: tuple[str, ...] = ("knob", "choices, the default first", "what it does")
    rows: list[tuple[str, ...]] = [(k.name, k.legal, k.comment) for k in entry.knobs]
    if entry.knob:
        columns = (*columns[:2], "value", columns[2])
        rows = [(*row[:2], k.value, row[2]) for row, k in zip(rows, entry.knobs, strict=True)]
    said = ", ".join(f"{name}={value}" for name, value in {**entry.set, **entry.knob}.items())
    of = f" with {said}" if said else ""
    title = f"knobs (--knob NAME=VALUE){of}, in {entry.table}"
    if rows:
        print_table(title, columns, rows)
    else:
        print_line(f"{title}: none")


def _print_fields(fields: Sequence[Field]) -> None:
    columns: tuple[str, ...] = ("field", "type", "default", "legal values", "what it is")
    rows: list[tuple[str, ...]] = [(f.name, f.type, f.default, f.legal, f.meaning) for f in fields]
    if not any(f.meaning for f in fields):  # a problem of somebody's own
        columns, rows = columns[:3], [row[:3] for row in rows]
    print_table("fields (--set FIELD=VALUE)", columns, rows)


def _built(as_json: bool) -> None:
    from mlagen.app.catalogue import stored

    store = stored()
    if as_json:
        print_json("list.built", store)
        return
    for artifact in store.artifacts:
        print_facts(
            [
                ("kernel", f"{artifact.kernel} for {artifact.target}, {artifact.proof}"),
                ("problem", artifact.problem or "no fields"),
                ("knobs", artifact.knobs or "none"),
                ("schedule", artifact.schedule),
                ("built", f"{artifact.built}, {readable_bytes(artifact.bytes)}"),
                ("folder", artifact.directory),
            ]
        )
        click.echo()
    for damaged in store.damaged:
        click.echo(f"damaged: {damaged}")
    count = len(store.artifacts)
    click.echo(f"{count} artifact{'s' * (count != 1)}; mlagen cache has their size")
    if others := len(store.other_versions):
        click.echo(f"{others} of another version: mlagen cache --clean")
