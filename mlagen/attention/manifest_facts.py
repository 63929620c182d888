"""What a manifest says of its kernel, as a family reads it."""

from __future__ import annotations

from typing import Literal, TypeVar

import msgspec

from mlagen.artifact import Manifest
from mlagen.errors import BinaryError

# "one": a block has one work item; "several": those of its share of the plan; "aiter": the same,
# with the arguments of AITER's host code.
Items = Literal["one", "several", "aiter"]
T = TypeVar("T")


def read_facts(manifest: Manifest, facts: type[T]) -> T:
    """Those of a kernel. BinaryError: its manifest has none, or none that a kernel can have."""
    try:
        return msgspec.convert(manifest.facts, facts)
    except msgspec.ValidationError as error:
        raise BinaryError(
            f"the manifest of {manifest.kernel} does not say how it computes: {error}",
            hint="build it again with this version of mlagen",
        ) from error
