"""A schedule that passes its problem on to another: whose table, lines, knobs and name it has."""

from pathlib import Path

import pytest

from mlagen.codegen import build
from mlagen.codegen.schedules import load
from mlagen.codegen.target import schedule_of
from mlagen.errors import ConfigError, ScheduleError
from mlagen.families.mha_prefill.problem import MhaConfigV2
from mlagen.schedules.tables import streamed_prefill

BF16 = MhaConfigV2(num_heads=2, num_kv_heads=1)
FP8 = MhaConfigV2(num_heads=2, num_kv_heads=1, dtype="fp8_e4m3")
HANDING_ON = """
from mlagen.dsl import schedule
from mlagen.families.mha_prefill.problem import MhaProblem
from mlagen.schedules.{module} import {module}

@schedule(problem=MhaProblem, target="{target}")
def mine(k, s):
    {module}(k, s)
"""


def own(folder, module="mha_prefill_v2", target="gfx950"):
    file = folder / "mine.py"
    file.write_text(HANDING_ON.format(module=module, target=target))
    return str(file)


def test_the_lines_are_those_of_the_table():
    """Every step of fp8 stands on a line of the shared table that calls it."""
    made = schedule_of(load("mha_prefill_v2"), FP8, {})
    assert (made.name, made.file) == ("mha_prefill_v2", "tables/streamed_prefill.py")
    lines = Path(streamed_prefill.__file__).read_text().split("\n")
    for cluster in made.loop:
        assert f'cluster("{cluster.name}"' in lines[cluster.line - 1]
        for operation in cluster.operations():
            word = "copy" if operation.name == "copy" else operation.name.split("_")[0]
            assert word in lines[operation.line - 1], (operation.name, lines[operation.line - 1])
    assert lines[made.line - 1].startswith(("@schedule", "def streamed_prefill"))
    assert schedule_of(load("mha_prefill_v2"), BF16, {}).file == "schedules/mha_prefill_v2.py"


def test_its_knobs_are_those_of_the_table():
    assert build("mha_prefill_v2", FP8, knobs={"band": 2}).manifest.knobs["band"] == 2
    with pytest.raises(ConfigError, match=r"mha_prefill_v2 has no knob 'pv_priority'"):
        build("mha_prefill_v2", FP8, knobs={"pv_priority": 0})


def test_a_users_file_hands_on(tmp_path):
    """The file is for its own schedule, not for the one that it imports. Twice passed on: the table
    is the last one's."""
    function = load(own(tmp_path))
    assert function.name == "mine"
    assert schedule_of(function, BF16, {}).file == "schedules/mha_prefill_v2.py"
    made = schedule_of(function, FP8, {})
    assert (made.name, made.file) == ("mine", "tables/streamed_prefill.py")


def test_templates_of_the_first_go_before_the_shipped_ones(tmp_path):
    file = own(tmp_path)
    folder = tmp_path / "own" / "gfx950" / "prefill"
    folder.mkdir(parents=True)
    shipped = load("mha_prefill_v2").path.parent.parent / "templates/gfx950/prefill/no_tiles.s.j2"
    (folder / "no_tiles.s.j2").write_text("; of the user\n" + shipped.read_text())
    text = (tmp_path / "mine.py").read_text()
    (tmp_path / "mine.py").write_text(text.replace('"gfx950")', '"gfx950", templates="own")'))
    assert "; of the user" in build(file, FP8).text


def test_another_target_is_refused(tmp_path):
    message = r"mine is for gfx950 .* mla_decode_sm90, which is for sm_90a"
    with pytest.raises(ScheduleError, match=message):
        schedule_of(load(own(tmp_path, "mla_decode_sm90")), BF16, {})


def test_templates_that_would_not_be_found_are_refused(tmp_path):
    (tmp_path / "theirs.py").write_text(
        HANDING_ON.format(module="mha_prefill_v2", target="gfx950")
        .replace('"gfx950")', '"gfx950", templates="own")')
        .replace("def mine", "def theirs")
    )
    (tmp_path / "mine.py").write_text(
        HANDING_ON.format(module="theirs", target="gfx950").replace("mlagen.schedules.", "")
    )
    with pytest.raises(ScheduleError, match=r"theirs, which has templates of its own: .*own"):
        schedule_of(load(str(tmp_path / "mine.py")), BF16, {})


@pytest.mark.parametrize(
    ("table", "takes"),
    [
        ("tables/latent_serial", "parts"),
        ("tables/streamed_prefill", "kv_blocks, form_of"),
    ],
)
def test_a_table_is_not_built_by_itself(table, takes):
    path = Path(streamed_prefill.__file__).parents[1] / f"{table}.py"
    with pytest.raises(ConfigError, match=f"beside the problem it takes {takes}"):
        load(str(path))
    assert load(str(path), tables=True).takes == tuple(takes.split(", "))


def test_outside_a_schedule_there_is_nothing_to_hand_on():
    with pytest.raises(ScheduleError, match="inside a @schedule function"):
        load("mha_prefill_v2")(BF16, None)
