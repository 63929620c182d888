"""The checkers' table asked for the pairs of the probes: assembled, decoded, looked up."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from hazard_llvm import Measurement, measurements, probe_listing, run_tool

from mlagen.binary import MachineInstruction, load_code_object
from mlagen.binary.hazards import strictest_pair


@functools.lru_cache(maxsize=1)
def checker_states() -> tuple[int | None, ...]:
    """Per probe the wait states the checkers ask between the pair; None: the pair is not decoded.

    Measured probes and decoded kernels are matched instruction by instruction, by mnemonic.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, middle, result = (Path(folder, f"probes.{end}") for end in ("s", "o", "co"))
        source.write_text(probe_listing())
        run_tool("clang", "--target=amdgcn-amd-amdhsa", "-mcpu=gfx950", "-c", source, "-o", middle)
        run_tool("ld.lld", "-shared", middle, "-o", result)
        code = load_code_object(result.read_bytes())
    return tuple(
        _states(item, code.kernels[f"p{number}"].instructions)
        for number, item in enumerate(measurements())
    )


def _states(measured: Measurement, instructions: tuple[MachineInstruction, ...]) -> int | None:
    start = next(
        (i for i, item in enumerate(instructions) if str(item).split() == ["s_nop", "7"]), None
    )
    if start is None:
        return None
    body = [item for item in instructions[start + 1 :] if item.mnemonic != "s_nop"]
    first, second = measured.pair
    for index in measured.pair:
        name = measured.stream[index].text.split()[0]
        if index >= len(body) or not name.startswith(body[index].mnemonic):
            return None
    return strictest_pair(body[first], body[second], 256)[0]
