"""What each target has: capacities only, one frozen table a target, each number with its source."""

from mlagen.targets.gfx950 import GFX950, Gfx950

__all__ = ["GFX950", "Gfx950"]
