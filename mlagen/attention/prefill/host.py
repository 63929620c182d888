"""A prefill call on numpy arrays: what a launcher is given, and the outputs it writes to."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mlagen.attention.prefill.inputs import PrefillInputs
from mlagen.attention.prefill.problem import PrefillConfig
from mlagen.errors import ConfigError
from mlagen.problem.arrays import check_contiguous, check_output, unwritten
from mlagen.problem.formats import ELEMENT_TYPES, scale_log2e
from mlagen.targets.gfx950.limits import GFX950

U32 = 2**32  # kernels hold offsets and row numbers in 32 bits

Array = npt.NDArray[Any]
ARRAYS = ("q_offsets", "kv_offsets", "kv_lengths", "page_table", "sinks")  # of a call


@dataclass(frozen=True, slots=True)
class PrefillArguments:
    """What a launcher is given for one call: `launcher.launch(artifact, tensors=.., ..)`."""

    tensors: dict[str, Any]
    scalars: dict[str, int | float]
    sizes: dict[str, int]


def host_call(
    inputs: PrefillInputs, out: Array | None, lse: Array | None, *, compared: bool = True
) -> PrefillArguments:
    """One call, checked. The outputs are among the tensors, filled with NaN: o, and lse where the
    kernel writes it; where nobody compares them they are `untouched`.

    Raises ConfigError for extents that the kernel does not reach, arrays that are not contiguous,
    and outputs that do not fit or that overlap anything."""
    config = inputs.config
    dense = not config.by_sequence
    keys = inputs.key_tensors()
    if dense and inputs.keys != inputs.k.shape[1]:
        names = " and ".join(keys)
        raise ConfigError(
            f"num_keys={inputs.keys} of {inputs.k.shape[1]} rows: the kernel takes all rows of "
            f"{names} as keys",
            hint=f"pass contiguous {names} with the keys only",
        )
    check_extents(config, batch=inputs.batch, seq_len=inputs.seq_len, num_keys=inputs.keys)
    tensors = {"q": inputs.q, **keys}
    for name in ARRAYS:
        array = getattr(inputs, name, None)  # not all families have sinks
        if array is not None:
            tensors[name] = array
    if isinstance(inputs.start_pos, np.ndarray):
        tensors["start_positions"] = inputs.start_pos
    for name, tensor in tensors.items():
        check_contiguous("start_pos" if name == "start_positions" else name, tensor)
    shape = (*inputs.q.shape[:-1], config.v_width)
    tensors["o"] = _written("out", out, shape, config.output_dtype, tensors, compared)
    if config.lse:
        tensors["lse"] = _written("lse", lse, inputs.lse_shape, "fp32", tensors, compared)
    elif lse is not None:
        raise ConfigError("lse is given, but the kernel does not write it", hint="lse=true")
    sizes = {"num_heads": config.num_heads, "seq_len": inputs.seq_len, "batch": inputs.batch}
    scalars: dict[str, int | float] = {
        "seq_len": inputs.seq_len,
        "batch": inputs.batch,
        **scales(config, inputs.score_scale, inputs.v_scale),
    }
    if not isinstance(inputs.start_pos, np.ndarray):
        scalars |= {"num_keys": inputs.keys, "start_pos": inputs.start_pos}
    if inputs.page_table is not None:
        scalars["max_pages"] = inputs.page_table.shape[1]
    return PrefillArguments(tensors, scalars, sizes)


def scales(config: PrefillConfig, score_scale: float, value_scale: float) -> dict[str, float]:
    """The scales that a kernel takes: an fp8 kernel also that of its values."""
    found = {"scale_log2e": scale_log2e(score_scale)}
    if config.dtype == "fp8_e4m3":
        found["out_scale"] = value_scale
    return found


def check_extents(config: PrefillConfig, *, batch: int, seq_len: int, num_keys: int) -> None:
    """Raises ConfigError for tensors that 32-bit sizes and offsets do not reach.

    `seq_len` and `num_keys` are those of the longest sequence. Pages are reached by 64-bit offsets.
    """
    q_bytes = config.num_heads * config.qk_width * config.element_bytes
    o_bytes = config.num_heads * config.v_width * config.output_bytes
    limits = [("q", seq_len, q_bytes, 1), ("out", seq_len, o_bytes, 1)]
    if not config.page_size:
        # Fetched in whole tiles: the offsets of a tile's missing rows must not wrap round.
        alike: dict[tuple[int, ...], list[str]] = {}
        for name, key in config.key_shapes.items():
            alike.setdefault(key, []).append(name)
        of_keys = [
            (" and ".join(names), num_keys, math.prod(key) * config.element_bytes, config.kv_block)
            for key, names in alike.items()
        ]
        limits = of_keys + limits
    for name, rows, row_bytes, step in limits:
        most = GFX950.buffer_bytes_max // (row_bytes * step) * step
        if rows > most:
            raise ConfigError(
                f"{name}: {rows} rows of {row_bytes} bytes in a batch entry are "
                f"{rows * row_bytes} bytes; buffer offsets are 32 bits",
                hint=f"at most {most} rows",
            )
    if not config.by_sequence:
        for name, rows in (("query rows", batch * seq_len), ("keys", batch * num_keys)):
            if rows >= U32:
                raise ConfigError(f"{rows} {name} in all batch entries: row numbers are 32 bits")
    for name, count in (("query tiles", config.q_tiles(seq_len)), ("batch entries", batch)):
        if count > GFX950.grid_most:
            raise ConfigError(
                f"{count} {name}: a grid has at most {GFX950.grid_most} in this dimension"
            )


def _written(
    label: str,
    given: Array | None,
    shape: tuple[int, ...],
    dtype: str,
    others: dict[str, Array],
    compared: bool,
) -> Array:
    """An output, made where it is not given, filled with NaN."""
    if given is None:
        return unwritten(shape, ELEMENT_TYPES[dtype], compared=compared)
    check_output(label, given, shape, dtype, others)
    given.fill(np.nan)
    return given
