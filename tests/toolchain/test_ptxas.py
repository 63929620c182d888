"""ptxas: found in order, the same bytes anywhere, and no remark that undoes a schedule let by."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Iterator
from pathlib import Path

import ptx_samples as ptx
import pytest
import small_kernel
from msgspec.structs import replace

from mlagen import env
from mlagen.app.doctor import examine
from mlagen.app.summary import tools_text
from mlagen.artifact import SourceLine
from mlagen.codegen import tools
from mlagen.codegen.tools import Tools
from mlagen.errors import CapacityError, ConfigError, MissingError, ScheduleError, TemplateError
from mlagen.extras import install
from mlagen.targets.nvidia import ptxas
from mlagen.targets.nvidia.ptxas import (
    TOOLS,
    assemble_ptx,
    find_ptxas,
    ptxas_flags,
)
from mlagen.targets.nvidia.ptxas_messages import Message, parse
from mlagen.targets.nvidia.wgmma_flow import Touch, touches

# Once for each release that is here: their words differ.
FOUND = {tried.tools.version: tried.tools for tried in TOOLS.every("sm_90a") if tried.tools}
needs_ptxas = pytest.mark.skipif(not FOUND, reason=f"no ptxas: {ptxas.INSTALL_HINT}")
every_release = pytest.mark.parametrize("tool", FOUND.values(), ids=FOUND.keys())


def build(text: str, tool: Tools | None = None, **changes: object) -> ptxas.PtxasResult:
    arguments: dict[str, object] = {
        "file_name": "k.ptx",
        "source_lines": {},
        "schedule_file": "schedules/k.py",
        "toolchain": tool,
    }
    return assemble_ptx(text, **{**arguments, **changes})  # type: ignore[arg-type]


def refused(text: str, tool: Tools, **changes: object) -> ScheduleError:
    with pytest.raises(ScheduleError) as caught:
        build(text, tool, **changes)
    return caught.value


@every_release
def test_a_clean_kernel_and_its_figures(tool: Tools) -> None:
    result = build(ptx.CLEAN, tool)
    assert result.cubin[:4] == b"\x7fELF"
    assert result.entry == "k"
    assert 8 < result.registers < 64
    assert result.messages == ()
    assert result.spill_store_bytes == result.spill_load_bytes == result.stack_bytes == 0


@needs_ptxas
def test_bytes_do_not_depend_on_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for name in ("here", "there/deeper"):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        monkeypatch.chdir(folder)
        monkeypatch.setenv("TMPDIR", str(folder))
        found.append(build(ptx.CLEAN).cubin)
        assert list(folder.iterdir()) == []
    assert found[0] == found[1]
    for part in (os.fsencode(tmp_path), b"mlagen-", b"/tmp"):
        assert part not in found[0]


@every_release
@pytest.mark.parametrize(
    ("text", "code", "at"),
    [
        (ptx.READ_EARLY, "C7517", "st.global.f32 [%out+0], %d0;"),
        (ptx.WRITTEN_BETWEEN, "C7517", "add.f32 %d0, %d0, %d0;"),
        (ptx.WAIT_UNDER_CONDITION, "C7514", "st.global.f32 [%out+0], %d0;"),
        (ptx.over_the_back_edge(1), "C7514", "mul.f32 %d0, %d0, 0f3F000000;"),
        (ptx.IN_A_FUNCTION, "C7510", "call.uni (r1), f, (x1);"),
        (ptx.TOO_MANY_ACCUMULATORS, "C7511", "wgmma.mma_async"),
        (ptx.setmaxnreg(".maxntid 384, 1, 1"), "C7508", "setmaxnreg.inc.sync.aligned.u32 216;"),
        (ptx.setmaxnreg(""), "C7508", "setmaxnreg.inc.sync.aligned.u32 216;"),
        (ptx.TOO_FEW_REGISTERS, "C7602", "wgmma.mma_async"),
    ],
)
def test_what_ptxas_does_to_a_schedule_ends_the_build(
    tool: Tools, text: str, code: str, at: str
) -> None:
    line = ptx.line_of(text, at)
    if code == "C7511" and not tool.versions[0][1].startswith(("12.", "13.0")):
        line = ptx.line_of(text, ptx.FENCE)  # named by ptxas itself: where the stage begins
    source = {line: SourceLine(line, "loop", "B", "math", "qk.ptx.j2", 7, 41, "qk(i)")}
    message = refused(text, tool, source_lines=source).message
    assert f"({code})" in message
    assert f"k.ptx:{line}: " in message
    assert "from template qk.ptx.j2:7, schedule schedules/k.py:41 (loop, cluster B, qk(i))" in (
        message
    )


@every_release
@pytest.mark.parametrize(
    "text",
    [
        ptx.over_the_back_edge(0),
        ptx.setmaxnreg(".maxntid 384, 1, 1\n.minnctapersm 1"),
        ptx.setmaxnreg(".reqntid 384, 1, 1\n.maxnreg 168"),
    ],
)
def test_what_ptxas_leaves_alone_is_taken(tool: Tools, text: str) -> None:
    assert build(text, tool).messages == ()


@every_release
@pytest.mark.parametrize("text", [ptx.NO_FENCE, ptx.PREDICATED, ptx.INPUT_OVERWRITTEN])
def test_a_missing_fence_ends_the_build_where_ptxas_tells(tool: Tools, text: str) -> None:
    """13.0 says C7519, 13.1 and 13.2 nothing; 13.3 to 13.5 say C7513 of an input, and nothing of
    the other two."""
    version = tool.versions[0][1]
    if version.startswith(("12.", "13.0.")):
        assert "(C7519)" in refused(text, tool).message
    elif text == ptx.INPUT_OVERWRITTEN and not version.startswith(("13.1.", "13.2.")):
        assert "(C7513)" in refused(text, tool).message
    else:
        assert build(text, tool).messages == ()


@every_release
def test_the_whole_message(tool: Tools) -> None:
    line = ptx.line_of(ptx.over_the_back_edge(1), "mul.f32 %d0")
    source = {line: SourceLine(line, "loop", "C", "math", "scale.ptx.j2", 3, 30, "rescale(i)")}
    assert refused(ptx.over_the_back_edge(1), tool, source_lines=source).message == (
        "ptxas cannot keep the schedule of k.ptx: (C7514) Potential Performance Loss: "
        "wgmma.mma_async instructions are serialized due to non wgmma instructions reading "
        "accumulator registers of  a wgmma between start and end of the pipeline stage in the "
        "function 'k'\n"
        "    an accumulator is used while its wgmma may be writing it: wait first, on every path; "
        "for one in flight over a loop's back edge ptxas understands wait_group 0 only\n"
        f"  suspected: k.ptx:{line}: %d0 is an accumulator of the wgmma in line "
        f"{ptx.line_of(ptx.over_the_back_edge(1), mma_of_o())}, issued before the loop's back "
        "edge\n"
        "    mul.f32 %d0, %d0, 0f3F000000;\n"
        "    from template scale.ptx.j2:3, schedule schedules/k.py:30 (loop, cluster C, "
        "rescale(i))\n"
        f"  ({tool.version})"
    )


def mma_of_o() -> str:
    return ptx.mma(0)


@every_release
def test_spills_end_the_build(tool: Tools) -> None:
    error = refused(ptx.SPILLS, tool)
    assert isinstance(error, CapacityError)
    assert "spills: " in error.message
    assert "at 32 registers a thread" in error.message


@every_release
def test_registers_that_run_out_are_a_capacity(tool: Tools) -> None:
    for text in (ptx.TOO_MANY_ACCUMULATORS, ptx.TOO_FEW_REGISTERS):
        error = refused(text, tool)
        assert isinstance(error, CapacityError)
    assert "{%big0, .. %big127}" in error.message  # the list of 128 is cut


@every_release
def test_shared_memory_that_runs_out_is_a_capacity(tool: Tools) -> None:
    text = ptx.kernel(".shared .b8 own[300000];", "mov.u32 %i, own;", "st.shared.u32 [%i], %t;")
    error = refused(text, tool)
    assert isinstance(error, CapacityError)
    assert "uses too much shared data" in error.message


@every_release
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (ptx.COMMIT, "wgmma.comit_group.sync.aligned;", "Unknown modifier '.comit_group'"),
        (ptx.COMMIT, "add.f32 %nowhere, %d1, %d1;", "Unknown symbol '%nowhere'"),
        (ptx.COMMIT, "add.f32 %d0 %d1;", "Parsing error"),
        (".target sm_90a", ".target sm_90", "not supported on .target 'sm_90'"),
    ],
)
def test_an_error_is_shown_at_template_and_schedule_line(
    tool: Tools, old: str, new: str, said: str
) -> None:
    text = ptx.CLEAN.replace(old, new)
    # A changed target is noticed at the first wgmma instruction.
    line = ptx.line_of(text, new if old == ptx.COMMIT else ptx.FENCE)
    source = {line: SourceLine(line, "loop", "A", "math", "qk.ptx.j2", 5, 21, "qk(i)")}
    error = refused(text, tool, source_lines=source)
    assert isinstance(error, TemplateError)
    assert error.message.startswith(f"ptxas refuses k.ptx:{line}: ")
    assert said in error.message
    assert "from template qk.ptx.j2:5, schedule schedules/k.py:21 (loop, cluster A" in error.message


@needs_ptxas
def test_one_kernel_at_a_time() -> None:
    body = "() { ret; }\n"
    head = ".version 8.0\n.target sm_90a\n.address_size 64\n"
    with pytest.raises(TemplateError, match="has 2 kernels"):
        build(f"{head}.entry a{body}.entry b{body}")
    with pytest.raises(TemplateError, match="has 0 kernels"):
        build(head)


@pytest.mark.parametrize("name", ["../k.ptx", "k.s", "/tmp/k.ptx"])
def test_only_a_plain_file_name_is_taken(name: str) -> None:
    with pytest.raises(ConfigError, match="no plain file name"):
        build(ptx.CLEAN, file_name=name)


def test_a_tool_that_hangs_is_told_as_such(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Not as one that cannot be run, and no place that it is found in ends the search."""
    hangs = tmp_path / "ptxas"
    hangs.write_text("#!/bin/sh\nexec sleep 60\n")
    hangs.chmod(0o755)
    monkeypatch.setattr(tools, "SECONDS", 0.3)
    with pytest.raises(MissingError, match="/ptxas has not ended after") as caught:
        build(ptx.CLEAN, Tools(((str(hangs),),), "test", ()))
    assert "too much other work" in str(caught.value.hint)
    monkeypatch.setenv("MLAGEN_PTXAS", str(hangs))
    (first, *_) = TOOLS.every("sm_90a")
    assert "has not ended" in first.reason


