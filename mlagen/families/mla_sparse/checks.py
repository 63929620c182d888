"""What the fields of both problems are checked for."""

from __future__ import annotations

from typing import Protocol

from mlagen.attention.latent.order import D_V
from mlagen.errors import ConfigError
from mlagen.families.mla_sparse.rows import row_format
from mlagen.problem.fields import check_types, listed

WIDTHS = (576, 512)
MAX_HEADS = 128
Q_DTYPES = ("bf16", "fp8_e4m3")
OUTPUT_DTYPES = ("bf16",)
COMPUTE = ("bf16", "fp8")
NATIVE_ROWS = ("e4m3", "e4m3_row")  # whose columns are all e4m3 of one scale


class Common(Protocol):
    """The fields that both problems have."""

    @property
    def num_heads(self) -> int: ...
    @property
    def d_qk(self) -> int: ...
    @property
    def d_v(self) -> int: ...
    @property
    def dtype(self) -> str: ...
    @property
    def output_dtype(self) -> str: ...
    @property
    def rows(self) -> str: ...


class ProductTypes:
    """What products are of, of problems that say it by `dtype` and `compute`."""

    dtype: str
    rows: str
    compute: str

    @property
    def as_stored(self) -> bool:
        """Whether products take queries as they are stored."""
        return self.compute == "fp8" or self.dtype == "bf16"

    @property
    def dequantized(self) -> bool:
        """Whether bf16 is made of the caches' rows."""
        return self.compute == "bf16" and self.rows != "bf16"

    @property
    def product_bytes(self) -> int:
        """Bytes of a number that products are of."""
        return 1 if self.compute == "fp8" else 2


def check_common(problem: Common) -> None:
    """ConfigError for a value that no kernel can have."""
    check_types(problem)
    if not 1 <= problem.num_heads <= MAX_HEADS:
        raise ConfigError(
            f"num_heads={problem.num_heads} is not in 1 .. {MAX_HEADS}",
            hint="heads on this device: with tensor parallelism its share of the model's",
        )
    if problem.d_qk not in WIDTHS or problem.d_v != D_V:
        raise ConfigError(
            f"d_qk={problem.d_qk}, d_v={problem.d_v}: rows of another width are not supported",
            hint=f"d_qk={listed(WIDTHS)}, d_v={D_V}",
        )
    for name, value, legal in (
        ("dtype", problem.dtype, Q_DTYPES),
        ("output_dtype", problem.output_dtype, OUTPUT_DTYPES),
    ):
        if value not in legal:
            raise ConfigError(f"{name}={value} is not supported", hint=f"{name} is {listed(legal)}")
    row_format(problem.rows, problem.d_qk)


def check_compute(compute: str, dtype: str, rows: str) -> None:
    """ConfigError unless products are of `compute` over queries and rows of these types."""
    if compute not in COMPUTE:
        raise ConfigError(
            f"compute={compute} is not supported", hint=f"compute is {listed(COMPUTE)}"
        )
    if compute == "fp8" and (dtype != "fp8_e4m3" or rows not in NATIVE_ROWS):
        raise ConfigError(
            f"compute=fp8 does not go with dtype={dtype}, rows={rows}",
            hint=f"products of e4m3 are of dtype=fp8_e4m3 and rows={listed(NATIVE_ROWS)}: columns "
            "of other rows have scales or types of their own; compute=bf16 takes them",
        )
