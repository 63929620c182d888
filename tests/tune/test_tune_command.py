"""`mlagen tune` on real kernels: what wins, what is refused, show, export, import, launching."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from toy_question import BROKEN, question

import mlagen
from mlagen.app.build import build_artifact
from mlagen.cli.main import run
from mlagen.codegen.schedules import load
from mlagen.errors import ConfigError, MissingError, MlagenError
from mlagen.family import ProblemKind
from mlagen.tune import tuned_file
from mlagen.tune.judge import describe
from mlagen.tune.lookup import build_best
from mlagen.tune.store import Store
from mlagen.tune.tuned_file import Winner
from mlagen.tune.values import Question, TrialOutcome

FIELDS = {"num_heads": 2}


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    def call(*arguments: object) -> Ended:
        capsys.readouterr()
        code = run(["tune", *map(str, arguments)])
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return Ended(code, out, err)

    return call


def test_a_real_search_takes_neither_the_wrong_nor_the_endless(
    command: Callable[..., Ended], own_store: Path, tmp_path: Path
) -> None:
    """With a last step for one line of four it is faster, and wrong; another never ends."""
    asked = (BROKEN, "--target", "gfx950", "--set", "num_heads=2", "--shape", "num_keys=600",
             "--knob", "how=right,wrong,endless", "--limit", 4, "--jobs", 1)  # fmt: skip
    ended = command(*asked, "--knob", "ahead=1", "--json")
    assert ended.code == 0, ended.err
    told = json.loads(ended.out)
    verdicts = {t["knobs"]["how"]: t["outcome"]["verdict"] for t in told["trials"]}
    assert verdicts == {"right": "passed", "wrong": "wrong", "endless": "timeout"}
    assert told["winner"]["knobs"] == {"how": "right", "ahead": 1}
    samples = told["winner"]["outcome"]["samples"]
    assert told["winner"]["outcome"]["cost"] == max(cycles for (cycles,) in samples.values())
    assert len(samples) > 15
    assert {"mlagen", "code", "clang"} <= told["winner"]["outcome"]["versions"].keys()
    # What was found can be looked at, and goes to another store, where launching finds it.
    shown = command("show")
    assert "1.0000x" in shown.out
    with closing(Store(own_store)) as store:
        (study,) = store.studies()
    assert "elements are outside" in command("show", study.question.key[:6]).out
    file = tmp_path / "winners.json"
    assert command("export", "-o", file).code == 0
    assert command("import", file, "--store", tmp_path / "other.sqlite").code == 0
    with closing(Store(tmp_path / "other.sqlite")) as other:
        (study,) = other.studies()
        assert other.winner(study).knobs == {"how": "right", "ahead": 1}  # type: ignore[union-attr]


def test_a_users_kernel_is_tuned_like_ours(command: Callable[..., Ended]) -> None:
    gemm = Path(__file__).resolve().parents[2] / "examples" / "gemm_bf16.py"
    asked = (gemm, "--target", "gfx950", "--set", "m_tile=128", "--set", "n_tile=128",
             "--shape", "m=130", "--shape", "n=100", "--shape", "k=200")  # fmt: skip
    narrowed = [f"--knob={name}" for name in ("slots=2,3", "swizzle=8-10 into 4-6",
                "mma_order=keep A", "dma_pattern=even", "mma_priority=1")]  # fmt: skip
    ended = command(*asked, *narrowed, "--jobs", 1, "--json")
    assert ended.code == 0, ended.err
    told = json.loads(ended.out)
    verdicts = {t["knobs"]["slots"]: t["outcome"]["verdict"] for t in told["trials"]}
    assert verdicts == {2: "passed", 3: "passed"}
    assert told["winner"]["outcome"]["cost"] == min(t["outcome"]["cost"] for t in told["trials"])


REDUCE = ("mla_prefill_reduce", "--target", "gfx950", "--set", "num_heads=2")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((*REDUCE, "--knob", "wafes=1"), 2, "unknown knob 'wafes'"),
        ((*REDUCE, "--knob", "waves"), 2, "is not NAME=VALUE"),
        ((*REDUCE, "--sampler", "tpee", "--trials", "1"), 2, "did you mean 'tpe'"),
        (("show", "nothing"), 2, "no study's key begins"),
        (("export", "-o", "x.json"), 2, "no confirmed winner"),
        (("import", "nowhere.json"), 5, "cannot be read"),
    ],
)
def test_bad_input_is_one_clear_error_and_leaves_the_store_alone(
    command: Callable[..., Ended], own_store: Path, arguments: tuple, code: int, message: str
) -> None:
    with closing(Store(own_store)) as store:
        study = store.study(question(), {"a": 1})
    ended = command(*arguments)
    assert (ended.code, message in ended.err) == (code, True), ended.err
    assert ended.err.startswith("error: ")
    with closing(Store(own_store)) as store:
        assert store.studies() == [study]
        assert store.trials(study) == []


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"kernel": "mla_prefill_redoce"}, "did you mean 'mla_prefill_reduce'"),
        ({"kernel": "nowhere.py"}, "does not exist"),
        ({"target": "sm_90a"}, "is for gfx950, not for sm_90a"),
        ({"fields": {"num_heads": "0"}}, "num_heads=0"),
        ({"fields": {}}, "needs num_heads"),
        ({"shapes": ["num_keys=many"]}, "is not an integer"),
        ({"shapes": ["num_kees=1"]}, "did you mean 'num_keys'"),
        ({"shapes": ["num_keys=-5"]}, "num_keys"),
        ({"kernel": "mla_decode_merge_sm90", "fields": {"num_heads": "8"}}, "declares no knobs"),
        ({"kernel": "mla_decode_sm90", "fields": {"num_heads": "8"}, "cost": "predicted"},
         "no model predicts sm_90a"),
        ({"kernel": "mla_sparse_decode_sm90", "fields": {"num_heads": "16", "rows": "v32"},
          "shapes": ["keys=100"]}, "topk=2048 is above keys=100"),
    ],
)  # fmt: skip
def test_what_cannot_be_tuned_is_refused_before_any_trial(asked: dict, message: str) -> None:
    usual = {"kernel": "mla_prefill_reduce", "target": None, "fields": {"num_heads": "2"},
             "shapes": [], "limits": {}, "cost": None}  # fmt: skip
    with pytest.raises(MlagenError, match=message):
        describe(**{**usual, **asked})


def test_a_measured_search_is_described_without_a_gpu() -> None:
    fields = {"num_heads": "16", "rows": "v32"}
    found = describe("mla_sparse_decode_sm90", None, fields, ["batch=4"], {}, None)
    assert (found.question.cost, found.question.shape) == ("measured", {"batch": 4})
    assert {one.name for one in found.space.dimensions} >= {"variant", "rows_by"}
    assert [one.manifest.kernel for one in found.beside] == ["mla_decode_merge_sm90"]
    few = {"variant": "seesaw"}
    found = describe("mla_sparse_decode_sm90", None, fields, ["batch=4"], few, None)
    names = {one.name for one in found.space.dimensions}
    assert names == {"variant", "boxes", "left_refill"}


def test_a_call_too_large_for_the_emulator_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from mlagen.tune import predicted

    asked = ("mla_prefill_reduce", None, {"num_heads": "2"}, ["num_keys=600"], {}, None)
    describe(*asked)
    monkeypatch.setattr(predicted, "MOST_BYTES", 1 << 16)
    with pytest.raises(ConfigError, match="trials emulate calls of up to 64 KiB"):
        describe(*asked)


def test_a_call_that_no_memory_holds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from mlagen.tune import predicted

    class Vast(ProblemKind):
        def inputs(self, *_: object, **__: object) -> None:
            raise MemoryError

        def trial(self, inputs: object) -> Any: ...

    monkeypatch.setattr(predicted, "kind_of", lambda artifact: Vast())
    with pytest.raises(ConfigError, match="has not the memory for such a call"):
        describe("mla_prefill_reduce", None, {"num_heads": "2"}, [], {}, None)


def test_a_store_that_cannot_be_used_is_told(
    command: Callable[..., Ended], own_store: Path
) -> None:
    own_store.write_bytes(b"no database" * 1000)
    for verb in (("show",), REDUCE):
        ended = command(*verb)
        assert ended.code == 5
        assert "is damaged" in ended.err


# ---- what launches take ----------------------------------------------------------------------


def winner(waves: int, *, shape: dict | None = None, cost: str = "predicted", gain: float = 1.1,
           text: str | None = None) -> Winner:  # fmt: skip
    """As if this variant had been judged and confirmed."""
    knobs = {"ahead": 1, "waves": waves}
    artifact = build_artifact("mla_prefill_reduce", FIELDS, knobs)
    manifest = artifact.manifest
    asked = Question("mla_prefill_reduce", "mla_prefill_reduce", "gfx950", "MlaReduceConfig",
                     manifest.problem, shape or {"num_keys": 600}, cost,  # type: ignore[arg-type]
                     {"name": "the gfx950 cycle model"})  # fmt: skip
    reference = {"ahead": 1, "waves": 1}
    return Winner(asked, knobs, reference, text or manifest.text_sha256, artifact.key, 100.0,
                  round(100.0 * gain, 6), 12, {"code": f"code{waves}"})  # fmt: skip


def ship(monkeypatch: pytest.MonkeyPatch, *entries: Winner) -> None:
    monkeypatch.setattr("mlagen.tune.lookup.shipped", lambda: entries)


def keep(path: Path, *entries: Winner) -> None:
    with closing(Store(path)) as store:
        assert all(tuned_file.keep(store, entry) for entry in entries)


def chosen(**more: object) -> tuple[int, str, str]:
    artifact, choice = build_best("mla_prefill_reduce", FIELDS, **more)  # type: ignore[arg-type]
    assert choice.knobs == artifact.manifest.knobs
    return int(artifact.manifest.knobs["waves"]), choice.origin, str(choice)


def test_a_launch_takes_local_then_shipped_then_default(
    own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ship(monkeypatch)
    assert chosen()[:2] == (1, "default")
    ship(monkeypatch, winner(2))
    waves, origin, told = chosen()
    assert (waves, origin) == (2, "shipped")
    assert "1.100x of the default" in told
    keep(own_store, winner(4))
    waves, origin, told = chosen()
    assert (waves, origin) == (4, "local")
    assert "this machine's winner" in told


def test_a_winner_of_another_problem_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    ship(monkeypatch, winner(2))
    artifact, choice = build_best("mla_prefill_reduce", {"num_heads": 4})
    assert (artifact.manifest.knobs["waves"], choice.origin) == (1, "default")


def test_a_winner_that_is_called_otherwise_is_no_launchs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entry = winner(2)
    otherwise = msgspec.structs.replace(entry.question, call="called as with grid=persistent")
    assert otherwise.key != entry.question.key
    ship(monkeypatch, msgspec.structs.replace(entry, question=otherwise))
    assert chosen()[:2] == (1, "default")


def test_a_winner_that_was_judged_as_another_kernel_is_passed_over(
    own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ship(monkeypatch, winner(2))
    keep(own_store, winner(4, text="0" * 64))
    waves, origin, told = chosen()
    assert (waves, origin) == (2, "shipped")
    assert "has changed since it was judged" in told


def test_a_winner_whose_knobs_are_gone_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = msgspec.structs.replace(winner(2), knobs={"ahead": 1, "waves": 2, "old": 1})
    ship(monkeypatch, gone)
    waves, origin, told = chosen()
    assert (waves, origin) == (1, "default")
    assert "'old'" in told


def test_the_nearest_shape_is_taken_and_the_largest_without_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small, large = (winner(w, shape={"num_keys": n}) for w, n in ((2, 256), (4, 16384)))
    ship(monkeypatch, small, large)
    assert chosen(shape={"num_keys": 300})[0] == 2
    assert chosen(shape={"num_keys": [9000, 8000]})[0] == 4
    assert chosen()[0] == 4


def test_measured_goes_before_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    ship(monkeypatch, winner(2), winner(4, cost="measured", shape={"num_keys": 10}))
    assert chosen(shape={"num_keys": 600})[0] == 4


def test_a_damaged_store_costs_a_launch_nothing(
    own_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ship(monkeypatch, winner(2))
    own_store.write_bytes(b"no database" * 1000)
    waves, origin, told = chosen()
    assert (waves, origin) == (2, "shipped")
    assert "is damaged" in told


def test_looking_up_makes_no_store(own_store: Path) -> None:
    chosen()
    assert not own_store.exists()


def test_build_says_whose_knobs_it_took(
    own_store: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ship(monkeypatch, winner(2))
    with caplog.at_level(logging.INFO, "mlagen.tune"):
        kernel = mlagen.build("mla_prefill_reduce", **FIELDS)
    assert kernel.artifact.manifest.knobs["waves"] == 2
    assert kernel.choice.startswith("the shipped winner of mla_prefill_reduce")
    assert "shipped winner" in caplog.text
    defaults = mlagen.build("mla_prefill_reduce", knobs={}, **FIELDS)
    assert (defaults.artifact.manifest.knobs["waves"], defaults.choice) == (1, "given")


def test_build_tuned_on_the_command_line(
    own_store: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    keep(own_store, winner(4))
    build = ["build", "mla_prefill_reduce", "--set", "num_heads=2", "-o", str(tmp_path / "out")]
    assert run([*build, "--tuned"]) == 0
    out, err = capsys.readouterr()
    assert "waves=4" in out
    assert "this machine's winner" in err
    assert run(build) == 0
    assert "waves=1" in capsys.readouterr().out
    assert run([*build, "--tuned", "--knob", "waves=2"]) == 2
    assert run([*build, "--shape", "num_keys=1"]) == 2


# ---- files of winners ------------------------------------------------------------------------


def test_an_exported_file_comes_back_as_it_was(store: Store, tmp_path: Path) -> None:
    entry = winner(2)
    study = store.study(entry.question, entry.reference)
    for knobs, cost in (({"ahead": 1, "waves": 1}, 110.0), ({"ahead": 1, "waves": 2}, 100.0)):
        number = store.claim(study, knobs, "code2")
        assert number is not None
        told = {"text": entry.text, "artifact": entry.artifact, "versions": {"code": "code2"}}
        store.finish(number, TrialOutcome("passed", cost=cost, **told))
    store.confirm(number, "yes")
    file = tmp_path / "deeper" / "winners.json"
    tuned_file.export_to(store, (), str(file))
    (found,) = tuned_file.read(file)
    assert found == msgspec.structs.replace(entry, judged=2)
    other = winner(4, shape={"num_keys": 9})
    tuned_file.write(file, tuned_file.merged(tuned_file.read(file), [other]))
    assert len(tuned_file.read(file)) == 2
    tuned_file.export_to(store, [study.question.key], str(file))  # the other one stays
    assert {e.question.key for e in tuned_file.read(file)} == {
        entry.question.key, other.question.key
    }  # fmt: skip
    assert [path.name for path in file.parent.iterdir()] == ["winners.json"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is no file of winners"),
        ("[]", "schema None"),
        ('{"schema": "mlagen.tuned/1", "winners": []}', "mlagen.tuned/1"),
        ('{"schema": "mlagen.tuned/2", "winners": [{}]}', "missing required field"),
        ('{"schema": "mlagen.tuned/2", "winners": [], "more": 1}', "unknown field"),
    ],
)
def test_files_that_are_none_are_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "winners.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message):
        tuned_file.read(file)
    with pytest.raises(MissingError, match="cannot be read"):
        tuned_file.read(tmp_path)


def test_what_ships_can_be_read_and_its_kernels_are_known() -> None:
    for entry in tuned_file.shipped():
        assert load(entry.question.kernel, entry.question.target).name == entry.question.name
        assert entry.gain is None or entry.gain >= 1
