"""Top-k sparse MLA on Hopper: the operations of `Seesaw` over rows that lists name."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from mlagen.attention.latent.nvidia.sizes import ROWS
from mlagen.attention.latent.sm_90a.form import Form, OwnRegisters
from mlagen.attention.latent.sm_90a.seesaw.fed import Fed, Rounded
from mlagen.attention.latent.sm_90a.seesaw.gathered import SeesawGathered
from mlagen.attention.latent.sm_90a.seesaw.grains import OWN_TEMPLATES as OF_GRAINS
from mlagen.attention.latent.sm_90a.seesaw.grains import Grains
from mlagen.attention.latent.sm_90a.seesaw.kernel import SeesawKernel, SeesawKnobs
from mlagen.attention.latent.sm_90a.seesaw.math_roles import Seesaw
from mlagen.errors import UnsupportedError
from mlagen.families.mla_sparse.decode_problem import MlaSparseDecodeConfig
from mlagen.families.mla_sparse.nvidia.row_forms import row_form
from mlagen.families.mla_sparse.nvidia.signature import (
    DECODE_SYMBOL,
    SYMBOL,
    decode_signature,
    signature,
)
from mlagen.families.mla_sparse.prefill_problem import MlaSparsePrefillConfig
from mlagen.targets.nvidia.dsl import PipelineSpace, WarpRole

Problem = MlaSparsePrefillConfig | MlaSparseDecodeConfig

UNIT = OwnRegisters("unit", "unit", ".b32", "this block's heads of a query, among all queries'")
OWN_LIST = OwnRegisters(
    "own_list", "listed", ".b32", "two keys of the list of this warp's next tile", 2
)
BOUND = OwnRegisters("bound", "bound", ".b32", "rows that an index of that tile may name")
NEXT = (
    OwnRegisters("next_unit", "next_unit", ".b32", "number of the next item"),
    OwnRegisters("query", "next_query", ".b32", "of the next item: its query"),
    OwnRegisters("length", "next_length", ".b32", "of the next item: keys of its list"),
)


def _templates(folder: str, *names: str, **others: str) -> dict[str, str]:
    files = {**{name: name for name in names}, **others}
    return {name: f"mla_sparse/{folder}/{file}" for name, file in files.items()}


BY_QUERIES = _templates(
    "queries_as_rows", "setup", "setup_block", "next_item", "next_keys", "next_tiles", "begin",
    "load_list", "row_maximum", "find_rows", "fetch_rows", next_page="look_up",
) | {"finish": "output/listed_seesaw"}  # fmt: skip
FOUND = (
    OwnRegisters("src", "src", ".b64", "where this thread's rows of the next two tiles lie", 8),
    OwnRegisters("there", "there", ".b32", "which of them are rows, a bit each", 2),
)
BY_FEEDER = {
    **_templates("queries_as_rows", "setup", "row_maximum"),
    "finish": "output/listed_seesaw",
    **_templates("fed_rows", "look_up", "find_rows", "fetch", "convert", "publish"),
    **{name: f"grained/{name}" for name in OF_GRAINS},
}


@dataclass(frozen=True, slots=True)
class ListedRows:
    """The problem as `Seesaw` knows one: rows that lie anywhere, all of which a query sees."""

    num_heads: int
    d_qk: int
    d_v: int
    dtype: str
    cache_dtype: str
    num_kv_heads: int = 1
    page_size: int = 1
    q_len: int = 1
    causal: bool = False
    window: int = 0
    rope_aware: bool = False
    rope_aware_queries: bool = False
    compute: str = "bf16"

    @property
    def cache_columns(self) -> int:
        return self.d_qk

    @property
    def q_columns(self) -> int:
        return self.d_qk


SPLIT = OwnRegisters("split", "split", ".b32", "which split of its keys")
EXTRA = (
    OwnRegisters("main", "main", ".b32", "tiles of the first list"),
    OwnRegisters("extra_table", "extra_table", ".b64", "the query's second list"),
    OwnRegisters("extra_keys", "extra_keys", ".b32", "keys of that list"),
)
CAUSAL = (
    OwnRegisters("positions", "positions", ".b64", "positions of the list's keys"),
    OwnRegisters("last", "last", ".b32", "the position up to which this query sees keys"),
)
WHERE = OwnRegisters(
    "where", "where", ".b32", "positions of two keys of this thread's next tile", 2
)
PAGE_WHERE = OwnRegisters(
    "page_where", "page_where", ".b32", "positions of rows that this thread fetches next", 8
)


def by_queries(
    k: Problem,
    s: PipelineSpace,
    left: WarpRole,
    right: WarpRole,
    feeder: WarpRole,
    knobs: SeesawKnobs,
) -> Seesaw:
    """The operations of one sparse kernel whose blocks have up to 64 heads of a query."""
    stored, threads = row_form(k), s.roles[-1].warps.stop * 32
    rows = None if knobs.grained else ROWS
    if isinstance(k, MlaSparseDecodeConfig):
        told, symbol = decode_signature(k, threads, rows=rows), DECODE_SYMBOL
        own = (SPLIT, *(EXTRA if k.extra else ()), *(CAUSAL if k.causal else ()))
        listing, slots = _listing(k), {"slot_rows": ROWS}
    else:
        grid = "blocks" if knobs.persistent else "units"
        told, symbol = signature(k, threads, rows=rows, grid=grid), SYMBOL
        own, listing, slots = (), (OWN_LIST, *FOUND, *(NEXT if knobs.persistent else ())), {}
    form = Form(
        told, symbol,
        templates=BY_FEEDER if stored else BY_QUERIES,
        registers=(UNIT, *own, *(() if stored else listing)),
        listed=True,
        stored=stored,
        operands={
            "groups": -(-k.num_heads // ROWS),  # blocks that share the heads of a query
            "decode": k.splits, "scaled": k.rows == "e4m3", "extra": k.extra, "causal": k.causal,
            "shared_list": k.shared_list, **slots,
        },
    )  # fmt: skip
    kernel = SeesawKernel(_listed(k), s, left, right, feeder, knobs, form)
    fed = partial(Fed, numbers=Grains if knobs.grained else Rounded)
    return Seesaw(kernel, fed if stored else SeesawGathered)


def _listing(k: MlaSparseDecodeConfig) -> tuple[OwnRegisters, ...]:
    """Registers for the lists of bf16 rows, of those who fetch rows and of those who mask."""
    positions = (WHERE, PAGE_WHERE) if k.causal else ()
    return OWN_LIST, *FOUND, *((BOUND,) if k.extra else ()), *positions


def check_products(k: Problem) -> None:
    """UnsupportedError for products that there are none of."""
    if k.compute == "fp8":
        raise UnsupportedError(
            "compute=fp8 on sm_90a: wgmma wants e4m3 values key after key, and rows of the cache "
            "have them column after column",
            hint="compute=bf16 multiplies the same numbers; sm_100a has compute=fp8",
        )


def _listed(k: Problem) -> ListedRows:
    element = "bf16" if k.rows == "bf16" else "fp8_e4m3"
    return ListedRows(k.num_heads, k.d_qk, k.d_v, k.dtype, element, q_len=k.q_len)
