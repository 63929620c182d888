"""A user's own schedule files: found, executed once, with their templates and neighbour modules;
built, verified and refused outside the repository."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from mlagen.app.build import build_artifact
from mlagen.codegen import build
from mlagen.codegen.schedules import load
from mlagen.codegen.target import schedule_of
from mlagen.errors import ConfigError, MissingError, ScheduleError, TemplateError
from mlagen.families.mha_prefill.problem import MhaConfigV2

ROOT = Path(__file__).parents[2]
SHIPPED = (ROOT / "schedules" / "mha_prefill_v2.py").read_text()
CONFIG = MhaConfigV2(num_heads=8, num_kv_heads=2)


def own_templates(text: str) -> str:
    return text.replace('target="gfx950")', 'target="gfx950", templates="own")')


@pytest.fixture
def folder(tmp_path):
    """A schedule file, a module beside it, and a folder of templates that replaces one of ours."""
    (tmp_path / "pattern_of_user.py").write_text('FIRST = "even"\n')
    text = own_templates(SHIPPED).replace(
        's.choice("qk_pattern", "6x1:3 10x1:5"', 's.choice("qk_pattern", pattern_of_user.FIRST'
    )
    (tmp_path / "mine.py").write_text(
        text.replace("from mlagen.dsl", "import pattern_of_user\nfrom mlagen.dsl", 1)
    )
    replaced = tmp_path / "own" / "gfx950" / "prefill"
    replaced.mkdir(parents=True)
    shipped = (ROOT / "templates" / "gfx950" / "prefill" / "no_tiles.s.j2").read_text()
    (replaced / "no_tiles.s.j2").write_text("; of the user\n" + shipped)
    return tmp_path


def test_the_file_brings_modules_and_templates(folder):
    artifact = build(str(folder / "mine.py"), CONFIG)
    assert artifact.manifest.knobs["qk_pattern"] == "even"
    assert "; of the user" in artifact.text
    assert "; of the user" not in build("mha_prefill_v2", CONFIG).text


def test_templates_given_by_hand_go_before_those_of_the_file(folder, tmp_path):
    by_hand = tmp_path / "by_hand"
    shutil.copytree(folder / "own", by_hand)
    changed = by_hand / "gfx950" / "prefill" / "no_tiles.s.j2"
    changed.write_text(changed.read_text().replace("of the user", "by hand"))
    text = build(str(folder / "mine.py"), CONFIG, templates_dir=by_hand).text
    assert "; by hand" in text and "; of the user" not in text


def test_a_missing_template_folder_is_named(tmp_path):
    (tmp_path / "mine.py").write_text(own_templates(SHIPPED))
    with pytest.raises(TemplateError, match=r"template folder .*own does not exist"):
        build(str(tmp_path / "mine.py"), CONFIG)


def test_a_file_is_executed_once_for_its_content(tmp_path):
    """So the problem class that it defines is one class, however often it is loaded."""
    own_class = SHIPPED.replace(
        "\n\n@schedule", "\n\nclass Mine(MhaProblem):\n    pass\n\n\n@schedule"
    )
    file = tmp_path / "own_class.py"
    file.write_text(own_class.replace("problem=MhaProblem", "problem=Mine"))
    problem = load(str(file)).problem_type(num_heads=8, num_kv_heads=2)
    assert build(str(file), problem).manifest.problem_type == "Mine"
    file.write_text(file.read_text() + "\n# changed\n")
    assert load(str(file)).problem_type is not type(problem)


def test_a_file_may_hold_a_schedule_for_each_target(tmp_path):
    file = tmp_path / "two.py"
    other = "\n\n@schedule(problem=MhaProblem, target={!r})\ndef other(k, s):\n    pass\n"
    file.write_text(SHIPPED + other.format("sm_90a"))
    assert load(str(file), "gfx950").name == "mha_prefill_v2"
    assert load(str(file), "sm_90a").name == "other"
    assert load(f"{file}:other").name == "other"
    assert load(str(file)).name == "mha_prefill_v2", "the first is the file's default"
    with pytest.raises(
        ConfigError, match=r"no schedule for 'gfx942'\s+hint: it has for gfx950, sm"
    ):
        load(str(file), "gfx942")
    file.write_text(SHIPPED + other.format("gfx950"))
    with pytest.raises(ScheduleError, match="2 schedules"):
        load(str(file), "gfx950")


def test_a_missing_file_is_named():
    with pytest.raises(MissingError, match=r"nowhere\.py does not exist"):
        load("/tmp/nowhere.py")


# ---- a user's own kernel, outside the repository, with the installed package ---------------------

PAGE = ROOT / "docs" / "write_a_schedule.md"
FOR_GFX950, FOR_HOPPER = "row_sums.py", "row_sums_sm90.py"

# The problem of the page as a kind that `mlagen verify` judges.
JUDGED = """

