"""Rows of a CTA pair that land in the own block before they are handed on to the leader."""

from __future__ import annotations

from mlagen.targets.nvidia.dsl import Pipeline, PipelineSpace


def landing(s: PipelineSpace, name: str, whole: Pipeline) -> Pipeline:
    """The pipeline that rows land by, in the tiles of the one that they are handed on by."""
    tiles = (s.smem.tile(f"{name}{n}", "cache", rows=x.rows, row_bytes=128, slots=x.slots, over=x)
             for n, x in enumerate(whole.tiles))  # fmt: skip
    return s.smem.pipeline(
        f"raw {whole.name}", *tiles, producer=whole.producer, consumer=whole.producer,
        producer_threads=whole.producer_threads, within=whole,
    )  # fmt: skip
