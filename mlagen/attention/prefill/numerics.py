"""What prefill kernels round, in words and by name, as their manifests state it.

It is derived from the arithmetic that the rounding oracle follows: so what is stated is what is
checked.
"""

from __future__ import annotations

from mlagen.artifact.manifest import Rounding
from mlagen.attention.prefill.arithmetic import Arithmetic
from mlagen.problem.formats import U_BF16

_OF_P = "weights exp2(c S - M), before their product with V: half of {step} of each"


def roundings(arithmetic: Arithmetic) -> tuple[Rounding, ...]:
    """Of a kernel that computes so."""
    scaled = Rounding(
        "Q", "bf16", "a row times scale log2(e), once, before its first product: half of 2^-8 of "
        "each number",
    )  # fmt: skip
    if arithmetic.p_unit == U_BF16:
        p = Rounding("P", "bf16", _OF_P.format(step="2^-8"))
    else:
        small = f", below {arithmetic.p_normal:g} half of {arithmetic.p_step:g}"
        p = Rounding("P", "fp8_e4m3", _OF_P.format(step="2^-3") + small)
    return (scaled, p) if arithmetic.prescales else (p,)
