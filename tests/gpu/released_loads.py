"""When has an ordinary load read shared memory? A place is given back after the loads, and a bulk
copy fills it again: how many words are then those of the next tile, on this GPU.

    python tests/gpu/released_loads.py [--fills N] [--sass] [--keep FOLDER]

The kernels are those of `released_ring.py`. Each is launched three times with four, two or one
block an SM. `--sass` tells which instruction waits for the loads (their scoreboards, from the
control bits of nvdisasm's listing) and whether it stands before the release. Needs a Hopper GPU,
torch, cuda-bindings and a ptxas. Exit code 1: words were wrong though the values were used, or
fence.proxy.async stood, before the release.
"""

from __future__ import annotations

import argparse
import ctypes
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

from released_ring import FENCES, READERS, Ring, ptx, tiles_of  # noqa: E402

LAUNCHES, NOISE = 3, 8
ROW = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;\s*/\* 0x([0-9a-f]{16}) \*/")
RELEASES = re.compile(r"SYNCS\.ARRIVE|BAR\.ARV|UBLKCP")
TELLS = re.compile(RELEASES.pattern + r"|\bBAR\.|FENCE|MEMBAR|WARPSYNC|ERRBAR")
HIGH = re.compile(r"^\s*/\* 0x([0-9a-f]{16}) \*/\s*$")


def rings() -> Iterator[Ring]:
    """What is tried."""
    loads: dict[str, Any] = {"loads": 32, "slots": 1}  # the most that registers hold
    for more in ({}, loads, {"noise": NOISE}, {"multiplies": True}, {"multiplies": True, **loads}):
        for release, by in ways():
            yield Ring(release, by, **more)
        for told in ("bar.arrive", "bar.sync"):
            for release in ("at once", "fence.proxy.async", "membar.cta", "used"):
                yield Ring(release, told=told, **more)
        for release in ("at once", "fence.proxy.async", "used"):
            yield Ring(release, spread=True, **more)
            yield Ring(release, load="ldmatrix", **more)
        yield Ring(fence="fence.proxy.async;", **more)


def ways() -> Iterator[tuple[str, str]]:
    """When a place is given back, and by whom."""
    for release in (*FENCES, "used", "compared", "stored", "shuffled"):
        for by in ("one lane", "each lane"):
            yield release, by


def counted(driver: Any, device: Any, ring: Ring, code: bytes, fills: int) -> tuple[int, int, int]:
    """(words read, wrong ones, those of the next tile) of the launches of a ring."""
    import numpy as np
    import torch

    function = driver.load_function(device, code, "ring", 3)
    driver.allow_smem(device, function, ring.smem_bytes)
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    source = torch.from_numpy(tiles_of(ring).view(np.int32)).cuda()
    read = wrong = later = 0
    for launch in range(LAUNCHES):
        blocks = sms * (4 >> launch)
        out = torch.full((blocks, READERS, 2), -1, dtype=torch.int32, device="cuda")
        values = (source.data_ptr(), out.data_ptr(), fills)
        types = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32)
        stream = torch.cuda.current_stream().cuda_stream
        driver.call(
            "cuLaunchKernel", function.handle, blocks, 1, 1, ring.threads, 1, 1, ring.smem_bytes,
            stream, (values, types), 0,
        )  # fmt: skip
        torch.cuda.synchronize()
        found = out.to(torch.int64).cpu()
        assert int(found.min()) >= 0, "a block wrote nothing"
        read += blocks * READERS * 4 * ring.loads * fills
        wrong += int(found[..., 0].sum())
        later += int(found[..., 1].sum())
    return read, wrong, later


def listing(code: bytes) -> list[tuple[str, int, int]]:
    """The instructions of a cubin: text, scoreboard that it sets (7: none), scoreboards that it
    waits for as a mask. The control bits of sm_70 and later are bits 105 to 125 of 128."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "k.cubin"
        path.write_bytes(code)
        tool = shutil.which("nvdisasm") or "/usr/local/cuda/bin/nvdisasm"
        text = subprocess.run(
            [tool, "-hex", str(path)], capture_output=True, text=True, check=True
        ).stdout
    rows, lines = [], text.splitlines()
    for line, after in pairwise(lines):
        row, high = ROW.search(line), HIGH.match(after)
        if row and high:
            control = int(high[1], 16) >> 41
            rows.append((row[2], control >> 5 & 7, control >> 11 & 63))
    return rows


def assembled(ring: Ring) -> bytes:
    """Its cubin."""
    from mlagen.targets.nvidia.ptxas import assemble_ptx

    return assemble_ptx(
        ptx(ring), file_name="ring.ptx", source_lines={}, schedule_file="ring.ptx"
    ).cubin


def waits(ring: Ring, code: bytes) -> str:
    """Between the loads of a tile and their first use: what stands there, in order."""
    rows = listing(code)
    found: list[str] = []
    begun = [n for n, row in enumerate(rows) if re.search(r"\bLDSM?\b", row[0])][: ring.loads]
    held = {rows[n][1] for n in begun}
    left = {board for board in held if board < 7}
    found.append(f"{len(begun)} loads on scoreboards {sorted(held)}")
    released = False
    for n in range(begun[0] + 1 if begun else 0, len(rows)):
        text, _, mask = rows[n]
        hit = {board for board in left if n > begun[-1] and mask >> board & 1}
        telling = TELLS.search(text)
        if hit or telling:
            name = text.split()[1] if text.startswith("@") else text.split()[0]
            late = "" if n > begun[-1] else f" before load {sum(m < n for m in begun) + 1}"
            found.append(name + late + (f" waits for {sorted(hit)}" if hit else ""))
        left -= hit
        released |= n > begun[-1] and bool(RELEASES.search(text))
        if n > begun[-1] and released and not left:
            break
    return "; ".join(found) + (f"; never waited for {sorted(left)}" if left else "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fills", type=int, default=3000)
    parser.add_argument("--sass", action="store_true")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="the cubins, by number")
    options = parser.parse_args()
    from mlagen.launch.cuda_driver import CudaDriver

    driver = CudaDriver.load()
    device = driver.device(0)
    bad = False
    print("| given back | by | told by | loads | beside | words read | wrong | next |")
    print("|---|---|---|---|---|---|---|---|")
    with ThreadPoolExecutor() as pool:
        codes = list(pool.map(assembled, rings()))
    if options.keep:
        for number, code in enumerate(codes):
            (options.keep / f"{number}.cubin").write_bytes(code)
    for ring, code in zip(rings(), codes, strict=True):
        read, wrong, later = counted(driver, device, ring, code, options.fills)
        bad |= bool(wrong) and (ring.release in ("used", "stored") or "proxy" in ring.release)
        kind = f"{ring.loads} {ring.load}" + (", spread" if ring.spread else "")
        beside = "wgmma" if ring.multiplies else f"{ring.noise} warps"
        release = ring.release + (" by the other side" if ring.fence else "")
        print(
            f"| {release} | {ring.by} | {ring.told} | {kind} | {beside} "
            f"| {read:.2e} | {wrong} | {later} |", flush=True,
        )  # fmt: skip
        if options.sass and not ring.noise and not ring.multiplies:
            print(f"<!-- {ring.name}: {waits(ring, code)} -->", flush=True)
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
