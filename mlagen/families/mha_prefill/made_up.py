"""Made-up inputs of MHA: see `mlagen.attention.made_up`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from mlagen.attention.made_up import Numbers, require_kind
from mlagen.attention.prefill.data_kinds import KINDS, SCALED
from mlagen.attention.prefill.made_up import Drawn, Shapes, Sizes, Tensors
from mlagen.attention.prefill.scales import check_scale, default_scale
from mlagen.families.mha_prefill.inputs import MhaInputs
from mlagen.families.mha_prefill.problem import MhaConfigV2


def mha_inputs(
    config: MhaConfigV2,
    *,
    batch: int | None = None,
    seq_len: int | None = None,
    lengths: Sequence[int] | None = None,
    num_keys: Numbers | None = None,
    start_pos: Numbers = 0,
    data: str = "realistic",
    seed: int = 0,
    scale: float | None = None,
    quantise: bool = False,
) -> MhaInputs:
    """Inputs of an MHA problem.

    Dense: `batch` sequences (1) of `seq_len` rows (512). Ragged: `lengths`, the rows of each
    sequence, or without them `batch` of them (3), the first of `seq_len` rows (300), the others
    drawn, short ones as likely as long ones. `num_keys` is `start_pos` plus the rows where it is
    not given. Where sequences have their own, `num_keys` and `start_pos` may be one number for all
    or one for each, and rows and keys may be 0.

    The numbers are rounded to the problem's dtype. `quantise` (fp8): each tensor is divided by its
    largest magnitude / 448 before, and the scales say so; otherwise they are 1.

    With a sink: sinks from below the scores to above them, and one of -inf where there are several
    heads.

    Raises ConfigError for numbers that are too small or that the form does not take, an unknown
    kind of data, and what MhaInputs refuses.
    """
    require_kind(data, KINDS)
    rng = np.random.default_rng([seed, *data.encode()])
    scale = check_scale(config, default_scale(config) if scale is None else scale)

    def tensors(shapes: Shapes) -> Tensors:
        return dict(zip("qkv", KINDS[data](rng, shapes), strict=True))

    drawn = Drawn.of(
        config, rng, tensors, scale, Sizes(batch, seq_len, lengths, num_keys, start_pos),
    )  # fmt: skip
    sinks = _sinks(rng, config)  # before the pages: the same without them
    scales = drawn.quantise(SCALED) if quantise else {}
    given = drawn.arrays(rng) | scales
    return MhaInputs(config, scale=scale, sinks=sinks, **given)


def _sinks(rng: np.random.Generator, config: MhaConfigV2) -> npt.NDArray[np.float32] | None:
    """Natural units, from below most rows' log-sum-exp to above them, in random order."""
    if not config.sink:
        return None
    heads = config.num_heads
    finite = max(heads - 1, 1)
    levels = np.linspace(-4.0, 14.0, finite) if finite > 1 else np.full(1, 6.0)
    levels = rng.permutation(levels) + rng.uniform(-1.0, 1.0, finite)
    if heads > 1:
        levels = np.insert(levels, 1, -np.inf)
    return levels.astype(np.float32)
