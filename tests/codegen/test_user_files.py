"""A user's own schedule file: found, executed once, with its templates and neighbour modules."""

import shutil
from pathlib import Path

import pytest

from mlagen.codegen import build
from mlagen.codegen.schedules import load
from mlagen.errors import MissingError, ScheduleError, TemplateError
from mlagen.problem import MhaConfig

ROOT = Path(__file__).parents[2]
SHIPPED = (ROOT / "schedules" / "mha_prefill_v2.py").read_text()
CONFIG = MhaConfig(num_heads=8, num_kv_heads=2)


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
    replaced = tmp_path / "own" / "gfx950" / "mha"
    replaced.mkdir(parents=True)
    shipped = (ROOT / "templates" / "gfx950" / "mha" / "no_tiles.s.j2").read_text()
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
    changed = by_hand / "gfx950" / "mha" / "no_tiles.s.j2"
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
        "\n\n@schedule", "\n\nclass Mine(MhaConfig):\n    pass\n\n\n@schedule"
    )
    file = tmp_path / "own_class.py"
    file.write_text(own_class.replace("problem=MhaConfig", "problem=Mine"))
    problem = load(str(file)).problem_type(num_heads=8, num_kv_heads=2)
    assert build(str(file), problem).manifest.problem_type == "Mine"
    file.write_text(file.read_text() + "\n# changed\n")
    assert load(str(file)).problem_type is not type(problem)


def test_a_file_may_hold_a_schedule_for_each_target(tmp_path):
    file = tmp_path / "two.py"
    other = "\n\n@schedule(problem=MhaConfig, target={!r})\ndef other(k, s):\n    pass\n"
    file.write_text(SHIPPED + other.format("sm_90a"))
    assert load(str(file), "gfx950").name == "mha_prefill_v2"
    assert load(str(file), "sm_90a").name == "other"
    assert load(f"{file}:other").name == "other"
    assert load(str(file)).name == "mha_prefill_v2", "the first is the file's default"
    with pytest.raises(ScheduleError, match=r"2 schedules, 0 of them for gfx942"):
        load(str(file), "gfx942")
    file.write_text(SHIPPED + other.format("gfx950"))
    with pytest.raises(ScheduleError, match="2 schedules"):
        load(str(file), "gfx950")


def test_a_missing_file_is_named():
    with pytest.raises(MissingError, match=r"nowhere\.py does not exist"):
        load("/tmp/nowhere.py")
