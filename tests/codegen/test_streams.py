"""Interleaving, lifetimes, instruction table and templates refuse what they cannot vouch for."""

import textwrap

import pytest

from mlagen.codegen import build
from mlagen.codegen.schedules import load
from mlagen.codegen.target import schedule_of
from mlagen.dsl import Interleave, Operation, Tile
from mlagen.dsl.operation import steps_of
from mlagen.errors import CapacityError, ConfigError, ScheduleError, TemplateError
from mlagen.families.mha_prefill.problem import MhaConfigV2
from mlagen.targets.gfx950.codegen import build as building
from mlagen.targets.gfx950.codegen.interleave import interleave
from mlagen.targets.gfx950.codegen.isa import Parser
from mlagen.targets.gfx950.codegen.lifetimes import check_lifetimes
from mlagen.targets.gfx950.codegen.program import Origin

CONFIG = MhaConfigV2(num_heads=8, num_kv_heads=2)
ORIGIN = Origin("test", "test.s.j2", 1, 1)
PARSER = Parser({"A": 4, "B": 8, "P": 20})


def parse(*lines):
    return [PARSER.line(line, ORIGIN) for line in lines]


def texts(stream):
    return [x.text for x in stream]


FIRST = parse("v_exp_f32 v0, v0", "v_exp_f32 v1, v1", "v_exp_f32 v2, v2")
SECOND = parse(*(f"v_add_f32 v{n}, v{n}, v{n}" for n in range(10, 16)))


def test_interleave_patterns_keep_each_stream_in_order():
    interleaved = texts(interleave(FIRST, SECOND, "1x1:2 1x1:1", "x"))
    assert interleaved == texts([FIRST[0], *SECOND[:2], FIRST[1], SECOND[2], FIRST[2], *SECOND[3:]])
    assert texts(interleave(FIRST, SECOND, "even", "x")) == texts(
        [FIRST[0], *SECOND[:2], FIRST[1], *SECOND[2:4], FIRST[2], *SECOND[4:]]
    )


def test_interleaved_streams_must_not_share_registers():
    other = parse("v_mov_b32 v30, v1")
    with pytest.raises(ScheduleError, match="register 1 in both"):
        interleave(FIRST, other, "even", "schedules/x.py:3")


PRODUCTS = parse(*(f"v_add_f32 v{n}, v{n + 20}, v{n + 20}" for n in range(4)))


def test_an_ordered_interleave_holds_back_what_must_follow():
    second = parse(
        "v_mov_b32 v10, v40",  # independent: its slot of the pattern
        "v_mov_b32 v11, v2",  # reads what the third writes
        "v_mov_b32 v22, v41",  # writes what the third reads
        "v_mov_b32 v0, v42",  # writes what the first writes
        "v_mov_b32 v12, v3",  # reads what the last writes
    )
    interleaved = interleave(PRODUCTS, second, "4x1:1", "x", ordered=True)
    # The second slot is not taken yet and goes to the first stream, which is then one ahead.
    assert texts(interleaved) == texts(
        [PRODUCTS[0], second[0], *PRODUCTS[1:3], PRODUCTS[3], second[1], *second[2:]]
    )
    place = {x.text: at for at, x in enumerate(interleaved)}
    for x in PRODUCTS:
        for y in second:
            conflict = {*x.writes} & {*y.reads, *y.writes} or {*x.reads} & {*y.writes}
            assert not conflict or place[x.text] < place[y.text]
    with pytest.raises(ScheduleError, match="ordered=True keeps it"):
        interleave(PRODUCTS, second, "4x1:1", "x")


def test_an_ordered_interleave_of_independent_streams_is_an_interleave():
    for pattern in ("even", "1x1:2 1x1:1", "3x1:2"):
        assert interleave(FIRST, SECOND, pattern, "x", ordered=True) == interleave(
            FIRST, SECOND, pattern, "x"
        )


def test_scc_orders_too():
    compare = parse("s_cmp_eq_u32 s0, s1", "s_cselect_b32 s2, s3, s4", "s_mov_b32 s9, 0")
    other = parse("s_add_u32 s5, s6, s7")
    interleaved = interleave(compare, other, "1x1:1 2x1:0", "x", ordered=True)
    assert texts(interleaved) == texts([*compare, *other])
    assert texts(interleave(compare, other, "1x2:1", "x", ordered=True)) == texts(
        [*compare[:2], *other, compare[2]]
    )


def test_interleaves_of_more_operations_and_of_absent_ones():
    def operation(name, offset):
        return Operation(name, "x", Tile(offset), lambda at: {})

    a, b, c = operation("a", 0), operation("b", 1), operation("c", 2)
    step = Interleave(a, (b, c), "even", line=3)
    assert str(step) == "interleave(a(i), b(i+1), c(i+2), 'even')"

    def left(i, n):
        return steps_of([step], lambda op: op.present(i, n))

    assert left(0, 3) == (step,)
    assert left(0, 2) == (Interleave(a, (b,), "even", line=3),)
    assert left(-1, 3) == (b, c), "one stream is left: plain order"
    assert left(2, 3) == (a,)


def test_bad_interleave_pattern_is_refused():
    with pytest.raises(ScheduleError, match=r"'3y' is not COUNTxFIRST:SECOND"):
        interleave(FIRST, SECOND, "3y", "x")


