"""sm_90a's own words: roles that are programs of their own, tiles in SMEM, mbarrier pipelines."""

from mlagen.targets.nvidia.dsl.filled import filled, tiles_of
from mlagen.targets.nvidia.dsl.pipeline import (
    PipelineSchedule,
    PipelineSpace,
    Stream,
    WarpRole,
    acquire,
    release,
)
from mlagen.targets.nvidia.dsl.smem import Exchange, Pipeline, Smem, TmaTile
from mlagen.targets.nvidia.dsl.tmem import Tmem, TmemRegion
from mlagen.targets.nvidia.dsl.tmem_tile import TmemTile

__all__ = [
    "Exchange",
    "Pipeline",
    "PipelineSchedule",
    "PipelineSpace",
    "Smem",
    "Stream",
    "TmaTile",
    "Tmem",
    "TmemRegion",
    "TmemTile",
    "WarpRole",
    "acquire",
    "filled",
    "release",
    "tiles_of",
]
