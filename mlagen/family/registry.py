"""Where a family is found: registered by a schedule's file, shipped, or in an installed package.

Shipped families are the folders of `mlagen/families`, each with its `FAMILY`. A package that is
installed names its own in the entry-point group `mlagen.families`, as
`name = "package.module:FAMILY"`. Nothing is imported before a family is asked for by its name.
"""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from mlagen.errors import ConfigError, MissingError
from mlagen.family.base import Family

if TYPE_CHECKING:
    from mlagen.artifact import Artifact

GROUP = "mlagen.families"
_registered: dict[str, Family] = {}


def register(family: Family) -> None:
    """Make a family known, under its name; what had that name before is replaced. ConfigError for
    the name of a shipped one."""
    if family.name in _shipped():
        raise ConfigError(
            f"the family {family.name} ships with mlagen and cannot be replaced",
            hint="another name, as the problem class's `family` says",
        )
    _registered[family.name] = family


def family_named(name: str) -> Family | None:
    """The family of that name; None where nothing that was loaded or installed brings it.
    MissingError: a package brings it and cannot be imported."""
    if name in _registered:
        return _registered[name]
    if name in _shipped():
        found: Family = import_module(f"mlagen.families.{name}").FAMILY
        return found
    for point in entry_points(group=GROUP, name=name):
        _registered[name] = _loaded(point)
        return _registered[name]
    return None


def family_of(artifact: Artifact) -> Family:
    """The family that the artifact's problem is of. ConfigError: nothing here brings it."""
    manifest = artifact.manifest
    found = family_named(manifest.family)
    if found is not None:
        return found
    known = sorted(
        {*_shipped(), *_registered, *(point.name for point in entry_points(group=GROUP))}
    )
    what = f"of the family {manifest.family!r}" if manifest.family else "of no family"
    hint = (
        f"name the file that registers it: --problem FILE.py "
        f"(it was built from {manifest.schedule_file})"
        if manifest.family
        else f"register one in {manifest.schedule_file}, and name it in {manifest.problem_type}: "
        'family = "NAME" (docs/first_kernel.md)'
    )
    raise ConfigError(
        f"{manifest.kernel} solves a {manifest.problem_type} {what}, and nothing here knows its "
        f"inputs and oracles (known: {', '.join(known)})",
        hint=hint,
    )


def shipped() -> tuple[Family, ...]:
    """The families that come with mlagen, by name."""
    found = (family_named(name) for name in sorted(_shipped()))
    return tuple(family for family in found if family is not None)


@cache
def _shipped() -> frozenset[str]:
    folder = import_module("mlagen.families").__path__
    return frozenset(module.name for module in pkgutil.iter_modules(folder) if module.ispkg)


def _loaded(point: EntryPoint) -> Family:
    try:
        found = point.load()
    except Exception as error:  # a package may raise anything while it is imported
        raise MissingError(
            f"the family {point.name} is {point.value} of an installed package, which cannot be "
            f"loaded: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(found, Family):
        raise ConfigError(
            f"{point.value}, the entry point of the family {point.name}, is a "
            f"{type(found).__name__}, not a mlagen.family.Family"
        )
    return found
