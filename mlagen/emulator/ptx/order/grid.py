"""Order through global memory, within a cluster and between clusters.

A *flag* is a word that somebody wrote with release semantics. It carries what the writers knew, by
cluster: clocks of that cluster, in a table as `G_KNOWN` has for what each cluster knows of each
other one. Who acquires the word learns all of it, for its whole cluster: a barrier that is missing
between the one who acquires and the others of its CTA goes unseen here. So does a scope that is too
narrow: all are taken for the widest.

`G_WORDS` has the last write and the last read of each word of a buffer that a kernel may write to,
by address. All of this is kept only where clusters may tell each other something (`tables`). Where
they cannot, each has flags of its own: G_CLUSTERS is 1, or 0 without any.
"""

from __future__ import annotations

from mlagen.emulator.native.compiling import compiled
from mlagen.emulator.native.raw import load_i64, store_i64
from mlagen.emulator.ptx import layout as y
from mlagen.emulator.ptx.order.clocks import clocks_of, fence_kind, join, step_clock, told
from mlagen.emulator.ptx.order.pairs import lanes_learn, lanes_tell
from mlagen.emulator.ptx.order.record_sizes import (
    FLAG_SLOTS,
    FLAGS,
    G_CLUSTERS,
    G_COMPONENTS,
    G_DROPPED,
    G_FLAG_COUNT,
    G_FLAG_INDEX,
    G_FLAGS,
    G_KNOWN,
    G_WORD_COUNT,
    G_WORDS,
    GENERIC,
    WORD_SIZE,
    WORD_SLOTS,
    WORDS,
)
from mlagen.emulator.ptx.state import warp_base


@compiled
def hashed(key: int, slots: int) -> int:
    """Where a key's search begins in a table of a power of two of slots."""
    mixed = key * 0x9E3779B97F4A7C1
    return (mixed >> 20) & (slots - 1)


@compiled
def my_number(context: int) -> int:
    """Number of this cluster among those that are told apart."""
    if load_i64(load_i64(context, y.C_ORDER), G_CLUSTERS) == 1:
        return 0
    return load_i64(context, y.C_CLUSTER)


@compiled
def flag_of(context: int, address: int, make: bool) -> int:
    """Address of what the flag at an address carries; 0: there is none, or no room for one."""
    grid = load_i64(context, y.C_ORDER)
    if load_i64(grid, G_CLUSTERS) == 0:
        return 0
    index = load_i64(grid, G_FLAG_INDEX)
    slot = hashed(address, FLAG_SLOTS)
    while load_i64(index, 2 * slot) != 0:
        if load_i64(index, 2 * slot) == address + 1:
            return flag_at(grid, load_i64(index, 2 * slot + 1))
        slot = (slot + 1) & (FLAG_SLOTS - 1)
    count = load_i64(grid, G_FLAG_COUNT)
    if not make:
        return 0
    if count == FLAGS:
        store_i64(grid, G_DROPPED, load_i64(grid, G_DROPPED) + 1)
        return 0
    store_i64(index, 2 * slot, address + 1)
    store_i64(index, 2 * slot + 1, count)
    store_i64(grid, G_FLAG_COUNT, count + 1)
    return flag_at(grid, count)


@compiled
def flag_at(grid: int, number: int) -> int:
    """Address of the clocks that flag `number` carries, of all clusters."""
    size = load_i64(grid, G_CLUSTERS) * load_i64(grid, G_COMPONENTS) * 8
    return load_i64(grid, G_FLAGS) + number * size


@compiled
def known(context: int, cluster: int, other: int) -> int:
    """Address of the clocks of `other` that `cluster` knows."""
    grid = load_i64(context, y.C_ORDER)
    number = cluster * load_i64(grid, G_CLUSTERS) + other
    return load_i64(grid, G_KNOWN) + number * load_i64(grid, G_COMPONENTS) * 8


@compiled
def release_global(context: int, warp: int, address: int) -> None:
    """Lanes of a warp are about to write the word at a generic address with release semantics."""
    flag = flag_of(context, address, True)
    if flag == 0:
        return
    grid = load_i64(context, y.C_ORDER)
    clusters = load_i64(grid, G_CLUSTERS)
    size = load_i64(grid, G_COMPONENTS) * 8
    mine = my_number(context)
    told(context, warp)
    step_clock(context, warp)
    join(context, flag + mine * size, clocks_of(context, warp))
    lanes_tell(context, warp, y.ALL)
    for other in range(clusters):
        if other != mine:
            join(context, flag + other * size, known(context, mine, other))


@compiled
def learn(context: int, warp: int, flag: int) -> None:
    """A warp learns what a flag carries."""
    grid = load_i64(context, y.C_ORDER)
    size = load_i64(grid, G_COMPONENTS) * 8
    mine = my_number(context)
    for other in range(load_i64(grid, G_CLUSTERS)):
        if other != mine:
            join(context, known(context, mine, other), flag + other * size)
    join(context, clocks_of(context, warp), flag + mine * size)
    lanes_learn(context, warp)


@compiled
def acquire_global(context: int, warp: int, address: int) -> None:
    """Lanes of a warp have read the word at a generic address with acquire semantics: the warp
    knows what those knew who released it."""
    flag = flag_of(context, address, False)
    if flag != 0:
        learn(context, warp, flag)


@compiled
def fence_scope(context: int, warp: int) -> None:
    """A fence of a scope: words that were read before it are acquired, words that are written after
    it with a strong write are released."""
    base = warp_base(context, warp)
    store_i64(base, y.W_FENCES, load_i64(base, y.W_FENCES) + 1)
    for i in range(3):
        flag = load_i64(base, y.W_SEEN + i)
        if flag != 0:
            learn(context, warp, flag)
            store_i64(base, y.W_SEEN + i, 0)


@compiled
def fence_others(context: int) -> None:
    """A fence for global memory shows the async proxy what other clusters wrote that this one knows
    of."""
    mine = my_number(context)
    kind = load_i64(context, y.C_FENCED_GLOBAL)
    for other in range(load_i64(load_i64(context, y.C_ORDER), G_CLUSTERS)):
        if other != mine:
            fence_kind(context, known(context, mine, other), GENERIC, kind)


@compiled
def seen(context: int, warp: int, address: int) -> None:
    """A strong read of a word: a fence after it acquires what the word carries."""
    flag = flag_of(context, address, False)
    if flag == 0:
        return
    base = warp_base(context, warp)
    for i in range(3):
        held = load_i64(base, y.W_SEEN + i)
        if held == 0 or held == flag:
            store_i64(base, y.W_SEEN + i, flag)
            return
    store_i64(base, y.W_SEEN, flag)


@compiled
def word_of(context: int, address: int, make: bool) -> int:
    """Address of the WORD_ words of the four bytes at an address; 0: none, or no room for them."""
    grid = load_i64(context, y.C_ORDER)
    words = load_i64(grid, G_WORDS)
    key = (address >> 2) + 1
    slot = hashed(key, WORD_SLOTS)
    while True:
        held = load_i64(words, slot * WORD_SIZE)
        if held == key:
            return words + slot * WORD_SIZE * 8
        if held == 0:
            break
        slot = (slot + 1) & (WORD_SLOTS - 1)
    if not make:
        return 0
    count = load_i64(grid, G_WORD_COUNT)
    if count == WORDS:
        store_i64(grid, G_DROPPED, load_i64(grid, G_DROPPED) + 1)
        return 0
    store_i64(grid, G_WORD_COUNT, count + 1)
    store_i64(words, slot * WORD_SIZE, key)
    return words + slot * WORD_SIZE * 8
