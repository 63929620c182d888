"""A few forms of the sweep, others when the sources have changed; and that it tells faults
apart."""

import dataclasses
from itertools import islice
from unittest.mock import patch

import judged as judging
import pytest
from judged import judged, without_numbers
from sources import sources
from swept_forms import Form, forms, problems, values_of

from mlagen.codegen.schedules import load, names
from mlagen.errors import CapacityError, ConfigError, ScheduleError

DRAWN = 6  # forms of a run
SEED = sources("mlagen", "schedules", "templates")
KERNELS = tuple(names())


@pytest.mark.parametrize("number", range(DRAWN))
def test_a_form_builds_or_is_refused(number):
    """Each run takes other kernels, too."""
    kernel = KERNELS[(SEED + number * (len(KERNELS) // DRAWN)) % len(KERNELS)]
    found = judged(next(forms(SEED + number, (kernel,))))
    assert found.good, found


# Forms that ptxas once spilled, or that were refused.
ROPE_AWARE = {"dtype": "fp8_rope_aware", "cache_dtype": "fp8_rope_aware"}
SEVERAL = {"persistent": 1}
FOUND = [
    ("mla_decode_sm90", {"num_heads": 48, "q_len": 2, "page_size": 1}, SEVERAL),
    ("mla_decode_sm100", {"num_heads": 64, "page_size": 128, **ROPE_AWARE}, SEVERAL),
    ("mla_decode_sm100", {"num_heads": 64, "page_size": 192, **ROPE_AWARE}, SEVERAL),
    ("mla_sparse_decode_sm90", {"num_heads": 20, "rows": "v32", "dtype": "fp8_e4m3", "q_len": 2,
                                "extra": True, "causal": True}, {}),
    ("mla_sparse_decode_sm90", {"num_heads": 28, "rows": "e4m3_block128", "dtype": "fp8_e4m3"}, {}),
    ("mla_sparse_prefill_gfx950", {"num_heads": 16, "d_qk": 512, "rows": "model1"}, {}),
    ("mla_sparse_prefill_sm90", {"num_heads": 64, "d_qk": 512, "rows": "model1"}, {}),
]  # fmt: skip


def test_one_of_the_forms_that_once_did_not_build():
    kernel, fields, knobs = FOUND[SEED % len(FOUND)]
    assert judged(Form(kernel, tuple(fields.items()), tuple(knobs.items()))).outcome == "builds"


def test_every_field_of_every_problem_has_values():
    assert all(problems(kernel) for kernel in KERNELS)


def test_a_field_in_new_words_is_no_field_without_values():
    field = dataclasses.fields(load("mla_decode_sm90").problem_type)[0]
    assert 1 in values_of(field) and 128 in values_of(field)
    other = type("Field", (), {"name": "num_primes", "metadata": {"legal": "any prime"}})
    with pytest.raises(LookupError, match="num_primes: no values are known for 'any prime'"):
        values_of(other)


def test_a_seed_is_its_forms():
    drawn = list(islice(forms(3), 20))
    assert drawn == list(islice(forms(3), 20)) != list(islice(forms(4), 20))
    assert len({form.kernel for form in drawn}) == len(KERNELS)


def test_forms_are_drawn_among_what_is_asked_for():
    plain = {"dtype": ("bf16",), "cache_dtype": ("bf16",), "mask": ("causal",)}
    wanted = {"num_heads": ("24", "96"), "persistent": ("1",), **plain}
    drawn = list(islice(forms(3, ("mla_decode_sm90",), wanted), 12))
    assert {dict(form.fields)["num_heads"] for form in drawn} == {24, 96}
    # 0: where that is the problem's only choice.
    assert {dict(form.knobs)["persistent"] for form in drawn} == {0, 1}
    with pytest.raises(LookupError, match="no problem in"), patch("swept_forms.TRIES", 20):
        next(forms(3, ("mla_prefill_v2",), {"num_heads": ("1",), "num_kv_heads": ("3072",)}))


def test_a_form_that_differs_in_numbers_alone_is_not_assembled():
    """Another count of heads: other numbers. A sink: other instructions."""
    merge = Form("mla_decode_merge_sm90", (("num_heads", 24),), ())
    first = judged(merge)
    other = dataclasses.replace(merge, fields=(("num_heads", 28),))
    sink = dataclasses.replace(merge, fields=(("num_heads", 24), ("sink", True)))
    with patch.object(judging, "assemble_ptx", side_effect=AssertionError):
        assert judged(other, {first.alike}).outcome == "proved"
    assert first.outcome == judged(sink, {first.alike}).outcome == "builds"


def test_what_counts_as_a_number():
    """Names, widths of types and numbers of registers are none."""
    one = "mov.u32 %r7, 24;  // heads\n@%p1 bra $tile_2;\nadd.s64 %rd1, %rd2, -0x10;"
    assert without_numbers(one) == without_numbers(one.replace("24", "0x60").replace("heads", "96"))
    for old, new in (("u32", "u64"), ("%r7", "%r8"), ("tile_2", "tile_3"), ("%p1", "%p2")):
        assert without_numbers(one) != without_numbers(one.replace(old, new))


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ConfigError("rows=7", hint="rows=8"), "refused"),
        (CapacityError("LDS ran out", hint="fewer slots"), "refused"),
        (ConfigError("no"), "silent"),
        (CapacityError("k.ptx: spills: 4 bytes stored", hint="a smaller tile"), "spills"),
        (ScheduleError("v[S:S+3]: slice is empty"), "defect"),
        (IndexError("list index out of range"), "traceback"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value,
)
def test_what_ends_a_build_is_told_apart(error, outcome):
    with patch.object(judging, "build", side_effect=error):
        found = judged(Form("mla_decode_sm90", (("num_heads", 16),), ()))
    assert (found.outcome, found.good) == (outcome, outcome == "refused")
