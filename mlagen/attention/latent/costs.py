"""What the work of a kernel over latent rows costs: its variant says it, planners split by it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec

# Microseconds. A manifest, which may be a stranger's, is held to these limits.
Time = Annotated[float, msgspec.Meta(ge=0.0, le=1000.0)]
Tile = Annotated[float, msgspec.Meta(ge=0.01, le=1000.0)]
Crowd = Annotated[tuple[tuple[Time, Time], ...], msgspec.Meta(min_length=1, max_length=8)]
Factor = Annotated[float, msgspec.Meta(ge=0.5, le=1.0)]
# Where pieces of different lengths are cut, if they are estimated to end earlier. "crowded": more
# row blocks than run at once; "shared": or several row blocks of a sequence; "always": of any call.
Uneven = Literal["never", "crowded", "shared", "always"]


@dataclass(frozen=True, slots=True)
class Costs:
    """Microseconds. `start` and `tile`: of an item alone on the GPU and of each of its tiles.
    `crowd`: what is added where every SM has one, the least of these (once, for each tile). `pair`
    and `loop`: once, of code that items of one tile, or up to two, do not reach, where other
    kernels ran in between. `merge`: of the second kernel; `part`: of the rows of a part that it
    reads, twice as much where they are in two parts. `together` and `of_each`: where blocks put
    parts together, once and for each part of a row block. `follows`: what an item takes less where
    it follows another one on its SM. `uneven`: where pieces of different lengths are tried, and
    `gain`: they must be estimated to end earlier by this factor. `further`: of another item of a
    block that takes several, in place of `start`; None: shares are cut by tiles alone."""

    start: Time = 9.5
    tile: Tile = 1.5
    crowd: Crowd = ((4.0, 0.75), (11.0, 0.15))
    pair: Time = 1.5
    loop: Time = 1.0
    merge: Time = 1.5
    part: Time = 0.025
    together: Time = 2.1
    of_each: Time = 0.015
    follows: Time = 12.0
    uneven: Uneven = "shared"
    gain: Factor = 0.99
    further: Time | None = None

    def item(self, tiles: Any, share: float) -> Any:
        """An item of so many tiles where this share of the SMs has one at the same time."""
        import numpy as np  # for plans; a build of the kernel does without

        added = np.min([once + each * tiles for once, each in self.crowd], axis=0)
        alone: Any = self.start + self.tile * tiles
        return alone + share**1.5 * added

    def once(self, longest: int, parts: float) -> float:
        """What comes once: code that is not there yet, and the merge of so many parts."""
        code = self.pair * (longest > 1) + self.loop * (longest > 2)
        return code + (self.merge + self.part * parts if parts else 0.0)
