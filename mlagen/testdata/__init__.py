"""Deterministic inputs with the statistics that attention kernels meet, and some they should fear.

* `realistic`: a few outlier channels with a large common offset in Q and K; a sink (key 0, and the
  first key of every 509th position) that draws much of the attention and has a small V; token norms
  and values with heavy tails; neighbouring tokens alike, topics that come back; heads of different
  temperature.
* `randn`: independent standard normal numbers.
* `late_max`: row maxima grow by more than 8 in log2 units several times, most of them late: every
  rescale path runs.
* `falling`: the largest scores come first and all later tiles lie far below them.
* `jumps`: single keys that a few rows of every wave score far above all before them, some by more
  than 8 in log2 units and some by less: the vote of one row moves the others' maxima.
* `every_tile`: what a kernel does for each tile shows in the output: maxima that overflow where one
  is overlooked, rows that grow once, each at a tile of its own, and rows at rest. `mlagen verify`
  takes it where no data is asked for.

MLA prefill has three more: `half`, standard normal numbers times 0.5; `peaked`, queries times 8, so
that few keys matter; `constant`, one key repeated, so that O is a mean.

Partial results of split MLA prefill work (`mla_reduce_inputs`) have the first four kinds, of their
LSEs, and three more: `unseen`, partials that saw no key, of some lines all; `far`, weights over the
whole range of exponents; `every_partial`, each weighs more, or less, than all before it together.

MLA decode has the first four kinds; its latent rows are normalised, its sinks have small latents,
and its rotary columns turn with the position.

Where sequences have their own lengths each is made alone. Pages lie in the pool in random order,
among others that no sequence uses; whatever a pool or a cache holds that is no key is NaN, and
table entries behind a sequence's pages name an unused page or one that does not exist.

The same arguments give the same bits.
"""

from mlagen.testdata.common import NO_PAGE, SINK_EVERY, STEP
from mlagen.testdata.mha import KINDS, mha_inputs
from mlagen.testdata.mla_decode import MLA_DECODE_KINDS, mla_decode_inputs
from mlagen.testdata.mla_prefill import MLA_PREFILL_KINDS, mla_prefill_inputs
from mlagen.testdata.mla_reduce import MLA_REDUCE_KINDS, mla_reduce_inputs, planned_inputs

__all__ = [
    "KINDS",
    "MLA_DECODE_KINDS",
    "MLA_PREFILL_KINDS",
    "MLA_REDUCE_KINDS",
    "NO_PAGE",
    "SINK_EVERY",
    "STEP",
    "mha_inputs",
    "mla_decode_inputs",
    "mla_prefill_inputs",
    "mla_reduce_inputs",
    "planned_inputs",
]
