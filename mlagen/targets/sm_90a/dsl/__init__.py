"""sm_90a's own words: roles that are programs of their own, tiles in SMEM, mbarrier pipelines."""

from mlagen.targets.sm_90a.dsl.pipeline import (
    PipelineSchedule,
    PipelineSpace,
    Stream,
    WarpRole,
    release,
)
from mlagen.targets.sm_90a.dsl.smem import Exchange, Pipeline, Smem, TmaTile

__all__ = [
    "Exchange",
    "Pipeline",
    "PipelineSchedule",
    "PipelineSpace",
    "Smem",
    "Stream",
    "TmaTile",
    "WarpRole",
    "release",
]
