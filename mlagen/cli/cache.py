"""`mlagen cache`: what is kept between runs, and removing it."""

from __future__ import annotations

import click

from mlagen.cli.options import json_option
from mlagen.cli.printing import print_json, print_table, readable_bytes, say

_SHOWN = 20  # things that are not mlagen's


@click.command("cache")
@click.argument("names", nargs=-1, metavar="[NAME]..")
@click.option("--clean", is_flag=True, help="Remove what NAMEs say; without them all but tuning.")
@json_option
def command(names: tuple[str, ...], clean: bool, as_json: bool) -> None:
    """Show what mlagen keeps on this machine, where and how big, or remove it.

    Only what mlagen made is shown and removed. Anything else that lies there stays and is named; no
    link is followed.

    NAME is kernels (what was built into the store), engine (the emulator of gfx950, compiled),
    ptx_engine (that of PTX), model (that of mlagen simulate, compiled), scratch (folders that
    killed builds left) or tuning (what mlagen tune found, which takes long to find again and is
    removed only when it is named).
    """
    from mlagen.app.kept import kept, remove

    if names and not clean:
        raise click.UsageError(f"{' '.join(names)}: names say what --clean removes")
    rows = remove(names) if clean else kept()
    if as_json:
        print_json("cache", {"removed" if clean else "kept": rows})
        return
    table = [(each.name, str(each.count), readable_bytes(each.bytes), each.path) for each in rows]
    print_table("removed" if clean else "kept", ("name", "count", "size", "where"), table)
    left = [line for each in rows for line in each.left]
    for line in left[:_SHOWN]:
        say(f"left  {line}")
    if len(left) > _SHOWN:
        say(f"left  {len(left) - _SHOWN} more (--json names all)")