def test_a_tool_that_is_gone_is_missing() -> None:
    with pytest.raises(MissingError, match="/nonexistent/ptxas cannot be run"):
        build(ptx.CLEAN, Tools((("/nonexistent/ptxas",),), "test", ()))


@needs_ptxas
def test_what_the_key_needs_is_free_of_paths() -> None:
    for text in (*ptxas_flags("sm_90a"), *dict(find_ptxas("sm_90a").versions).values()):
        assert "/" not in text


def test_messages_are_told_from_figures() -> None:
    said = (
        "ptxas info    : 0 bytes gmem\n"
        "ptxas info    : Compiling entry function 'k' for 'sm_90a'\n"
        "ptxas info    : Used 34 registers, used 0 barriers\n"
        "ptxas info    : (C7514) something is serialized in the function 'k' in line 0\n"
        "ptxas info    : (C7510) something is serialized in the function 'k' in line 58\n"
        "ptxas info    : (C9999) 'setmaxnreg' ignored, for a new reason\n"
        "ptxas k.ptx, line 3; warning : something harmless\n"
        "ptxas other.ptx, line 4; error   : elsewhere\n"
        "ptxas fatal   : Ptx assembly aborted due to errors\n"
    )
    messages = parse(said, "k.ptx")
    assert messages == (
        Message("info", "C7514", "something is serialized in the function 'k'", 0),
        Message("info", "C7510", "something is serialized in the function 'k' in line 58", 58),
        Message("info", "C9999", "'setmaxnreg' ignored, for a new reason", 0),
        Message("warning", "", "something harmless", 3),
        Message("error", "", "elsewhere", 0),
    )
    assert [message.stops for message in messages] == [True, True, True, False, True]


