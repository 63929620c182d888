"""How mutants are made: on the text, everywhere, each one defect, each where its code runs."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from mutated import SYMBOL, listing, prefill

from mlagen.attention.prefill.mutants import make_inputs, tile_call
from mlagen.errors import ConfigError, UnsupportedError
from mlagen.families.mha_prefill.inputs import MhaInputs
from mlagen.families.mha_prefill.problem import MhaConfigV2
from mlagen.mutation import sample
from mlagen.mutation.gfx950 import ORDER
from mlagen.mutation.gfx950.addresses import evaluate
from mlagen.mutation.gfx950.barriers import require_free_scc
from mlagen.mutation.gfx950.listing import read_listing
from mlagen.mutation.gfx950.mutant import Mutant, apply, original_line
from mlagen.mutation.gfx950.subject import make_mutants
from mlagen.mutation.gfx950.tile_numbers import tiles_for


@cache
def mutants() -> list[Mutant]:
    return make_mutants(listing(), 512)


def code_of(mnemonic: str) -> dict[int, str]:
    return {n: line.code for n, line in listing().lines.items() if line.mnemonic == mnemonic}


def of(kind: str, operator: str = "") -> list[Mutant]:
    return [m for m in mutants() if m.kind == kind and m.operator.startswith(operator)]


def test_the_listing_is_read_back() -> None:
    assert listing().sections[:2] == ("setup", "N = 1")
    assert [role.name for role in listing().roles] == ["lower", "upper"]
    assert listing().slots == {"K": (2, 16384), "V": (2, 16384)}
    text = prefill().text.split("\n")
    assert len(listing().lines) == len(prefill().manifest.source)
    for source in prefill().manifest.source:
        line = listing().lines[source.asm_line]
        assert text[source.asm_line - 1].strip().startswith(line.code)
        assert line.section == source.section
        if source.cluster:
            title = listing().blocks[line.block].title
            assert title.startswith(f"cluster {source.cluster}, i")
        else:  # head or tail of a section
            assert line.block < 0 or source.asm_line >= listing().blocks[line.block].end


def test_clusters_follow_one_another_along_the_control_flow() -> None:
    (last,) = [
        b for b in listing().blocks if (b.section, b.title) == ("prologue", "cluster D, i = 1")
    ]
    assert {b.section for b in listing().next_blocks(last.end)} == {
        "loop, i % 2 = 0",
        "drain, (N - 2) % 2 = 0",
    }
    back = [b for b in listing().blocks if b.section == "loop, i % 2 = 1"][-1]
    assert listing().next_blocks(back.end) == listing().next_blocks(last.end)


def test_every_place_has_its_mutants() -> None:
    waits, nops = code_of("s_waitcnt"), code_of("s_nop")
    fields = Counter(
        {n: code.count("(") + (code.count("(") > 1) for n, code in waits.items()}
    )  # removed: each counter, and all where there are several
    removed = Counter(m.line for m in of("waits") if m.operator != "count + 1")
    assert removed == fields
    assert Counter(m.line for m in of("nops", "removed")) == Counter(nops.keys())
    assert {m.line for m in of("nops", "one shorter")} == {
        n for n, code in nops.items() if code != "s_nop 0"
    }
    clusters = {n for n in code_of("s_barrier") if listing().lines[n].block >= 0}
    for role in ("lower", "upper", "all"):
        found = {m.line for m in of("barriers", "removed") if m.role == role}
        assert clusters <= found
    assert {m.line for m in of("barriers")} == set(code_of("s_barrier"))
    reads = {n for n, line in listing().lines.items() if line.mnemonic.startswith("ds_read")}
    assert {m.line for m in of("swizzle", "slot of the consumer")} == reads


def test_counts_grow_by_one_and_stay_in_their_field() -> None:
    for mutant in of("waits", "count + 1"):
        old = dict(re.findall(r"(\w+)\((\d+)\)", listing().lines[mutant.line].code))
        (text,) = mutant.edits[mutant.line]
        new = dict(re.findall(r"(\w+)\((\d+)\)", text))
        grown = {name: int(new[name]) - int(old[name]) for name in old}
        assert grown == {**dict.fromkeys(old, 0), mutant.touches: 1}
        assert int(new[mutant.touches]) <= {"vmcnt": 63, "lgkmcnt": 15}[mutant.touches]


def test_names_are_unique() -> None:
    assert len({m.name for m in mutants()}) == len(mutants())


def test_a_moved_barrier_keeps_the_number_on_every_path() -> None:
    """Barriers passed between entering and leaving a straight section do not change."""
    for mutant in of("barriers", "moved"):
        if mutant.role != "all" or len(mutant.sections) > 1:
            continue
        change = sum(
            lines.count("  s_barrier") + any("s_barrier  " in text for text in lines) - 1
            for lines in mutant.edits.values()
        )
        ends = [n for n in mutant.edits if listing().lines[n].mnemonic != "s_barrier"]
        assert change in (0, -len(ends), len(ends)), mutant.name


def test_a_barrier_of_one_role_is_guarded_by_the_wave() -> None:
    (mutant,) = [
        m
        for m in of("barriers", "removed")
        if m.role == "upper" and m.place == "loop, i % 2 = 0, cluster B, i"
    ]
    kept = [text.strip() for text in mutant.edits[mutant.line]]
    assert kept[:3] == [
        "s_cmp_lt_u32 s[WAVE], 4",
        f"s_cbranch_scc0 .Lmutant_{mutant.line}_without",  # the upper waves go round it
        "s_barrier",
    ]


def test_a_live_scc_at_a_barrier_is_refused() -> None:
    require_free_scc(listing())
    barrier = next(n for n in code_of("s_barrier") if listing().lines[n].block >= 0)
    text = apply(prefill().text, {barrier: ("  s_cmp_eq_u32 s[N], 0", "  s_barrier",
                                            "  s_cselect_b32 s[TMP], 0, 1")})  # fmt: skip
    with pytest.raises(UnsupportedError, match="reads an SCC"):
        require_free_scc(read_listing(text, SYMBOL))


def test_lines_of_a_mutated_text_lead_back() -> None:
    edits = {3: (), 5: ("x", "y", "z"), 8: ("w",)}
    text = apply("\n".join(str(n) for n in range(1, 11)), edits).split("\n")
    assert text == ["1", "2", "4", "x", "y", "z", "6", "7", "w", "9", "10"]
    back = [original_line(edits, number) for number in range(1, len(text) + 1)]
    assert back == [1, 2, 4, 5, 5, 5, 6, 7, 8, 9, 10]


def test_the_setup_is_evaluated_as_the_layout_says() -> None:
    """Lane addresses from the text against the formulas of the two layouts."""
    setup = [line for line in listing().lines.values() if line.section == "setup"]
    values = evaluate(setup, 512)
    thread = np.arange(512)
    lane = thread % 64
    row = lane % 32 * 64
    for half, register in enumerate(("v[KADR]", "v[KADR+1]")):
        off = row + half * 32 + lane // 32 * 16
        assert np.array_equal(values[register].words, off ^ (off >> 8 & 3) << 4)
    # 8 bytes a lane: rows of 64 bytes, 4 lanes a row of 16 columns, as the transposing read wants.
    assert set(np.diff(np.unique(values["v[VADR]"].words))) == {8}


@pytest.mark.parametrize("side", ["producer", "consumer"])
def test_a_flipped_bit_moves_one_side_only(side: str) -> None:
    setup = [line for line in listing().lines.values() if line.section == "setup"]
    registers = {
        "producer": ("v[KSRC]", "v[VSRC]"),
        "consumer": ("v[KADR]", "v[KADR+1]", "v[VADR]"),
    }
    before = evaluate(setup, 512)
    mutants = of("swizzle", f"bit of the {side}")
    assert len(mutants) > 50
    for mutant in mutants:
        (code,) = mutant.edits[mutant.line]
        after = evaluate(setup, 512, {mutant.line: code.strip()})
        moved = {
            name
            for names in registers.values()
            for name in names
            if not np.array_equal(before[name].words, after[name].words)
        }
        assert moved
        assert moved <= set(registers[side])


def test_a_slot_is_changed_by_the_size_of_one() -> None:
    for mutant in (*of("swizzle", "slot"),):
        old, new = (int(n) for n in re.findall(r"(\d+)(?: ->|$)", mutant.what))
        assert abs(old - new) == listing().slots[mutant.touches][1]


def test_each_section_runs_with_its_numbers_of_tiles() -> None:
    def tiles(*sections: str) -> list[int]:
        return sorted(tiles_for(listing(), sections))

    assert tiles("N = 2") == [2]
    assert tiles("N = 0") == [0]
    assert tiles("prologue") == [4, 5, 6, 7, 8]
    assert tiles("drain, (N - 2) % 2 = 1") == [5, 7]
    assert tiles("setup") == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert tiles("N = 1", "N = 3") == [1, 3]


def test_inputs_move_the_maximum_in_some_waves_and_not_in_others() -> None:
    config = MhaConfigV2.from_fields(prefill().manifest.problem)
    inputs = make_inputs(config, MhaInputs, tile_call(3, 0))
    q, k = (x[0, :, 0].astype(np.float64) for x in (inputs.q, inputs.k))
    scores = q @ k.T * inputs.scale * np.log2(np.e)
    maxima = scores.reshape(8, 32, 3, 64).max(axis=3)  # [wave, row, tile]
    grown = np.diff(np.maximum.accumulate(maxima, axis=2), axis=2)
    moving = (grown > config.rescale_threshold).all(axis=1)
    assert moving.tolist() == [[True] * 2, [True] * 2, [False] * 2, [False] * 2] * 2
    # No tile of a resting wave is negligible in bf16.
    resting = scores.reshape(8, 32, 192)[[2, 3, 6, 7]]
    weight = np.exp2(resting - resting.max(axis=2, keepdims=True))
    share = weight.reshape(4, 32, 3, 64).sum(axis=3) / weight.sum(axis=2)[..., None]
    assert share.max(axis=1).min() > 2**-3


def test_a_sample_is_spread_and_repeatable() -> None:
    drawn = sample(mutants(), 24, seed=3)
    assert drawn == sample(mutants(), 24, seed=3) != sample(mutants(), 24, seed=4)
    operators = Counter((m.kind, m.operator) for m in drawn)
    assert max(operators.values()) - min(operators.values()) <= 1
    assert {m.kind for m in drawn} == set(ORDER)
    assert sample(mutants(), 10**6, seed=0) == mutants()
    with pytest.raises(ConfigError, match="at least 1"):
        sample(mutants(), 0, seed=0)


def test_classes_are_chosen_by_name() -> None:
    assert {m.kind for m in make_mutants(listing(), 512, ["nops"])} == {"nops"}
    with pytest.raises(ConfigError, match="unknown class of mutants 'noops'"):
        make_mutants(listing(), 512, ["noops"])


def test_a_text_without_clusters_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="no clusters"):
        read_listing(f"{SYMBOL}:\n  s_endpgm\n", SYMBOL)


def test_mutants_are_values() -> None:
    assert replace(mutants()[0]) == mutants()[0]
