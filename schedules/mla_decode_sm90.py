"""MLA decode on Hopper in the absorbed form 576 / 512. A block has up to 64 query rows of one
sequence (heads, or heads of several new tokens) and all of its keys or one split of them.

`VARIANTS` has the forms, the usual one of a problem first. Swap-AB: keys are the rows of products,
query rows their columns, of which a block pays for as many as it has. Seesaw: two warpgroups take
turns at tiles, each with half of the output's columns.

The tables are `schedules/tables/swap_ab.py`, `seesaw.py` and `seesaw_qkv_fp8.py`. That of more than
32 query rows over bf16, seesaw's:

| left, tiles i and i + 1           | right, tiles i + 1 and i                           |
|-----------------------------------|----------------------------------------------------|
| softmax(i); O += P(i) V(i)        | softmax(i+1), after the left one's maximum         |
| P(i) to SMEM; O += P(i+1) V(i+1)  | P(i+1) to SMEM; O += P(i+1) V(i+1), then P(i) V(i) |
| columns 0..255 of i+2, i+3 by TMA | columns 256..575 of i+3, i+2 by TMA                |
| S(i+2) = Q K(i+2)                 | S(i+3) = Q K(i+3)                                  |

| memory    | what lies there                                                               |
|-----------|-------------------------------------------------------------------------------|
| SMEM      | 231424 of 232448 bytes: Q 64 x 576; K 64 x 576, two slots: tiles of 64        |
|           | columns, 128 bytes wide; P 64 x 64 each way, one over the end of Q; M, l      |
| registers | a thread: left 256, right 256; of them O 128, S 32, P 16, the end of Q 32     |
"""

from functools import partial

from mlagen.attention.latent.order import HOPPER_E4M3, KEYS_AS_ROWS
from mlagen.attention.latent.sm_90a.seesaw.kernel import SeesawKnobs
from mlagen.attention.latent.sm_90a.swap_ab.kernel import is_few
from mlagen.dsl import Variant, schedule
from mlagen.families.mla_decode import costs
from mlagen.families.mla_decode.orders import FROM_REGISTERS
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.families.mla_decode.sm_90a.facts import (
    seesaw_facts,
    seesaw_qkv_fp8_facts,
    swap_ab_facts,
)
from mlagen.families.mla_decode.sm_90a.operations import mla_decode
from mlagen.families.mla_decode.sm_90a.paged import Paged
from mlagen.schedules.tables.seesaw import seesaw
from mlagen.schedules.tables.seesaw_qkv_fp8 import seesaw_qkv_fp8
from mlagen.schedules.tables.swap_ab import swap_ab, swap_ab_split_roles


def ptxas_13_0(k, refill):
    """What ptxas 13.0 spills otherwise over an e4m3 cache, as four warpgroups start with 128
    registers a thread: how many of them may convert; by that, registers of left, right, feeder."""
    many = k.rope_aware and (k.dtype != "bf16" or (k.window > 0 and k.q_len > 1))
    two = refill == "early" and k.page_size % 64 == 0 and not many
    single = k.page_size == 1 and not k.rope_aware
    return (2, 1) if two else (1,), {
        1: (232, 224, 48) if single else (232, 232, 40), 2: (224, 224, 32)
    }  # fmt: skip


def seesaw_knobs(k, s):
    """Seesaw's. An e4m3 cache, single rows and small pages leave some of them one choice."""
    converted, boxed = k.cache_dtype != "bf16", k.page_size > 1
    persistent = s.choice("persistent", *((0,) if converted or k.dtype != "bf16" else (0, 1)),
                          comment="blocks take one work item after another (all bf16)")  # fmt: skip
    # A thread looks up several small pages a tile: more items or tokens leave it no registers.
    few = converted or (k.page_size < 64 and (persistent or k.q_len > 1))
    boxes = s.choice("boxes", *((2,) if converted else (2, 1, 4)),
                     comment="tiles of 64 columns that share a barrier")  # fmt: skip
    held = s.choice("held", *((1,) if few else (2, 1)),
                    comment="tiles of 64 columns of Q in registers")  # fmt: skip
    refill = s.choice("left_refill", *(("early", "late") if converted else ("late", "early")),
                      comment="before the left one stores its P, or after it")  # fmt: skip
    ahead = s.choice("ahead", *((0, 1) if boxed else (0,)),
                     comment="passes ahead that tiles are prefetched to L2")  # fmt: skip
    evict = s.choice("evict", *(("normal", "first") if boxed else ("normal",)),
                     comment="how soon L2 evicts the cache's rows")  # fmt: skip
    feeders, registers = 0, {0: (256, 256, 0)}
    if converted:
        counts, registers = ptxas_13_0(k, refill)
        feeders = s.choice("feeders", *counts, comment="warpgroups that convert e4m3 to bf16")
    knobs = SeesawKnobs(boxes, held, refill, ahead, evict, bool(persistent), feeders)
    return knobs, registers[feeders]


def one_item(k, knobs):
    """Swap-AB has no form whose blocks take one work item after another."""
    return str(knobs.get("persistent", 0)) != "1"


VARIANTS = (
    Variant("swap_ab_qkv_fp8", "1 to 32 query rows, products of e4m3",
            table=partial(swap_ab, paged=Paged),
            facts=swap_ab_facts(lambda k: HOPPER_E4M3, lambda k: costs.SWAP_AB_QKV_FP8),
            serves=lambda k: is_few(k) and k.compute == "fp8", usual=one_item),
    Variant("swap_ab_kv_fp8", "1 to 32 query rows over e4m3 or rope-aware rows, f16 in registers",
            table=partial(swap_ab_split_roles, paged=Paged),
            facts=swap_ab_facts(lambda k: FROM_REGISTERS[k.cache_dtype], costs.swap_ab),
            serves=lambda k: is_few(k) and k.compute != "fp8" and k.cache_dtype != "bf16",
            usual=one_item),
    Variant("swap_ab", "1 to 32 query rows over bf16, or e4m3 that a warpgroup makes bf16 in SMEM",
            table=partial(swap_ab, paged=Paged),
            facts=swap_ab_facts(lambda k: KEYS_AS_ROWS, costs.swap_ab),
            serves=lambda k: is_few(k) and k.compute != "fp8" and not k.rope_aware,
            usual=one_item),
    Variant("seesaw_qkv_fp8", "any number of query rows, products of e4m3", table=seesaw_qkv_fp8,
            facts=seesaw_qkv_fp8_facts, serves=lambda k: k.compute == "fp8"),
    Variant("seesaw", "any number of query rows, products of bf16",
            table=lambda k, s: seesaw(k, s, seesaw_knobs, mla_decode),
            facts=seesaw_facts, serves=lambda k: k.compute != "fp8"),
)  # fmt: skip


@schedule(problem=MlaDecodeConfig, target="sm_90a", variants=VARIANTS)
def mla_decode_sm90(k, s, variant):
    variant.table(k, s)