def test_touches_follow_every_path() -> None:
    assert touches(ptx.CLEAN) == []
    assert touches(ptx.over_the_back_edge(0)) == []
    (first, *_) = touches(ptx.WAIT_UNDER_CONDITION)
    store = ptx.line_of(ptx.WAIT_UNDER_CONDITION, "[%out+0], %d0")
    issued = ptx.line_of(ptx.WAIT_UNDER_CONDITION, "wgmma.mma")
    assert first == Touch(store, "%d0", "accumulator", issued, False)
    (only,) = touches(ptx.INPUT_OVERWRITTEN)
    assert (only.register, only.role) == ("%a0", "input")
    commented = ptx.READ_EARLY.replace(ptx.COMMIT, f"/* {ptx.wait(0)}\n */ {ptx.COMMIT} // x;")
    assert [t.register for t in touches(commented)] == [f"%d{i}" for i in range(8)]


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """No variable set, nothing on PATH, no /usr/local/cuda, no wheel."""
    for name in (env.PTXAS, env.CUDA_HOME, env.CUDA_PATH):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    is_dir = Path.is_dir
    hidden = Path("/usr/local/cuda")
    monkeypatch.setattr(Path, "is_dir", lambda self: self != hidden and is_dir(self))
    find = importlib.metadata.distribution

    def without_wheel(name: str) -> importlib.metadata.Distribution:
        if name == ptxas.WHEEL:
            raise importlib.metadata.PackageNotFoundError(name)
        return find(name)

    monkeypatch.setattr(importlib.metadata, "distribution", without_wheel)
    find_ptxas.cache_clear()
    yield tmp_path
    find_ptxas.cache_clear()


