"""MLA decode on Hopper in the absorbed form 576 / 512. A block has up to 64 query rows of one
sequence (heads, or heads of several new tokens) and all of its keys or one split of them.

`VARIANTS` has the forms, the usual one of a problem first. Swap-AB: keys are the rows of products,
query rows their columns, of which a block pays for as many as it has. Seesaw: two warpgroups take
turns at tiles, each with half of the output's columns.
"""

from functools import partial

from mlagen.attention.latent.block_sizes import BLOCK_ROWS
from mlagen.attention.latent.facts import Facts
from mlagen.attention.latent.order import HOPPER_E4M3, KEYS_AS_ROWS, SEESAW
from mlagen.attention.latent.sm_90a.swap_ab.kernel import is_few
from mlagen.dsl import Variant, schedule
from mlagen.families.mla_decode.orders import FROM_REGISTERS
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.families.mla_decode.sm_90a.paged import Paged
from mlagen.schedules.tables.seesaw import seesaw
from mlagen.schedules.tables.seesaw_qkv_fp8 import seesaw_qkv_fp8
from mlagen.schedules.tables.swap_ab import swap_ab
from mlagen.schedules.tables.swap_ab_split_roles import swap_ab_split_roles

by_keys = partial(Facts, rows=BLOCK_ROWS, swap_ab=True, combine="blocks")
by_queries = partial(Facts, rows=BLOCK_ROWS)


def one_item(k, knobs):
    """Swap-AB has no form whose blocks take one work item after another."""
    return str(knobs.get("persistent", 0)) != "1"


VARIANTS = (
    Variant(
        "swap_ab_qkv_fp8", "1 to 32 query rows, products of e4m3",
        table=lambda k, s: swap_ab(k, s, Paged),
        facts=lambda k, knobs: by_keys(HOPPER_E4M3),
        serves=lambda k: is_few(k) and k.compute == "fp8", usual=one_item,
    ),
    Variant(
        "swap_ab_kv_fp8", "1 to 32 query rows over e4m3 or rope-aware rows, f16 in registers",
        table=lambda k, s: swap_ab_split_roles(k, s, Paged),
        facts=lambda k, knobs: by_keys(FROM_REGISTERS[k.cache_dtype]),
        serves=lambda k: is_few(k) and k.compute != "fp8" and k.cache_dtype != "bf16",
        usual=one_item,
    ),
    Variant(
        "swap_ab", "1 to 32 query rows over bf16, or over e4m3 that a warpgroup makes bf16 in SMEM",
        table=lambda k, s: swap_ab(k, s, Paged),
        facts=lambda k, knobs: by_keys(KEYS_AS_ROWS),
        serves=lambda k: is_few(k) and k.compute != "fp8" and not k.rope_aware, usual=one_item,
    ),
    Variant(
        "seesaw_qkv_fp8", "any number of query rows, products of e4m3", table=seesaw_qkv_fp8,
        facts=lambda k, knobs: by_queries(HOPPER_E4M3, combine="blocks", roles=2),
        serves=lambda k: k.compute == "fp8",
    ),
    Variant(
        "seesaw", "any number of query rows, products of bf16", table=seesaw,
        facts=lambda k, knobs: by_queries(SEESAW, items="several", combine="fix_up")
        if knobs["persistent"] else by_queries(SEESAW),
        serves=lambda k: k.compute != "fp8",
    ),
)  # fmt: skip


@schedule(problem=MlaDecodeConfig, target="sm_90a", variants=VARIANTS)
def mla_decode_sm90(k, s, variant):
    variant.table(k, s)
