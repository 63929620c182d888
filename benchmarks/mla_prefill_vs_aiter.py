"""MLA prefill of ours beside AITER's binary: the same arrays, both oracles, executed instructions.

    python benchmarks/mla_prefill_vs_aiter.py --aiter FOLDER [--kernel mla_prefill_v2]
        [--mask null] [--data realistic] [--rows 256] [--keys 512 2560] [--heads 1] [--json]

FOLDER holds `mla/` with AITER's gfx950 objects; either kernel may be left out. Both get one call's
arrays: fp8, quantised, one sequence of packed rows, K and V of as many heads as Q. Instructions are
what one more tile of 128 keys costs a wave: the difference of two runs over a beginning of the same
keys, so a mean over these data. AITER's object is right only where loads land at once (`--mode
earliest`); instruction counts do not depend on it.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from side_by_side import Contestant, Run, lengths_of, measure, of_ours, options_of, sizes_of, tell

SCHEMA = "mlagen.benchmark.mla_prefill_vs_aiter/1"
OBJECT = "mla/mla_pfl_qh192_vh128_m32x8_n128x1_causal{}.co"


def whole_tiles(inputs: Any) -> Any:
    """A workgroup for each query tile and head. Nothing is cut, so each row is computed as the
    static grid computes it."""
    from mlagen.attention.prefill.plan import WorkPlan
    from mlagen.attention.prefill.work import FINAL, WorkItem, work_arrays
    from mlagen.families.mla_prefill.call import work_shape

    shape = work_shape(inputs)
    items = []
    for batch in range(inputs.batch):
        first, _ = shape.blocks_of(batch)
        for start, end in shape.tiles_of(batch):
            seen = max(shape.keys_of(batch, start, end), 0)
            last = first - (-seen // shape.block_size)
            items += [
                WorkItem(batch, FINAL, start, end, first, last, 0, head)
                for head in range(shape.heads)
            ]
    nothing = np.zeros(1, np.int32), np.zeros((0, 2), np.int32), np.zeros(0, np.int32)
    return WorkPlan(shape, *work_arrays([item] for item in items), *nothing)


def of_aiter(folder: Path, causal: bool) -> Contestant:
    """AITER's object: one final work item a query tile and head, one workgroup each."""
    from mlagen.attention.prefill.host import host_call
    from mlagen.emulator import Argument, Buffer, Launch, Settings, emulate
    from mlagen.families.mla_prefill.aiter import aiter_arguments
    from mlagen.families.mla_prefill.gfx950.form import aiter_signature
    from mlagen.families.mla_prefill.workspace import work_call

    path = folder / OBJECT.format(int(causal))
    code = path.read_bytes()

    def problem(inputs: Any) -> Any:  # its row maxima never lag
        return replace(inputs, config=replace(inputs.config, rescale_threshold=0.0))

    def run(inputs: Any, mode: Any, seed: int) -> Run:
        call = host_call(inputs, None, None)
        work = work_call(inputs, whole_tiles(inputs))
        tensors, scalars = aiter_arguments(inputs, work, call.tensors["o"])
        taken = aiter_signature(replace(inputs.config, page_size=1))
        arguments = [
            Argument(arg.offset, Buffer(arg.name, tensors[arg.name], arg.access))
            if arg.kind == "pointer"
            else Argument(
                arg.offset, (np.float32 if arg.kind == "f32" else np.uint32)(scalars[arg.name])
            )
            for arg in taken.arguments
        ]
        grid = (work.workgroups, 1, 1)
        emulation = emulate(
            code,
            Launch(grid=grid, block=taken.block, arguments=arguments),
            Settings(mode=mode, seed=seed),
        )
        return Run(call.tensors["o"], emulation)

    return Contestant(path.stem, code, problem, run)


def main() -> None:
    parser = options_of(__doc__, "mla/*.co")
    parser.add_argument("--kernel", metavar="NAME|FILE.py", help="a schedule of ours")
    parser.add_argument("--threshold", type=float, default=8.0, help="rescale_threshold of ours")
    parser.add_argument("--heads", type=int, default=1)
    options = parser.parse_args()
    if not options.aiter and not options.kernel:
        raise SystemExit("name --aiter FOLDER, --kernel NAME or both")

    from mlagen.families.mla_prefill.made_up import mla_prefill_inputs
    from mlagen.families.mla_prefill.problem import MlaConfigV2

    config = MlaConfigV2(
        options.heads,
        options.heads,
        mask=options.mask,
        dtype="fp8_e4m3",
        output_dtype="bf16",
        ragged=True,
        rescale_threshold=options.threshold,
    )
    inputs = mla_prefill_inputs(config, **sizes_of(options))
    contestants = []
    if options.aiter:
        contestants.append(of_aiter(options.aiter, options.mask == "causal"))
    if options.kernel:
        contestants.append(of_ours(options.kernel, config, options.knob))
    keys = lengths_of(options)
    reports = [measure(one, inputs, keys, options) for one in contestants]
    tell(reports, options, SCHEMA, ("mask", "data", "rows", "heads", "seed"))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main()
