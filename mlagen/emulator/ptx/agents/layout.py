"""Records of agents: operations on their way, mbarriers, named barriers, groups."""

from __future__ import annotations

from typing import Final

OPS: Final = 4096  # slots of the ring
OP_SIZE: Final = 32  # int64 a slot
OP_DATA: Final = 96  # int64 more, a slot
MBARRIERS: Final = 64  # of a CTA
MB_SIZE: Final = 16
NAMED: Final = 17  # of a CTA: 16 barriers; the last is the cluster's, in the first CTA's table
NB_SIZE: Final = 16
GROUPS: Final = 64  # int64 a warp
