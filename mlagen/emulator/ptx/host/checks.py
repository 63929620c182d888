"""What a launch may ask of an entry and of the target; the rest is refused before anything runs."""

from __future__ import annotations

import math

from mlagen.emulator.buffer import Triple
from mlagen.emulator.launch import Launch
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.program import Program
from mlagen.errors import ConfigError, UnsupportedError
from mlagen.ptx import Entry
from mlagen.targets.sm_90a.limits import Sm90a
from mlagen.targets.sm_100a.limits import Sm100a

Limits = Sm90a | Sm100a

_BLOCK_MAX = (1024, 1024, 64)  # threads in x, y, z (CUDA C++ Programming Guide, CC 9.0)
_CLUSTER_MAX = 16  # blocks; over 8 the kernel has to allow it (CUDA C++ Programming Guide)
_LOCAL_ALL = 1 << 30  # bytes of local memory of all threads of a cluster
_REGISTERS_ALL = 1 << 30  # bytes of registers of all warps of a cluster


def grid_and_cluster(entry: Entry, launch: Launch, limits: Limits) -> tuple[Triple, Triple]:
    """The grid in blocks, and the cluster. ConfigError where they do not go with the entry."""
    asked = launch.cluster
    if asked is not None and (len(asked) != 3 or any(part < 1 for part in asked)):
        raise ConfigError(f"cluster is {asked}; it is three numbers of at least 1")
    own = _three(entry.cluster)
    if own is not None and asked is not None and asked != own:
        raise ConfigError(
            f"cluster is {_shown(asked)}; {entry.name} asks for {_shown(own)} by .reqnctapercluster"
        )
    cluster = asked or own or (1, 1, 1)
    if entry.explicit_cluster and asked is None and own is None:
        raise ConfigError(
            f"{entry.name} is .explicitcluster: its launch names the cluster",
            hint="cluster = [x, y, z]",
        )
    count = math.prod(cluster)
    if count > _CLUSTER_MAX:
        where = f"line {entry.line}: " if own is not None else ""
        raise ConfigError(
            f"{where}a cluster of {count} blocks; {limits.name} has at most {_CLUSTER_MAX}, and "
            "over 8 only for kernels that allow it"
        )
    if entry.max_cluster_rank and count > entry.max_cluster_rank:
        raise ConfigError(
            f"a cluster of {count} blocks; {entry.name} says .maxclusterrank "
            f"{entry.max_cluster_rank}"
        )
    grid = launch.grid
    if entry.grid_of_clusters:  # .blocksareclusters
        x, down, deep = (g * c for g, c in zip(grid, cluster, strict=True))
        grid = x, down, deep
    for axis, blocks, size, most in zip("xyz", grid, cluster, limits.grid_max, strict=True):
        if blocks > most:
            raise ConfigError(f"{blocks} blocks in {axis}; a grid has at most {most}")
        if blocks % size:
            raise ConfigError(
                f"{blocks} blocks in {axis} are no whole number of clusters of {size}"
            )
    return grid, cluster


def check_block(entry: Entry, block: Triple, limits: Limits) -> None:
    """ConfigError for a block that the entry or the target has not."""
    threads = math.prod(block)
    own = _three(entry.block)
    if own is not None and entry.exact_threads and own != block:
        raise ConfigError(
            f"block is {_shown(block)}; {entry.name} asks for {_shown(own)} by .reqntid"
        )
    if own is not None and not entry.exact_threads and threads > math.prod(own):
        raise ConfigError(
            f"a block of {threads} threads; {entry.name} has at most {math.prod(own)} by .maxntid"
        )
    if threads > limits.max_block_threads:
        raise ConfigError(
            f"a block of {threads} threads; {limits.name} has at most {limits.max_block_threads}"
        )
    for axis, size, most in zip("xyz", block, _BLOCK_MAX, strict=True):
        if size > most:
            raise ConfigError(f"{size} threads in {axis}; a block has at most {most}")


def check_memory(program: Program, launch: Launch, cluster: Triple, limits: Limits) -> None:
    """ConfigError for more memory than a block has."""
    if launch.dynamic_shared < 0:
        raise ConfigError(f"dynamic_shared is {launch.dynamic_shared}; it is bytes from 0 on")
    static = program.dynamic - y.SHARED_FIRST
    if static + launch.dynamic_shared > limits.smem_bytes:
        raise ConfigError(
            f"{static + launch.dynamic_shared} bytes of shared memory, {static} of them static; "
            f"{limits.name} gives a block {limits.smem_bytes}"
        )
    local = program.local_bytes * math.prod(launch.block) * math.prod(cluster)
    if local > _LOCAL_ALL:
        raise UnsupportedError(
            f"{program.local_bytes} bytes of local memory a thread, {local} in a cluster; the "
            f"emulator gives a cluster {_LOCAL_ALL}"
        )
    warps = -(-math.prod(launch.block) // y.LANES) * math.prod(cluster)
    if program.register_bytes * warps > _REGISTERS_ALL:
        raise UnsupportedError(
            f"line {program.entry.line}: the registers that {program.entry.name} names take "
            f"{program.register_bytes} bytes a warp, {program.register_bytes * warps} in a "
            f"cluster; the emulator gives a cluster {_REGISTERS_ALL}",
            hint="smaller blocks or clusters",
        )


def _three(dimensions: tuple[int, ...]) -> Triple | None:
    if not dimensions:
        return None
    x, down, deep = (*dimensions, 1, 1)[:3]
    return x, down, deep


def _shown(dimensions: Triple) -> str:
    return "x".join(map(str, dimensions))