def test_parser_resolves_symbols_and_effects():
    (x,) = parse("v_mfma_f32_32x32x16_bf16 v[A:A+15], v[B+12:B+15], v[P:P+3], 0")
    assert x.writes == tuple(range(4, 20)) and x.reads == (*range(20, 24), *range(20, 24))
    assert x.passes == 8
    (dma,) = parse("buffer_load_dwordx4 v3, s[8:11], s5 offen lds")
    assert dma.counter == "vm" and not dma.writes and 1124 in dma.reads
    (cmp,) = parse("v_cmp_lt_f32 vcc, 0x41000000, v1")
    assert cmp.writes == (1106, 1107)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("v_frobnicate v0, v1", "'v_frobnicate' is no instruction of the gfx950 table"),
        ("v_add_f32 v0, v1", "takes 3 operands, 2 given"),
        ("v_add_f32 v0, v1, v[NOPE]", "neither a register, a known symbol nor a number"),
    ],
)
def test_lines_that_are_not_understood_are_refused(line, message):
    with pytest.raises(TemplateError, match=r"test\.s\.j2:1") as caught:
        parse(line)
    assert message in str(caught.value)


def test_lifetimes_overlap_in_a_shared_bank(tmp_path):
    file = tmp_path / "overlap.py"
    shipped = load("mha_prefill_v2").path.read_text()
    # V is read in the cluster where K is still alive.
    moved = shipped.replace("            read(V, i - 1)\n", "").replace(
        '        with cluster("A"):\n', '        with cluster("A"):\n            read(V, i - 1)\n'
    )
    file.write_text(moved)
    with pytest.raises(ScheduleError, match=r"read\(V, i-1\) defines V of tile 0 in registers of "
                       r"bank 'KV' where K of tile 1 is alive"):  # fmt: skip
        build(str(file), CONFIG)


def test_shipped_lifetimes_are_clean():
    assert check_lifetimes(schedule_of(load("mha_prefill_v2"), CONFIG, {})) > 50


def write_template(folder, name, text):
    path = folder / "gfx950" / "prefill" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return folder


def test_a_users_template_changes_the_kernel(tmp_path):
    shipped = build("mha_prefill_v2", CONFIG)
    write_template(tmp_path, "normalise.s.j2", "v_mov_b32 {{ temp[1] }}, 0\n")
    changed = build("mha_prefill_v2", CONFIG, templates_dir=tmp_path)
    assert changed.text != shipped.text
    assert "v_rcp_f32" in shipped.text and "v_rcp_f32" not in changed.text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\nv_mov_b32 {{ nonsense }}, 0\n", r"normalise.s.j2:2: 'nonsense' is undefined"),
        ("v_mov_b32 {{ temp[0] }\n", r"normalise.s.j2:1"),
        ("v_wobble_b32 {{ temp[0] }}, 0\n", r"normalise.s.j2:1: 'v_wobble_b32' is no instruction"),
        ("s_branch NOWHERE\n", "branches but is not declared guarded"),
        # The table understands it, the assembler does not: an inline constant as destination.
        ("v_add_f32 v[T], 0x1234, 0x5678\n", r"(?s)v_add_f32.*normalise.s.j2:1.*mha_prefill_v2.py"),
    ],
)
def test_template_errors_name_template_and_line(tmp_path, text, message):
    write_template(tmp_path, "normalise.s.j2", text)
    with pytest.raises(TemplateError, match=message):
        build("mha_prefill_v2", CONFIG, templates_dir=tmp_path)


def test_missing_template_folder():
    with pytest.raises(TemplateError, match="does not exist"):
        build("mha_prefill_v2", CONFIG, templates_dir="/nowhere")


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"k_slots": 4, "v_slots": 8}, r"LDS ran out.*196608 of 163840"),
        ({"kv_registers": "apart"}, r"vector registers ran out.*of 256"),
    ],
)
def test_combinations_over_a_limit_name_it(knobs, message):
    with pytest.raises(CapacityError, match=message):
        build("mha_prefill_v2", CONFIG, knobs=knobs)


def test_code_that_no_branch_reaches_is_refused(monkeypatch):
    """Wherever its epilogue stands."""
    tried = []

    def far(text, **_):
        tried.append(text)
        raise TemplateError("branch size exceeds simm16")

    monkeypatch.setattr(building, "assemble", far)
    with pytest.raises(CapacityError, match="more than a branch reaches"):
        build("mha_prefill_v2", CONFIG)
    assert len(tried) == 2 and tried[0] != tried[1]


def test_unknown_knobs_and_values_name_the_legal_ones():
    with pytest.raises(ConfigError, match=r"no knob 'qk_patern'"):
        build("mha_prefill_v2", CONFIG, knobs={"qk_patern": "even"})
    with pytest.raises(ConfigError, match=r"k_slots=5 is not among its choices"):
        build("mha_prefill_v2", CONFIG, knobs={"k_slots": 5})


def test_unknown_schedule_suggests_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'mha_prefill_v2'"):
        build("mha_prefil_v2", CONFIG)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_warps": 16, "dtype": "fp8_e4m3"}, "choices: 8; waves"),
        ({"num_warps": 16}, "choices: 8; waves"),
    ],
)
def test_valid_problems_that_are_not_generated_are_refused(fields, message):
    config = MhaConfigV2(num_heads=8, num_kv_heads=2, **fields)
    with pytest.raises(ConfigError, match=message):
        build("mha_prefill_v2", config)
