"""stand-in"""

from __future__ import annotations
from dataclasses import dataclass
from typing import ClassVar
from mlagen.problem.fields import Fields, told


@dataclass(frozen=True)
class MlaSparseDecodeConfig(Fields):
    """stand-in"""

    family: ClassVar[str] = "mla_sparse"
    num_heads: int = told(meaning="query heads", legal="1 .. 128")
    d_qk: int = told(576, meaning="columns", legal=(576, 512))
    d_v: int = told(512, meaning="columns", legal=(512,))
    dtype: str = told("bf16", meaning="queries", legal=("bf16",))
    output_dtype: str = told("bf16", meaning="output", legal=("bf16",))
    rows: str = told("bf16", meaning="rows", legal=("bf16", "e4m3"))

    q_len: int = told(1, meaning="tokens", legal="1 .. 8")
    shared_list: bool = told(False, meaning="x", legal=(False, True))
    extra: bool = told(False, meaning="x", legal=(False, True))
    causal: bool = told(False, meaning="x", legal=(False, True))

    @classmethod
    def example(cls) -> MlaSparseDecodeConfig:
        return cls(num_heads=64)
