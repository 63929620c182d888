"""The packages that parts of mlagen need, as what a user types to install them.

They are named by their own names: mlagen itself is on no package index, so a command that named it
there would install whatever somebody else puts under that name.
"""

from __future__ import annotations

import importlib.metadata
import re

_EXTRA = re.compile(r"extra\s*==\s*['\"](\w+)")


def install(extra: str = "") -> str:
    """The command that installs what an extra of mlagen's brings; "": what all of it needs."""
    try:
        requirements = importlib.metadata.requires("mlagen") or []
    except importlib.metadata.PackageNotFoundError:  # a checkout that nobody installed
        requirements = []
    wanted = []
    for requirement in requirements:
        package, _, marker = requirement.partition(";")
        found = _EXTRA.search(marker)
        if (found.group(1) if found else "") == extra:
            plain = re.fullmatch(r"[\w.-]+", package.strip())
            wanted.append(package.strip() if plain else f"'{package.strip()}'")
    if not wanted:
        named = f"what the extra {extra!r}" if extra else "what `dependencies`"
        return f"install {named} of mlagen's pyproject.toml names"
    return "pip install " + " ".join(sorted(wanted))
