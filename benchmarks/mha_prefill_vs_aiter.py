"""MHA prefill in fp8 of ours beside AITER's binary: both oracles, executed instructions a tile.

    python benchmarks/mha_prefill_vs_aiter.py --aiter FOLDER [--kv-block 128] [--mask null]
        [--data realistic] [--rows 256] [--keys 512 2560] [--knob NAME=VALUE] [--json]

FOLDER holds `fmha_v3_fwd/` with AITER's gfx950 objects. Both get one call's arrays: fp8, quantised,
one sequence, one head of depth 128. What is measured is what `mla_prefill_vs_aiter.py` measures;
AITER's tiles are of 128 keys.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from side_by_side import Contestant, Run, lengths_of, measure, of_ours, options_of, sizes_of, tell

SCHEMA = "mlagen.benchmark.mha_prefill_vs_aiter/1"
OBJECT = "fmha_v3_fwd/fwd_hd128_fp8{}.co"
AITER_ROWS, DEPTH = 256, 128  # query rows of a workgroup, columns of a head


def of_aiter(folder: Path, causal: bool) -> Contestant:
    """AITER's object in batch mode. Its host code: csrc/cpp_itfs/mha_fwd.cu."""
    from mlagen.emulator import Argument, Buffer, Launch, Settings, emulate
    from mlagen.problem.formats import BF16

    path = folder / OBJECT.format("_causal" if causal else "")
    code = path.read_bytes()

    def problem(inputs: Any) -> Any:  # its row maxima never lag, its tiles are of 128 keys
        config = replace(inputs.config, rescale_threshold=0.0, kv_block=128)
        return replace(inputs, config=config)

    def run(inputs: Any, mode: Any, seed: int) -> Run:
        rows, keys = len(inputs.q), len(inputs.k)
        output = np.full(inputs.q.shape, np.nan, BF16)
        lse = np.full((1, rows), np.nan, np.float32)
        words = {
            0x60: rows, 0x70: DEPTH, 0x80: AITER_ROWS * DEPTH, 0x90: DEPTH, 0xA0: rows * DEPTH,
            0xB0: 1, 0xC0: DEPTH, 0xD0: DEPTH, 0xE0: keys * DEPTH, 0xF0: 3 if causal else 5,
            0x100: 1, 0x110: keys, 0x120: DEPTH, 0x130: DEPTH, 0x140: 1, 0x150: DEPTH,
            0x160: DEPTH, 0x170: keys * DEPTH, 0x180: 2 * DEPTH, 0x190: 2 * DEPTH,
            0x1A0: 2 * rows * DEPTH, 0x1D0: 4 * rows,
        }  # fmt: skip
        arrays = {
            0x00: ("O", output, "write"),
            0x10: ("Q", inputs.q, "read"),
            0x20: ("K", inputs.k, "read"),
            0x30: ("V", inputs.v, "read"),
            0x40: ("LSE", lse, "write"),
            0x200: ("q descale", np.array([inputs.q_scale], np.float32), "read"),
            0x210: ("k descale", np.array([inputs.k_scale], np.float32), "read"),
            0x220: ("v descale", np.array([inputs.v_scale], np.float32), "read"),
        }
        arguments = [Argument(0x50, np.float32(inputs.scale))]
        arguments += [Argument(at, np.uint32(value)) for at, value in words.items()]
        arguments += [
            Argument(at, Buffer(name, array, access))  # type: ignore[arg-type]
            for at, (name, array, access) in arrays.items()
        ]
        tiles = -(-rows // AITER_ROWS)
        grid = (-(-tiles // (2 if causal else 1)), 1, 1)  # with a mask: a tile and its mirror image
        emulation = emulate(
            code,
            Launch(grid=grid, block=(512, 1, 1), arguments=arguments),
            Settings(mode=mode, seed=seed),
        )
        return Run(output, emulation)

    return Contestant(path.stem, code, problem, run)


def main() -> None:
    parser = options_of(__doc__, "fmha_v3_fwd/*.co")
    parser.add_argument("--kv-block", type=int, choices=[64, 128], default=128)
    options = parser.parse_args()

    from mlagen.families.mha_prefill.made_up import mha_inputs
    from mlagen.families.mha_prefill.problem import MhaConfigV2

    config = MhaConfigV2(
        1, 1, mask=options.mask, dtype="fp8_e4m3", kv_block=options.kv_block, ragged=True
    )
    inputs = mha_inputs(config, **sizes_of(options))
    keys = lengths_of(options)
    reports = []
    if options.aiter:
        own = replace(inputs, config=replace(config, kv_block=128))
        contestant = of_aiter(options.aiter, options.mask == "causal")
        reports.append(measure(contestant, own, keys, options))
    ours = of_ours("mha_prefill_v2", config, options.knob)
    reports.append(measure(ours, inputs, keys, options))
    tell(reports, options, SCHEMA, ("mask", "data", "rows", "kv_block", "seed"))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()
