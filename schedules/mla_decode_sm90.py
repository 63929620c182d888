"""MLA decode on Hopper in the absorbed form 576 / 512. A block has up to 64 query rows of one
sequence (heads, or heads of several new tokens) and all of its keys or one split of them.

Up to 32 rows take the schedule of `schedules/shared/few_rows.py`, unless a knob says otherwise,
over stored rows that of `schedules/shared/few_widened.py`; others that of
`schedules/shared/two_halves.py`. With products of e4m3 it is `schedules/shared/few_e4m3.py` or
`schedules/shared/e4m3_products.py`.
"""

from mlagen.attention.latent.sm_90a.few_rows import is_few
from mlagen.dsl import schedule
from mlagen.families.mla_decode.problem import MlaDecodeConfig
from mlagen.families.mla_decode.sm_90a.operations import (
    few_e4m3_form,
    few_rows_form,
    few_widened_form,
)
from mlagen.schedules.shared.e4m3_products import e4m3_products
from mlagen.schedules.shared.few_e4m3 import few_e4m3
from mlagen.schedules.shared.few_rows import few_rows
from mlagen.schedules.shared.few_widened import few_widened
from mlagen.schedules.shared.two_halves import two_halves


def keys_are_rows(k, s):
    """Whether products have keys as their rows. Blocks that take several items have queries."""
    order = (0, 1) if str(s.knobs.chosen.get("persistent")) == "1" else (1, 0)
    return is_few(k) and s.choice("keys_as_rows", *order,
                                  comment="keys are the rows of products")  # fmt: skip


def keys_are_read(k, s):
    """Whether e4m3 keys become bf16 in the registers of who multiplies them."""
    ways = ("registers",) if k.rope_aware else ("registers", "smem")
    return s.choice("keys_from", *ways, comment="where products take keys from") == "registers"


@schedule(problem=MlaDecodeConfig, target="sm_90a")
def mla_decode_sm90(k, s):
    few, of_e4m3 = keys_are_rows(k, s), k.compute == "fp8"
    if few and of_e4m3:
        few_e4m3(k, s, few_e4m3_form)
    elif few and k.cache_dtype != "bf16" and keys_are_read(k, s):
        few_widened(k, s, few_widened_form)
    elif few:
        few_rows(k, s, few_rows_form)
    elif of_e4m3:
        e4m3_products(k, s)
    else:
        two_halves(k, s)
