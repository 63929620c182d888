"""A slice of the fuzzer of schedules, and that its judge sees what is wrong.

Which edits are tried depends on the sources of the generator, the schedules and the templates: a
change of these is met with edits that no run before has tried, and the same sources with the same.
"""

import re
from dataclasses import replace
from functools import partial

import emulated
import hopper_texts
import judge
import pytest
from fuzzed import ROOT, named
from sources import sources
from table import BAD, tables

from mlagen.targets.gfx950.assemble import assemble
from mlagen.tune.sandbox import Sandbox

SLICE = {
    "vector_add": 6, "fold": 6, "mha_prefill_v2 paged": 5, "mla_prefill_reduce": 5,
    "gemm_bf16": 5, "fold_sm90": 5, "gemm_bf16_sm90": 5, "mla_decode_merge_sm90": 5,
    "mla_decode_sm90 rows": 3, "mla_decode_sm90 few rows": 3, "mla_sparse_prefill_sm90 keys": 3,
    "mla_sparse_decode_sm90 v32": 2, "mla_sparse_decode_sm90 held": 3,
    "mla_sparse_decode_sm90 grained": 2,
    "mla_sparse_prefill_sm100 pair": 3, "mla_sparse_prefill_sm100 block v32": 2,
    "mla_decode_gfx950": 3, "mla_decode_gfx950 wide": 3, "mla_decode_gfx950 several": 2,
    "mla_decode_gfx950 aiter": 2, "mla_decode_gfx950 e4m3": 3,
    "mla_sparse_prefill_gfx950": 2, "mla_sparse_decode_gfx950 wide": 2,
    "mla_sparse_prefill_gfx950 e4m3": 2, "mla_sparse_decode_gfx950 v32": 2,
    "mla_sparse_decode_gfx950 v41": 2, "mla_sparse_decode_sm100 pair v41": 2,
    "mla_decode_sm100": 3, "mla_decode_merge_sm100": 3,
    "mla_sparse_decode_sm100 block": 2, "mla_sparse_decode_sm100 pair model1": 2,
    "mla_decode_gfx950 rope-aware": 1, "gemm_bf16_sm100": 2,
    "mla_decode_sm90": 3, "mla_decode_sm90 fp8": 2, "mla_decode_sm90 few rows in registers": 2,
    "mla_sparse_prefill_sm90 heads": 2, "mla_sparse_prefill_sm90 fed by key": 2,
    "mla_sparse_prefill_sm90 held": 2, "mla_sparse_decode_sm90 held in parts": 2,
    "mla_sparse_decode_sm90 cluster": 2,
}  # fmt: skip
SEEDS = 100_000
OF_SIZES = 3  # edits of sizes alone, of each case besides
GENERATOR = (
    "mlagen/dsl",
    "mlagen/codegen",
    "mlagen/attention",
    "mlagen/families",
    "schedules",
    "templates",
)
LIMIT = 120.0


@pytest.fixture(scope="module", autouse=True)
def _modules_for_forks():
    with pytest.MonkeyPatch.context() as patched:
        here = ROOT / "tests/schedule_fuzz"
        patched.setenv("PYTHONPATH", f"{here}:{here.parent}:{here.parent / 'ptx'}")
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where a case's files are written; one place a case, as in a campaign."""
    made = tmp_path_factory.mktemp("fuzz")
    return lambda name: made / name.replace(" ", "_")


@pytest.mark.parametrize("name", SLICE)
def test_what_survives_is_right(name, folder):
    case, place = named(name), folder(name)
    first = sources(*GENERATOR) % SEEDS
    sandbox = Sandbox(partial(judge.prepare, case, place))
    try:
        sizes = range(judge.SIZES + first, judge.SIZES + first + OF_SIZES)
        for seed in (-1, *range(first, first + SLICE[name]), *sizes):
            found = sandbox.call(judge.attempt, case, place, seed, limit=LIMIT)
            assert found["outcome"] not in BAD, found
    finally:
        sandbox.close()


def test_a_seed_is_an_edit(folder):
    """The same one again; others are others, and all can be read as Python."""
    base = judge.survey(named("mla_decode_sm90"), folder("mla_decode_sm90"))
    drawn = [judge.draw(base, seed) for seed in range(60)]
    assert drawn == [judge.draw(base, seed) for seed in range(60)]
    assert len({x.text for x in drawn}) > 45
    assert {edit.kind for x in drawn for edit in x.edits} > {"offset", "order", "message", "drop"}
    assert len(judge.different(base, 50)) == 50


@pytest.mark.parametrize(
    "line",
    [
        r"\w+: mbarrier.try_wait.*;\n.*bra \w+;",  # for copies, and for slots
        r"wgmma.wait_group.sync.aligned \d;",
        r"add.u32 %kcol0, %kcol0, 64;",  # every copy fetches the first tile
    ],
)
def test_the_judge_sees_what_hopper_lacks(line, folder):
    case = named("gemm_bf16_sm90")
    prepared = judge.prepare(case, folder(case.name))
    function = judge._function(case, prepared.base.folder, prepared.base.source)
    made = judge._built(case, function, dict(case.knobs))
    assert not hopper_texts.wrong(prepared.trials, made, str)
    changed, count = re.subn(line, "", made.text)
    assert count
    assert hopper_texts.wrong(prepared.trials, replace(made, text=changed), str)


@pytest.mark.parametrize("line", ["s_waitcnt vmcnt", "s_barrier", "s_add_u32 s[XOFF]"])
def test_the_judge_sees_what_gfx950_lacks(line, folder):
    case = named("fold")
    prepared = judge.prepare(case, folder(case.name))
    artifact = judge._built(
        case, judge._function(case, prepared.base.folder, prepared.base.source), {}
    )
    lines = artifact.text.splitlines(keepends=True)
    text = "".join(x for x in lines if not x.strip().startswith(line))
    assert text != artifact.text
    code = assemble(text, file_name="fold.s", source_lines={}, schedule_file="fold.py")
    assert not emulated.wrong(prepared.trials, artifact, str)
    assert emulated.wrong(prepared.trials, replace(artifact, code=code), str)


def test_the_table_counts():
    one = {"case": "fold", "kind": "drop", "edits": []}
    found = [
        {**one, "seed": -1, "outcome": "right"},
        {**one, "seed": 0, "outcome": "refused", "error": "ProofError lost"},
        {**one, "seed": 1, "outcome": "wrong", "text": "a", "message": "x"},
        {**one, "seed": 2, "outcome": "right", "text": "b"},
        {**one, "seed": 3, "outcome": "right", "text": "b"},
        {**one, "seed": 4, "outcome": "unchanged"},
        {**one, "seed": 5, "outcome": "hang", "message": "at: build"},
    ]
    row = "| fold | 6 | 1 | 1 | 3 | 2 | 2 | 1 | 1 | 0 | ProofError lost 1 |"
    assert row in tables(found)
