"""What prefill problems have in common, and the tiles of a kernel that solves one.

A problem says what is computed. How it is computed is said by a schedule's knobs; those that host
code must know, too, are `TILES`. A config is a problem with its tiles: a workgroup owns
`num_warps * 32` query rows of one head and walks tiles of `kv_block` keys.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from mlagen.artifact.manifest import Rounding
from mlagen.attention.masks import Mask
from mlagen.attention.prefill.arithmetic import arithmetic_of
from mlagen.attention.prefill.facts import TILES, PrefillFacts
from mlagen.attention.prefill.numerics import roundings
from mlagen.errors import ConfigError
from mlagen.problem.dtypes import E4M3_MAX
from mlagen.problem.fields import Fields, check_types, listed
from mlagen.targets.gfx950.limits import GFX950

DTYPE_BYTES = {"bf16": 2, "fp8_e4m3": 1}
OUTPUT_BYTES = {"bf16": 2, "fp32": 4}

Q_ROWS_PER_WAVE = 32  # columns of the 32 x 32 MFMA: one lane owns one query row
MAX_WAVES = GFX950.max_workgroup_threads // GFX950.wave_size
# K lies in LDS in sub-blocks of 32 keys x 64 bytes, and a wave copies whole sub-blocks.
SUB_BLOCK_KEYS, SUB_BLOCK_BYTES = 32, 64
MAX_HEADS = GFX950.grid_most  # heads are the grid's x; query tiles and batch are its y and z
# A tile of 64 keys is copied in parts of 16 keys or more: a page is such parts, or whole tiles.
SMALL_PAGES, PAGE_STEP = (16, 32), 64
PAGE_BYTES = 2**32  # offsets inside a page are 32 bits; those of pages are 64

# What fields of both families may be, in words.
LEGAL_HEADS = f"1 .. {MAX_HEADS}, a multiple of num_kv_heads"
LEGAL_KV_HEADS = f"1 .. {MAX_HEADS}, a divisor of num_heads"


def legal_pages(small: tuple[int, ...]) -> str:
    """`small`: pages that are no multiple of `PAGE_STEP`."""
    legal = listed((0, *small, f"a multiple of {PAGE_STEP}"))
    return f"{legal}; a page has at most {PAGE_BYTES >> 30} GiB"


class PrefillProblem(Fields):
    """Base of the prefill problems, which are frozen dataclasses with at least these fields."""

    num_heads: int
    num_kv_heads: int
    mask: Mask
    dtype: str
    output_dtype: str
    ragged: bool
    page_size: int
    lse: bool
    sink: bool = False  # a field of those that may have one

    def roundings(self, facts: Any) -> tuple[Rounding, ...]:
        """What a kernel of this problem rounds besides inputs, outputs and fp32 sums."""
        return roundings(arithmetic_of(self.dtype))

    @property
    def qk_width(self) -> int:
        """Columns of a head of Q and K."""
        raise NotImplementedError

    @property
    def v_width(self) -> int:
        """Columns of a head of V and O."""
        raise NotImplementedError

    @property
    def key_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The tensors that hold keys and values, by name, each with the shape of a key in it."""
        raise NotImplementedError

    @property
    def form(self) -> str:
        """What decides which arrays a kernel takes, in words."""
        return f"ragged={self.ragged}, page_size={self.page_size}"

    # ---- limits -----------------------------------------------------------------------------

    def _bring_types_in_order(self) -> None:
        """ConfigError for a field of another type. The dataclass is frozen; this only converts."""
        check_types(self)
        if isinstance(self.mask, str):
            object.__setattr__(self, "mask", Mask.parse(self.mask))
        if not isinstance(self.mask, Mask):
            raise ConfigError(f"mask={self.mask!r} is neither a Mask nor the text of one")

    def _check_legal(self, legal: Mapping[str, tuple[Any, ...]]) -> None:
        """ConfigError for a field whose value is not among its legal ones."""
        for name, values in legal.items():
            if getattr(self, name) not in values:
                raise ConfigError(
                    f"{name}={getattr(self, name)} is not supported",
                    hint=f"{name} is one of {listed(values)}",
                )

    def _check_heads(self) -> None:
        for name in ("num_heads", "num_kv_heads"):
            if not 1 <= getattr(self, name) <= MAX_HEADS:
                raise ConfigError(f"{name}={getattr(self, name)} is not in 1 .. {MAX_HEADS}")
        if self.num_heads % self.num_kv_heads:
            fits = [n for n in range(1, self.num_heads + 1) if self.num_heads % n == 0]
            near = sorted(sorted(fits, key=lambda n: abs(n - self.num_kv_heads))[:4])
            raise ConfigError(
                f"num_heads={self.num_heads} is not a multiple of num_kv_heads={self.num_kv_heads}",
                hint=f"num_kv_heads that divide {self.num_heads}: {listed(near)}"
                + (", …" if len(near) < len(fits) else ""),
            )

    def _check_page_size(self, legal_small: tuple[int, ...], row_bytes: int) -> None:
        """`row_bytes`: of the widest row of a pool."""
        size = self.page_size
        if size < 0 or (size % PAGE_STEP and size not in legal_small):
            small = ", ".join(str(page) for page in legal_small)
            raise ConfigError(
                f"page_size={size}: a page holds {small} keys, or a multiple of {PAGE_STEP}",
                hint=f"page_size is {listed((*legal_small, f'a multiple of {PAGE_STEP}'))}; "
                f"0: K and V are contiguous",
            )
        if size * row_bytes > PAGE_BYTES:
            most = PAGE_BYTES // row_bytes // PAGE_STEP * PAGE_STEP
            raise ConfigError(
                f"page_size={size}: a page of {size} rows of {row_bytes} bytes is "
                f"{size * row_bytes} bytes; offsets inside a page are 32 bits",
                hint=f"page_size is at most {most}",
            )

    def to_fields(self) -> dict[str, Any]:
        """Every field as a plain value, the mask as its text. `from_fields` reads it back."""
        return super().to_fields() | {"mask": str(self.mask)}

    # ---- arithmetic -------------------------------------------------------------------------

    @property
    def group(self) -> int:
        """Query heads that share one K/V head."""
        return self.num_heads // self.num_kv_heads

    @property
    def element_bytes(self) -> int:
        """Bytes of an element of Q, K and V."""
        return DTYPE_BYTES[self.dtype]

    @property
    def output_bytes(self) -> int:
        """Bytes of an element of O."""
        return OUTPUT_BYTES[self.output_dtype]

    @property
    def by_sequence(self) -> bool:
        """Whether each sequence has its own start position and number of keys, in arrays."""
        return self.ragged or self.page_size > 0

    def pages(self, num_keys: int) -> int:
        """Pages that hold `num_keys` keys. Only for paged K and V."""
        return -(-num_keys // self.page_size)

    def head_of(self, x: int) -> int:
        """The query head of grid index `x`: neighbouring workgroups take different K/V heads.

        A bijection on `range(num_heads)`; the identity for group 1 and for one K/V head.
        """
        return x % self.group * self.num_kv_heads + x // self.group

    def kv_head_of(self, head: int) -> int:
        """The K/V head that query head `head` attends to."""
        return head // self.group


def _tiles(facts: PrefillFacts) -> dict[str, Any]:
    return {name: getattr(facts, name) for name in TILES}


@dataclass(frozen=True)
class PrefillConfig(PrefillProblem):
    """Base of the prefill problems with the tiles of one kernel, whose fields follow theirs."""

    q_block_size: int = Q_ROWS_PER_WAVE  # query rows a wave
    kv_block: int = 64  # keys a tile
    num_warps: int = 8  # waves a workgroup
    rescale_threshold: float = 8.0  # log2 units a row maximum may grow before O is rescaled
    fp8_mma_k_128: bool = False  # refused: P would not stay in its registers

    problem_type: ClassVar[type[Any]]
    kernel: ClassVar[str]  # the schedule whose knobs these are

    @classmethod
    def of(cls, problem: Mapping[str, Any], facts: PrefillFacts) -> Self:
        """The config of a kernel whose manifest has these fields and facts."""
        return cls.from_fields({**problem, **_tiles(facts)})

    def tiled(self, facts: PrefillFacts) -> Self:
        """The same problem with the tiles of a kernel of these facts."""
        return dataclasses.replace(self, **_tiles(facts))

    def parts(self) -> tuple[Any, dict[str, Any]]:
        """What is computed, and the knobs that the tiles are."""
        fields = vars(self).copy()
        tiles = {name: fields.pop(name) for name in TILES}
        return self.problem_type(**fields), tiles

    # ---- limits -----------------------------------------------------------------------------

    def _check_tiles(self, kv_blocks: Mapping[str, tuple[int, ...]]) -> None:
        """`kv_blocks`: keys a tile may have, by dtype."""
        self._check_mfma()
        self._check_threshold()
        self._check_q_block()
        legal = sorted(kv_blocks[self.dtype])
        if self.kv_block not in legal:
            raise ConfigError(
                f"kv_block={self.kv_block} is not supported with dtype={self.dtype}",
                hint=f"kv_block is {listed(legal)} for {self.dtype}",
            )

    def _check_mfma(self) -> None:
        if self.fp8_mma_k_128:
            # The 16x16 score accumulator gives a lane the keys 16 t + 4 g + i, PV's B operand wants
            # 32 consecutive ones: Q, K and V could be loaded for it, but P could not be passed on.
            raise ConfigError(
                "fp8_mma_k_128=true: the 16x16x128 MFMA leaves the scores in lanes that are not "
                "those of the second product's B operand, so P cannot stay in registers",
                hint="fp8_mma_k_128=false uses the 32x32x64 MFMA",
            )

    def _check_threshold(self) -> None:
        if not math.isfinite(self.rescale_threshold) or self.rescale_threshold < 0:
            raise ConfigError(
                f"rescale_threshold={self.rescale_threshold} must be finite and not negative",
                hint="log2 units; 8 is the default, 0 rescales whenever a row maximum grows",
            )
        if self.dtype == "fp8_e4m3" and self.rescale_threshold > math.log2(E4M3_MAX):
            raise ConfigError(
                f"rescale_threshold={self.rescale_threshold}: P reaches "
                f"2^{self.rescale_threshold:g} against a maximum that lags, and e4m3 ends at "
                f"{E4M3_MAX:g}",
                hint="rescale_threshold is at most 8.8 for fp8_e4m3; 8 is the default",
            )

    def _check_q_block(self) -> None:
        if self.q_block_size != Q_ROWS_PER_WAVE:
            raise ConfigError(
                f"q_block_size={self.q_block_size}: a wave owns the {Q_ROWS_PER_WAVE} columns of a "
                f"32x32 MFMA",
                hint=f"q_block_size={Q_ROWS_PER_WAVE}; more rows a workgroup: num_warps",
            )

    # ---- arithmetic -------------------------------------------------------------------------

    @property
    def q_tile(self) -> int:
        """Query rows a workgroup; its wave w owns rows `[32 w, 32 w + 32)` of them."""
        return self.num_warps * self.q_block_size

    @property
    def threads(self) -> int:
        """Work-items a workgroup."""
        return self.num_warps * GFX950.wave_size

    def q_tiles(self, seq_len: int) -> int:
        """Query tiles (grid y) of `seq_len` rows."""
        return -(-seq_len // self.q_tile)

    def grid(self, seq_len: int, batch: int) -> tuple[int, int, int]:
        """Workgroups: heads, query tiles, batch."""
        return self.num_heads, self.q_tiles(seq_len), batch

    def tiles(self, q_tile: int, *, seq_len: int, start_pos: int, num_keys: int) -> range:
        """Indices of the KV tiles that query tile `q_tile` walks: all that its rows see.

        Rows beyond `seq_len` see nothing. Raises ConfigError for a tile that has no row.
        """
        first = q_tile * self.q_tile
        if not 0 <= first < seq_len:
            raise ConfigError(f"query tile {q_tile} is not in 0 .. {self.q_tiles(seq_len) - 1}")
        rows = min(self.q_tile, seq_len - first)
        return self.mask.tiles(start_pos + first, rows, num_keys, self.kv_block)