def put_ptxas(folder: Path, version: str = "13.0.88", assembles: bool = True) -> Path:
    path = folder / "ptxas"
    folder.mkdir(parents=True, exist_ok=True)
    done = "exit 0" if assembles else "exit 255"
    path.write_text(
        "#!/bin/sh\n"
        f'[ "$1" = --version ] && echo "Cuda compilation tools, release 13.0, V{version}" && exit\n'
        f"{done}\n"
    )
    path.chmod(0o755)
    return path


def test_nothing_anywhere_names_every_place(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(env.CUDA_HOME, str(bare / "home"))
    (bare / "path").mkdir()
    monkeypatch.setenv(env.CUDA_PATH, str(bare / "path"))
    with pytest.raises(MissingError) as caught:
        find_ptxas("sm_90a")
    message = str(caught.value)
    for part in (
        "home: no such directory",
        "path: no bin/ptxas",
        "CUDA in /usr/local/cuda: no such directory",
        "PATH: no ptxas",
        "nvidia-cuda-nvcc wheel: not installed",
        install("nvidia"),
    ):
        assert part in message
    assert caught.value.exit_code == 5


def test_the_order(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(bare / "bin"))
    put_ptxas(bare / "bin", "13.1.1")
    for variable, version in (
        (None, "13.1.1"),
        (env.CUDA_PATH, "13.2.2"),
        (env.CUDA_HOME, "13.3.3"),
    ):
        if variable:
            monkeypatch.setenv(variable, str(bare / variable))
            put_ptxas(bare / variable / "bin", version)
        find_ptxas.cache_clear()
        assert find_ptxas("sm_90a").version == f"ptxas {version}"
    monkeypatch.setenv(env.PTXAS, str(put_ptxas(bare / "mine", "13.4.4")))
    find_ptxas.cache_clear()
    assert find_ptxas("sm_90a").name == "environment"


def test_the_wheel_goes_before_other_installations(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(bare / "bin"))
    put_ptxas(bare / "bin", "13.5.1")
    monkeypatch.setenv(env.CUDA_HOME, str(bare / "home"))
    put_ptxas(bare / "home" / "bin", "12.4.131")
    wheel = put_ptxas(bare / "site")
    candidate = ptxas.Candidate("the wheel", "wheel", ((str(wheel),),))
    monkeypatch.setattr(ptxas, "_from_wheel", lambda: candidate)
    assert find_ptxas("sm_90a").version == "ptxas 13.0.88"
    monkeypatch.setenv(env.PTXAS, str(bare / "home" / "bin" / "ptxas"))
    find_ptxas.cache_clear()
    assert find_ptxas("sm_90a").version == "ptxas 12.4.131"


def test_another_version_than_the_measured_one_is_told() -> None:
    for version, said in (
        ("13.0.88", "ptxas 13.0.88"),
        ("12.4.131", "ptxas 12.4.131 (measured with 13.0.88)"),
    ):
        shown = tools_text(replace(small_kernel.make().manifest, tools={"ptxas": version}))
        assert shown == said


def test_one_that_does_not_know_the_target_is_passed_over(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(bare / "bin"))
    put_ptxas(bare / "bin", "13.1.1")
    monkeypatch.setenv(env.CUDA_HOME, str(bare / "old"))
    put_ptxas(bare / "old" / "bin", "11.8.89", assembles=False)
    assert find_ptxas("sm_90a").version == "ptxas 13.1.1"
    reasons = [tried.reason for tried in TOOLS.every("sm_90a")]
    assert "ptxas 11.8.89 does not assemble for sm_90a" in reasons


def test_a_named_one_must_work(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(bare / "bin"))
    put_ptxas(bare / "bin")
    monkeypatch.setenv(env.PTXAS, str(bare / "typo"))
    with pytest.raises(MissingError, match=r"\$MLAGEN_PTXAS: .*typo is no program"):
        find_ptxas("sm_90a")
    broken = put_ptxas(bare / "broken", assembles=False)
    monkeypatch.setenv(env.PTXAS, str(broken))
    with pytest.raises(MissingError, match="does not assemble for sm_90a"):
        find_ptxas("sm_90a")


def test_doctor_shows_every_place(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(bare / "bin"))
    absent = examine()
    put_ptxas(bare / "bin", "13.1.1")
    present = examine()
    for report, found in ((absent, False), (present, True)):
        checks = {check.name: check for group in report.groups for check in group.checks}
        assert not checks["CUDA in /usr/local/cuda"].found
        assert not checks["the nvidia-cuda-nvcc wheel"].found
        group = next(group for group in report.groups if "NVIDIA" in group.title)
        said = "ptxas 13.1.1 (measured with 13.0.88)"
        assert any(check.version == said for check in group.checks) == found
        assert any(install("nvidia") in line for line in report.advice) != found


def test_unknown_target_is_refused() -> None:
    with pytest.raises(MissingError, match="for sm_42"):
        find_ptxas("sm_42")


def test_the_wheel_is_found_by_its_files() -> None:
    try:
        importlib.metadata.distribution(ptxas.WHEEL)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"the {ptxas.WHEEL} wheel is not installed")
    found = {tried.place: tried.tools for tried in TOOLS.every("sm_90a")}
    wheel = found[f"the {ptxas.WHEEL} wheel"]
    assert wheel is not None
    assert wheel.name == "wheel"
    assert wheel.versions[0][0] == "ptxas"
