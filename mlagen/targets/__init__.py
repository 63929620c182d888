"""What each target has: capacities only, one frozen table a target, each number with its source."""

from mlagen.targets.gfx950 import GFX950, Gfx950
from mlagen.targets.sm_90a import SM_90A, Sm90a

__all__ = ["GFX950", "SM_90A", "Gfx950", "Sm90a"]
