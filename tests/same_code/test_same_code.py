"""The comparison of two revisions' code: what it lets pass, and what not."""

from __future__ import annotations

import itertools
import re

import pytest
from code_differences import differences, wanted
from code_snapshot import snapshot
from compare_code import listed
from normal_ptx import normal_ptx

from mlagen.codegen.schedules import names
from mlagen.errors import ConfigError

KERNEL = """\
.visible .entry add(  // adds
    .param .u64 o,
    .param .u32 n
)
.reqntid 128, 1, 1
{
    .reg .b32 %t, %sum<2>;
    .reg .pred %done;
    .reg .b64 %o;
    mov.u32 %t, %tid.x;
    add.u32 %sum0, %t, 4;
    add.u32 %sum1, %sum0, %t;
    setp.eq.u32 %done, %sum1, 7;
    @%done bra END;
    ld.param.u64 %o, [o];
END:
    ret;
}
"""
SAME = {
    "a comment": lambda t: t.replace("// adds", "/* sums\n up */"),
    "blank space": lambda t: t.replace("    ret", "\n  ret"),
    "a register's name": lambda t: t.replace("%done", "%over"),
    "names of an array": lambda t: t.replace("%sum0", "%a").replace("%sum1", "%b").replace(
        "%sum<2>", "%b, %a"),
    "order of declarations": lambda t: t.replace(
        "    .reg .pred %done;\n", "").replace("{\n", "{\n    .reg .pred %done;\n"),
    "a label": lambda t: t.replace("END", "LEAVE"),
    "the entry's symbol": lambda t: t.replace("entry add", "entry sums"),
    "a parameter's name": lambda t: re.sub(r"(?<!%)\bo\b", "output", t),
}  # fmt: skip
OTHER = {
    "an immediate": lambda t: t.replace(", 4;", ", 8;"),
    "another register": lambda t: t.replace("%sum1, %sum0, %t", "%sum1, %t, %t"),
    "swapped operands": lambda t: t.replace("%sum1, %sum0, %t", "%sum1, %t, %sum0"),
    "a register's type": lambda t: t.replace(".reg .b32 %t, %sum<2>", ".reg .b64 %t, %sum<2>"),
    "the other way of a branch": lambda t: t.replace("@%done", "@!%done"),
    "an instruction less": lambda t: t.replace("    add.u32 %sum0, %t, 4;\n", ""),
    "threads of a block": lambda t: t.replace("128, 1, 1", "256, 1, 1"),
    "another parameter is read": lambda t: t.replace("[o]", "[n]"),
    "a label's place": lambda t: t.replace("END:\n", "").replace("    setp", "END:\n    setp"),
    "a special register": lambda t: t.replace("%tid.x", "%ctaid.x"),
}


@pytest.mark.parametrize("edit", SAME.values(), ids=SAME)
def test_names_and_layout_count_for_nothing(edit) -> None:
    assert edit(KERNEL) != KERNEL
    assert normal_ptx(edit(KERNEL)) == normal_ptx(KERNEL)


@pytest.mark.parametrize("edit", OTHER.values(), ids=OTHER)
def test_code_counts(edit) -> None:
    assert edit(KERNEL) != KERNEL
    assert normal_ptx(edit(KERNEL)) != normal_ptx(KERNEL)


FORMS = ("mla_decode_merge_sm90 num_heads=3", "mla_decode_merge_gfx950 num_heads=3")


@pytest.fixture(scope="module", params=FORMS)
def pair(request):
    """A form's snapshot twice, and that of another one under its name."""
    form = request.param
    other = snapshot(form.replace("=3", "=5")) | {"form": form}
    return {form: snapshot(form)}, {form: snapshot(form)}, {form: other}


def test_the_same_form_twice_does_not_differ(pair) -> None:
    once, twice, _ = pair
    assert not differences(once, twice, frozenset(once))


def test_another_form_differs_and_shows_where(pair) -> None:
    once, _, other = pair
    found = differences(once, other, frozenset())
    code = next(one for one in found if one.kind == "code")
    assert re.search(r"^\+", code.told, re.M) and re.search(r"^-", code.told, re.M)


@pytest.mark.parametrize("fact", ["proof", "grid", "resources", "args", "block"])
def test_facts_count_where_the_code_is_equal(pair, fact) -> None:
    once, twice, _ = pair
    ((form, line),) = twice.items()
    edited = {form: line | {"facts": line["facts"] | {fact: ["another"]}}}
    assert [one.kind for one in differences(once, edited, frozenset())] == [fact]


def test_machine_code_counts_for_those_that_are_asked(pair) -> None:
    once, twice, _ = pair
    ((form, line),) = twice.items()
    edited = {form: line | {"sass": "0"}}
    kinds = [one.kind for one in differences(once, edited, frozenset(once))]
    assert kinds == ["sass"] and not differences(once, edited, frozenset())


def test_a_form_that_is_refused_now_differs() -> None:
    form = "mla_decode_merge_sm90 num_heads=100000"
    now = snapshot(form)
    assert now == {"form": form, "refused": ConfigError.__name__}
    (found,) = differences({form: {"form": form}}, {form: now}, frozenset())
    assert (found.kind, found.told) == ("builds", "builds -> ConfigError")


def test_a_wanted_difference_needs_its_kind(pair, tmp_path) -> None:
    once, _, other = pair
    (form,) = once
    found = differences(once, other, frozenset())
    rows = tmp_path / "wanted.toml"
    words = form.split()
    rows.write_text(
        f'[[difference]]\nforms = ["{words[0]}"]\nkinds = ["code"]\nreason = "heads"\n'
        '[[difference]]\nforms = ["num_heads=9"]\nkinds = ["code"]\nreason = "nothing fits"\n'
    )
    left, idle = wanted(rows, found)
    assert left == [one for one in found if one.kind != "code"] and idle == ["nothing fits"]


def test_the_list_has_every_shipped_kernel_once_a_form() -> None:
    forms = listed()
    assert len(forms) >= 400 and len(set(forms)) == len(forms)
    assert set(names()) <= {form.split()[0] for form in forms}
    assert any("gemm" in form for form in forms)


def test_a_sample_leaves_out_no_form_for_ever() -> None:
    taken = [listed(7, first) for first in range(7)]
    assert sorted(itertools.chain(*taken)) == sorted(listed())
