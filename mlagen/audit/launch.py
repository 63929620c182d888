"""What an audit is told of a launch, for either target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Triple = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class KnownLaunch:
    """How a kernel is launched, as far as it is known; None: not known.

    `grid`: workgroups (blocks) in x, y, z. `block`: threads of one. `cluster`: blocks of a CTA
    cluster. `dynamic_bytes`: LDS or shared memory that is asked for beyond what the code declares.
    `arguments`: bytes of the argument segment by their offset; those of pointers are not known.
    """

    grid: Triple | None = None
    block: Triple | None = None
    cluster: Triple | None = None
    dynamic_bytes: int | None = None
    arguments: Mapping[int, int] = field(default_factory=dict)

    def number(self, offset: int, size: int, *, signed: bool = False) -> int | None:
        """The argument of `size` bytes at an offset; None where a byte is not known."""
        held = [self.arguments.get(offset + at) for at in range(size)]
        known = [byte for byte in held if byte is not None]
        if len(known) < size:
            return None
        return int.from_bytes(bytes(known), "little", signed=signed)


NOT_KNOWN = KnownLaunch()