import numpy as np
from mlagen.problem.expected import Expected
from mlagen.family import Family, ProblemKind, Trial, register


class Sums(Trial):
    sizes = {}

    def __init__(self, x):
        self.x, self.sizes = x, {"m": x.shape[0], "k": x.shape[1]}

    def oracles(self):
        shape, k = (1, -1, 1, 1), self.sizes["k"]
        bound = k * 2.0**-24 * np.abs(self.x, dtype=np.float64).sum(1).reshape(shape)
        exact = self.x.sum(1, dtype=np.float64).reshape(shape)
        rows, heads = np.arange(self.sizes["m"]), np.arange(1)
        return (Expected("exact", exact, bound, rows, heads),)

    def run(self, artifact, launcher):
        out = np.full(self.sizes["m"], np.nan, np.float32)
        tensors = {"x": self.x, "out": out}
        report = launcher.launch(artifact, tensors=tensors, scalars=self.sizes, sizes=self.sizes)
        return out.reshape(1, -1, 1, 1), report

    def place(self, worst):
        return f"row {worst.row}"


class SumKind(ProblemKind):
    sizes = ("m", "k")

    def inputs(self, problem, *, data, seed, m=300, k=80):
        return np.random.default_rng(seed).standard_normal((m, k)).astype(np.float32)

    def trial(self, inputs):
        return Sums(inputs)


class SumFamily(Family):
    name = "row_sums"

    def kind(self, problem_type):
        return SumKind()


