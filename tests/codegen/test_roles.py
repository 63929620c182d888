"""Roles with code of their own: what differs, what is refused, what runs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mlagen.artifact import write_artifact
from mlagen.codegen import build
from mlagen.codegen.schedules import load
from mlagen.codegen.target import schedule_of, templates_for
from mlagen.dsl import epilogue, prologue, record, schedule
from mlagen.errors import ProofError, ScheduleError
from mlagen.families.mha_prefill.problem import MhaConfigV2
from mlagen.inspect import inspect_path
from mlagen.launch import EmulatedLauncher
from mlagen.mutation.gfx950.listing import read_listing
from mlagen.mutation.gfx950.subject import make_mutants
from mlagen.targets.gfx950.codegen.build import generate
from mlagen.targets.gfx950.codegen.listing import cluster_table
from mlagen.targets.gfx950.codegen.proof import prove
from mlagen.targets.gfx950.dsl import cluster, only, roles

FILE = Path(__file__).parent / "schedules" / "two_roles.py"
SHIPPED = Path(__file__).parents[2] / "schedules" / "mha_prefill_v2.py"


@pytest.fixture(scope="module")
def function():
    return load(str(FILE))


@pytest.fixture(scope="module")
def artifact(function):
    return build(function, function.problem_type())


def layout_of(function, **knobs):
    made = schedule_of(function, function.problem_type(), knobs)
    return made, generate(made, templates_for("gfx950", function.templates)).layout


def line_of(artifact, operation, role):
    return next(x for x in artifact.manifest.source if x.operation == operation and x.role == role)


def test_each_role_has_its_own_code(artifact):
    roles_of = {}
    for line in artifact.manifest.source:
        roles_of.setdefault(line.operation, set()).add(line.role)
    assert roles_of["copy(X, i+2)"] == {"lower"}
    assert roles_of["copy(Y, i+2)"] == roles_of["nothing(i)"] == {"upper"}
    assert roles_of["read(X, i)"] == roles_of["setup"] == {"lower", "upper"}
    text = artifact.text
    assert "; ==== entry ===" in text and "; ==== lower: loop, i % 3 = 0 ===" in text
    assert "upper: copy(Y, i+2) | read(X, i); read(Y, i)" in text
    # An operation that is recorded for both is spelled for each: v_sub in the upper half only.
    lines = text.splitlines()
    subtracting = {x.role for x in artifact.manifest.source if "v_sub_f32" in lines[x.asm_line - 1]}
    assert subtracting == {"upper"}
    assert [(r.name, r.first, r.last, r.stagger) for r in artifact.manifest.map.roles] == [
        ("lower", 0, 3, 0), ("upper", 4, 7, 1),
    ]  # fmt: skip


def test_only_who_issued_a_copy_waits_for_it(function):
    """Both copies are read two clusters later by all. The lower role may wait one cluster later
    than the upper one, which lags by one barrier."""
    layout = layout_of(function)[1]
    closing = {
        (role, name): [x.text for x in layout.by_key()[f"{role}: loop0 {name}"].body][-2]
        for role in ("lower", "upper")
        for name in ("read", "add")
    }
    assert closing["lower", "add"] == "s_waitcnt vmcnt(2)"
    assert closing["upper", "read"] == "s_waitcnt vmcnt(2) lgkmcnt(2)"
    assert not closing["lower", "read"].startswith("s_waitcnt")
    assert not closing["upper", "add"].startswith("s_waitcnt")


@pytest.mark.parametrize("mode", ["latest", "earliest"])
@pytest.mark.parametrize("k", [0, 8, 16, 24, 40, 48, 72])
def test_it_runs(artifact, mode, k):
    m = 300
    x, y = np.random.default_rng(k).standard_normal((2, m, k)).astype(np.float32)
    out = {name: np.full(m, np.nan, np.float32) for name in ("plus", "minus")}
    report = EmulatedLauncher(mode=mode).launch(
        artifact, tensors={"x": x, "y": y, **out}, scalars={"m": m, "k": k}, sizes={"m": m}
    )
    assert not report.emulation.findings
    exact = {"plus": x.sum(1, dtype=np.float64), "minus": x.sum(1, dtype=np.float64)}
    exact["plus"] += y.sum(1, dtype=np.float64)
    exact["minus"] -= y.sum(1, dtype=np.float64)
    bound = 2 * k * 2.0**-24 * (np.abs(x).sum(1, np.float64) + np.abs(y).sum(1, np.float64))
    for name, values in out.items():
        assert np.all(np.abs(values - exact[name]) <= bound), name


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("early copy", r"race-war\].*cluster add, copy\(X, i\+3\): waves 4-7 still read this slot"),
        ("late copy", r"race-raw\].*cluster read, read\(Y, i\): waves 4-7 wrote this slot"),
        ("no copy", r"stale-slot\].*read\(Y, i\) of role lower: tile 0 is read, .* holds nothing"),
        ("barrier", r"barriers\].*role lower passes 6 barriers, role upper 7, N = 1"),
        ("weak wait", r"wait-missing\].*read\(Y, i\): waves 4-7 wrote .*\n.*Needs vmcnt\(2\) "
                      r"before the barrier that closes cluster read"),
    ],
)  # fmt: skip
def test_faults_are_refused(function, fault, message):
    with pytest.raises(ProofError, match=message):
        build(function, function.problem_type(), knobs={"fault": fault})


def test_no_wait_of_any_role_can_be_left_out(function):
    made, layout = layout_of(function)
    assert not prove(made, layout).violations
    removed = set()
    for piece in layout.pieces():
        for index, x in enumerate(list(piece.body)):
            if x.pipe == "wait":
                del piece.body[index]
                assert prove(made, layout).violations, (piece.key, x.text)
                piece.body.insert(index, x)
                removed.add(piece.key.partition(":")[0])
    assert removed == {"lower", "upper"}


def test_a_wait_of_the_wrong_role_does_not_help(function):
    made, layout = layout_of(function)
    pieces = layout.by_key()
    lower, upper = (pieces[f"{role}: loop0 read"].body for role in ("lower", "upper"))
    wait = next(x for x in upper if x.pipe == "wait")
    upper.remove(wait)
    lower.insert(len(lower) - 1, wait)
    problems = prove(made, layout).violations
    assert any("read(Y, i): waves 4-7 wrote this slot" in x.text for x in problems)


def test_the_same_operations_apart_give_the_same_proof(tmp_path):
    """`apart` alone: two programs, the pairs of one."""
    file = tmp_path / "apart.py"
    file.write_text(SHIPPED.read_text().replace("stagger=1)", "stagger=1, apart=True)"))
    config = MhaConfigV2(num_heads=8, num_kv_heads=2)
    apart, shared = (build(name, config) for name in (str(file), "mha_prefill_v2"))
    assert apart.manifest.proof == shared.manifest.proof
    own = [x for x in apart.manifest.source if x.role == "upper" and x.cluster]
    both = [x for x in shared.manifest.source if x.cluster]
    assert [x.operation for x in own] == [x.operation for x in both]


def test_inspection_tells_the_roles(artifact, tmp_path):
    report = inspect_path(write_artifact(artifact, tmp_path / "made"))
    assert [(r.name, r.stagger) for r in report.roles] == [("lower", 0), ("upper", 1)]
    assert {loop.roles for loop in report.loops} == {("lower",), ("upper",)}
    assert {loop.barriers for loop in report.loops} == {6}
    copies = {c.roles for c in report.looped if c.count("dma")}
    assert copies == {("lower",), ("upper",)}


def test_mutants_of_one_role_and_of_all(artifact):
    listing = read_listing(artifact.text, "two_roles")
    assert {line.role for line in listing.lines.values()} == {"", "lower", "upper"}
    barriers = {n for n, line in listing.lines.items() if line.mnemonic == "s_barrier"}
    removed = [m for m in make_mutants(listing, 512, ["barriers"]) if m.operator == "removed"]
    for role in ("lower", "upper"):
        own = {m.line for m in removed if m.role == role}
        assert own == {n for n in barriers if listing.lines[n].role == role}
    together = [m for m in removed if m.role == "all"]
    assert {n for m in together for n in m.edits} == {
        n for n in barriers if listing.lines[n].block >= 0
    }
    assert all({listing.lines[n].role for n in m.edits} == {"lower", "upper"} for m in together)


# ---- the words ----------------------------------------------------------------------------------


def written(body):
    """What a schedule with two roles and `body(waves, s)` raises."""

    @schedule(problem=int, target="gfx950")
    def mine(k, s):
        body(roles(lower=range(4), upper=range(4, 8)), s)

    schedule_of(mine, 1, {})


def in_cluster(words):
    def body(waves, s):
        with cluster("A"):
            words(waves)

    return body


def nested(waves):
    with only(waves["lower"]), only(waves["upper"]):
        pass


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (in_cluster(lambda waves: waves["middle"]), r"no role 'middle'\s+hint: .*lower, upper"),
        (in_cluster(lambda waves: only("lower").__enter__()), "takes roles of this schedule"),
        (in_cluster(lambda waves: only().__enter__()), "takes roles of this schedule"),
        (lambda waves, s: only(waves["lower"]).__enter__(), "inside a cluster, prologue"),
        (in_cluster(nested), "another"),
        (lambda waves, s: prologue(waves["lower"]), "prologue.. takes no role here"),
        (lambda waves, s: epilogue(waves["lower"]), "epilogue.. takes no role here"),
    ],
)  # fmt: skip
def test_words_out_of_place(body, message):
    def entered(waves, s):
        made = body(waves, s)
        if hasattr(made, "__enter__"):
            made.__enter__()

    with pytest.raises(ScheduleError, match=message):
        written(entered)


def test_an_operation_for_another_role_is_refused(function):
    made = schedule_of(function, function.problem_type(), {})
    copied = next(op for op in made.operations if op.roles == ("upper",))

    def for_lower(waves):
        with only(waves["lower"]):
            record(copied)

    with pytest.raises(ScheduleError, match="is for upper, not for lower"):
        written(in_cluster(for_lower))
    with pytest.raises(ScheduleError, match="for role 'nobody', which is none"):
        written(in_cluster(lambda waves: record(replace(copied, roles=("nobody",)))))


def test_a_role_alone_does_not_end_the_workgroup(function):
    with pytest.raises(ScheduleError, match=r"leave of role lower alone may end the workgroup"):
        build(function, function.problem_type(), knobs={"fault": "leave"})


def test_the_cluster_table_names_the_roles(function):
    table = cluster_table(schedule_of(function, function.problem_type(), {}))
    assert table[1].endswith(": lower: add(i) | upper: interleave(add(i), nothing(i), '4x2:1')")
