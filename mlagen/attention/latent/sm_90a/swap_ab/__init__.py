"""Attention to latent rows on Hopper with A and B swapped: the parts of a kernel, each with its own
templates.

S^T = K Q^T has 64 keys as the rows of the matrix instruction, and O^T += V^T P^T 64 columns of V:
8, 16, 24 or 32 query rows, which are its columns, do not pay for 64. `products` computes both,
`softmax` what is between them, `queries` brings Q to SMEM, `storage` says what becomes of a tile of
keys there. Where rows lie is a family's part.
"""

from mlagen.attention.latent.sm_90a.swap_ab.k_in_registers import (
    FRAGMENT,
    OWN_KEYS,
    KInRegisters,
    OwnKeys,
)
from mlagen.attention.latent.sm_90a.swap_ab.kernel import SwapAbKernel, query_rows, rows_in_eights
from mlagen.attention.latent.sm_90a.swap_ab.output import SwapAbOutput
from mlagen.attention.latent.sm_90a.swap_ab.products import Bf16, E4m3, Grouped
from mlagen.attention.latent.sm_90a.swap_ab.queries import (
    OwnQueries,
    SwapAbQueries,
    converts_queries,
)
from mlagen.attention.latent.sm_90a.swap_ab.reference_order import (
    gathered_order,
    k_in_registers_order,
    split_roles_order,
    swap_ab_order,
)
from mlagen.attention.latent.sm_90a.swap_ab.scales import ScaledNumbers, ScaledSums
from mlagen.attention.latent.sm_90a.swap_ab.softmax import SwapAbSoftmax
from mlagen.attention.latent.sm_90a.swap_ab.split_roles import (
    FromRegisters,
    Handed,
    KeyScales,
    OrderedQueries,
    ordered_tiles,
    weights,
)
from mlagen.attention.latent.sm_90a.swap_ab.storage import DequantizedKeys, StoredKeys

__all__ = [
    "FRAGMENT",
    "OWN_KEYS",
    "Bf16",
    "DequantizedKeys",
    "E4m3",
    "FromRegisters",
    "Grouped",
    "Handed",
    "KInRegisters",
    "KeyScales",
    "OrderedQueries",
    "OwnKeys",
    "OwnQueries",
    "ScaledNumbers",
    "ScaledSums",
    "StoredKeys",
    "SwapAbKernel",
    "SwapAbOutput",
    "SwapAbQueries",
    "SwapAbSoftmax",
    "converts_queries",
    "gathered_order",
    "k_in_registers_order",
    "ordered_tiles",
    "query_rows",
    "rows_in_eights",
    "split_roles_order",
    "swap_ab_order",
    "weights",
]