RowSums.family = "row_sums"
register(SumFamily())
"""


@pytest.fixture
def mine(tmp_path):
    """The files that the page `write_a_schedule` has its reader make, somewhere else. The modules
    among them are forgotten again: other tests have their own of the same names."""
    for path, text in own_kernel().items():
        file = tmp_path / "mine" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    with (tmp_path / "mine" / FOR_GFX950).open("a") as file:
        file.write(JUDGED)
    yield tmp_path / "mine"
    for name in [name for name in sys.modules if name.partition(".")[0] == "sums"]:
        del sys.modules[name]


def own_kernel() -> dict[str, str]:
    found = re.findall(r"`([\w/.]+)`:\n\n```\w+\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    assert {FOR_GFX950, FOR_HOPPER, "templates/sm_90a/sums/add.ptx.j2"} <= {p for p, _ in found}
    return dict(found)


@pytest.fixture
def mlagen(tmp_path):
    """`mlagen …` as a user runs it: a process of its own, in a folder that has nothing of ours."""

    def call(*arguments, code=0):
        done = subprocess.run(
            [sys.executable, "-m", "mlagen", *map(str, arguments)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env={**os.environ, "MLAGEN_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": ""},
        )
        assert "Traceback" not in done.stderr
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout if code == 0 else done.stderr

    return call


def test_both_targets_are_built_where_the_user_is(mine, mlagen):
    out = mlagen("build", f"./mine/{FOR_GFX950}", "-o", "out/a")
    assert "row_sums for gfx950 (mine/row_sums.py)" in out and "proved: " in out
    out = mlagen("build", mine / FOR_HOPPER, "--set", "absolute=true", "-o", "out/b")
    assert "row_sums_sm90 for sm_90a" in out and "RowSums(absolute=True)" in out
    assert "slots" in mlagen("list", f"mine/{FOR_GFX950}")
    assert mlagen("audit", "out/b").count("findings") == 1
    assert "abs.f32" in (mine.parent / "out" / "b" / "kernel.ptx").read_text()


def test_it_is_verified_by_its_own_kind(mine, mlagen):
    out = mlagen("verify", f"mine/{FOR_GFX950}", "--shape", "m=257", "--shape", "k=16")
    assert "m 257, k 16" in out and "verdict    passed" in out
    mlagen("build", f"mine/{FOR_GFX950}", "-o", "out/a")
    assert "--problem FILE.py (it was built from mine/row_sums.py)" in mlagen(
        "verify", "out/a", code=2
    )
    assert "passed" in mlagen("verify", "out/a", "--problem", f"mine/{FOR_GFX950}")
    assert "unknown size 'rows'" in mlagen(
        "verify", f"mine/{FOR_GFX950}", "--shape", "rows=3", code=2
    )


ADD = "v_add_f32 {{ sum }}, {{ sum }}, "


@pytest.mark.parametrize("given", ["in place", "by hand"])
def test_an_edited_template_is_proved_and_judged(mine, mlagen, given):
    """It sums every other column: a right program of the wrong sum."""
    add = mine / "templates/gfx950/sums/add.s.j2"
    text = add.read_text()
    assert "range(columns)" in text
    options = ()
    if given == "by hand":
        add = mine.parent / "other/gfx950/sums/add.s.j2"
        add.parent.mkdir(parents=True)
        options = ("--templates", "other")
    add.write_text(text.replace("range(columns)", "range(0, columns, 2)"))
    assert "proved: " in mlagen("build", f"mine/{FOR_GFX950}", *options, "-o", "out/a")
    found = mlagen("verify", f"mine/{FOR_GFX950}", *options, code=3)
    assert re.search(r"outside the exact oracle's bound; worst at row \d+", found)
    if given == "by hand":
        assert "passed" in mlagen("verify", f"mine/{FOR_GFX950}")


def test_an_edited_template_gets_the_waits_it_needs(mine, mlagen):
    """A read split in two: more tickets, other counts, the same sums."""
    read = mine / "templates/gfx950/sums/read.s.j2"
    wide = "ds_read_b128 {{ x.part(loop.index0, 4) }}, {{ addresses[base] }} offset:{{ slot + at }}"
    assert wide in read.read_text()
    halves = (
        "{% for half in (0, 1) %}\n"
        "ds_read_b64 {{ x.part(2 * loop0 + half, 2) }}, {{ addresses[base] }} "
        "offset:{{ slot + at + 8 * half }}\n"
        "{% endfor %}"
    )
    text = read.read_text().replace(wide, "{% set loop0 = loop.index0 %}\n" + halves)
    mlagen("build", f"mine/{FOR_GFX950}", "-o", "out/wide")
    read.write_text(text)
    mlagen("build", f"mine/{FOR_GFX950}", "-o", "out/halves")
    wide_text, halves_text = (
        (mine.parent / "out" / name / "kernel.s").read_text() for name in ("wide", "halves")
    )
    assert "lgkmcnt(7)" in halves_text and "lgkmcnt(7)" not in wide_text
    assert "passed" in mlagen("verify", f"mine/{FOR_GFX950}")


def test_an_edited_schedule_is_refused_by_the_proof(mine, mlagen):
    file = mine / FOR_GFX950
    text = file.read_text()
    early = text.replace("read(X, i)", "read(X, i)\n            copy(X, i + slots)")
    early = early.replace('cluster("add"):\n            copy(X, i + slots)\n', 'cluster("add"):\n')
    file.write_text(early)
    line = next(n for n, x in enumerate(early.splitlines(), 1) if "copy(X, i + slots)" in x)
    found = mlagen("build", f"mine/{FOR_GFX950}", code=2)
    assert f"error[race-war] mine/row_sums.py:{line} cluster read, copy(X, i+2)" in found
    found = mlagen("verify", f"mine/{FOR_GFX950}", "--allow-unproved", code=3)
    assert "outside the exact oracle's bound" in found
    file.write_text(text.replace("copy(X, i + slots)", "copy(X, i + slots + 1)"))
    found = mlagen("build", f"mine/{FOR_GFX950}", code=2)
    assert re.search(r"error\[stale-slot\] mine/row_sums\.py:\d+ read\(X, i\): tile \d+ is", found)
    hopper = mine / FOR_HOPPER
    hopper.write_text(
        hopper.read_text().replace("release(rows.feed, i)", "release(rows.feed, i + 1)")
    )
    found = mlagen("build", f"mine/{FOR_HOPPER}", code=2)
    assert re.search(r"error\[released-early\] mine/row_sums_sm90\.py:\d+ add\(i\)", found)


def test_an_edited_ptx_template_is_seen_by_the_audit(mine, mlagen):
    """What a template does inside an operation the proof of sm_90a does not see."""
    add = mine / "templates/sm_90a/sums/add.ptx.j2"
    text = add.read_text()
    add.write_text(text.replace("{{ tile.base }}", "{{ tile.base + tile.row_bytes }}"))  # next row
    mlagen("build", f"mine/{FOR_HOPPER}", "-o", "out/b")
    assert re.search(r"\d+ errors? in out/b, first: smem-", mlagen("audit", "out/b", code=4))


# ---- errors --------------------------------------------------------------------------------------

TEMPLATES = {
    FOR_GFX950: ("templates/gfx950/sums/add.s.j2", "gfx950/sums/add.s.j2"),
    FOR_HOPPER: ("templates/sm_90a/sums/add.ptx.j2", "sm_90a/sums/add.ptx.j2"),
}


@pytest.mark.parametrize("schedule", TEMPLATES)
def test_a_missing_template_names_the_folders(mine, mlagen, schedule):
    (mine / TEMPLATES[schedule][0]).unlink()
    found = mlagen("build", f"mine/{schedule}", code=2)
    assert f"error: template {TEMPLATES[schedule][1]} does not exist (mine/{schedule}:" in found
    assert f"hint: looked in {mine}/templates, mlagen's own" in found
    given = mine.parent / "given" / TEMPLATES[schedule][1].partition("/")[0] / "other.j2"
    given.parent.mkdir(parents=True)
    given.touch()
    found = mlagen("build", f"mine/{schedule}", "--templates", "given", code=2)
    assert f"hint: looked in given, {mine}/templates, mlagen's own" in found


@pytest.mark.parametrize("schedule", TEMPLATES)
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{{ 1 +", ":2: unexpected"),
        ("{{ unheard_of }}", ":2: 'unheard_of' is undefined"),
        ("{{ 1 / 0 }}", ":2: ZeroDivisionError: division by zero"),
        ("{% include 'absent.s.j2' %}", "/absent.s.j2 does not exist"),
    ],
)
def test_an_error_in_a_template_has_its_line(mine, schedule, line, message):
    file, name = TEMPLATES[schedule]
    (mine / file).write_text(f"{{# what it does #}}\n{line}\n")
    where = "" if "absent" in message else name
    with pytest.raises(TemplateError, match=re.escape(f"{where}{message}")):
        build_artifact(str(mine / schedule), {}, {})


def test_instructions_that_do_not_exist_have_their_line(mine):
    (mine / "templates/gfx950/sums/add.s.j2").write_text(f"{{# #}}\n{ADD}v[NONE]\n")
    with pytest.raises(TemplateError, match=r"sums/add\.s\.j2:2: .*NONE"):
        build_artifact(str(mine / FOR_GFX950), {}, {})
    (mine / "templates/sm_90a/sums/add.ptx.j2").write_text("{# #}\nadd.f33 %sum0, %sum0, %sum0;\n")
    with pytest.raises(TemplateError, match=r"sums/add\.ptx\.j2:2") as caught:
        build_artifact(str(mine / FOR_HOPPER), {}, {})
    assert "row_sums_sm90.py:" in str(caught.value)


@pytest.mark.parametrize(
    ("broken", "where", "message"),
    [
        ("def row_sums(k, s:", "row_sums.py", r":2: SyntaxError: "),
        ("class RowSums(:", "sums/problem.py", r":2: SyntaxError: "),
        (
            "import not_there",
            "row_sums.py",
            r":2: ModuleNotFoundError: No module named 'not_there'",
        ),
    ],
)
def test_a_file_that_is_no_python(mine, broken, where, message):
    file = mine / where
    file.write_text(f"# first\n{broken}\n{file.read_text()}")
    with pytest.raises(ScheduleError, match=f"^{re.escape(str(file))}{message}"):
        load(str(mine / FOR_GFX950))


@pytest.mark.parametrize(
    ("old", "new", "where", "message"),
    [
        ("rows.setup()", "rows.setup(1)", "row_sums.py", "TypeError: .*1 positional argument"),
        ('"rows": ROWS', '"rows": ROWZ', "sums/gfx950.py", "NameError: name 'ROWZ'"),
        (
            "absolute: bool = False",
            "absolute: bool = False\n\n    def __post_init__(self):\n        raise KeyError(1)",
            "sums/problem.py",
            "KeyError: 1",
        ),
    ],
)
def test_what_own_code_raises_is_told_by_its_line(mine, old, new, where, message):
    file = mine / where
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    wrong = new.splitlines()[-1]
    line = next(n for n, x in enumerate(file.read_text().splitlines(), 1) if wrong in x)
    with pytest.raises(ScheduleError, match=f"^{re.escape(str(file))}:{line}: {message}"):
        build_artifact(str(mine / FOR_GFX950), {}, {})


def test_what_mlagen_raises_itself_keeps_its_traceback(monkeypatch):
    def failing(problem, space):
        raise ZeroDivisionError

    shipped = load("mha_prefill_v2")
    failing.__module__ = shipped.function.__module__
    with pytest.raises(ZeroDivisionError):
        schedule_of(replace(shipped, function=failing), CONFIG, {})


def test_unknown_targets(mine):
    with pytest.raises(ConfigError, match=r"unknown target 'gfx90a'\s+hint: .*targets: gfx950"):
        build_artifact(str(mine / FOR_GFX950), {}, {}, target="gfx90a")
    file = mine / FOR_HOPPER
    file.write_text(file.read_text().replace('target="sm_90a"', 'target="sm_120"'))
    with pytest.raises(
        ScheduleError, match=r"'sm_120' is not known\s+hint: targets: gfx950, sm_100a, sm_90a"
    ):
        load(str(file))


def test_fields_are_read_by_their_type_without_postponed_annotations(mine):
    """`absolute: bool` is a class here, not text."""
    for text, value in (("no", False), ("true", True)):
        made = build_artifact(str(mine / FOR_GFX950), {"absolute": text}, {})
        assert made.manifest.problem == {"absolute": value}
    with pytest.raises(ConfigError, match="absolute='maybe' is not true or false"):
        build_artifact(str(mine / FOR_GFX950), {"absolute": "maybe"}, {})


def test_each_schedule_file_has_neighbours_of_its_own(tmp_path):
    """Two files in one process, with modules of the same name beside them."""
    from mlagen.codegen.schedules import load

    text = """
import numbers_beside
from mlagen.dsl import schedule

@schedule(problem=int, target="sm_90a")
def mine(k, s):
    pass

mine.function.number = numbers_beside.NUMBER
"""
    for number in (1, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "numbers_beside.py").write_text(f"NUMBER = {number}\n")
        (folder / "mine.py").write_text(text)
    made = [load(str(tmp_path / folder / "mine.py")) for folder in ("1", "2", "1")]
    assert [function.function.number for function in made] == [1, 2, 1]
