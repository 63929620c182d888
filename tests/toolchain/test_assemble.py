"""Assembling: the same bytes anywhere, and errors at the line that made them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from small_kernel import ADD_TEXT, LOAD_LINE, USE_LINE

from mlagen.artifact import SourceLine
from mlagen.codegen.tools import Tools
from mlagen.errors import ConfigError, MissingError, TemplateError
from mlagen.targets.gfx950.assemble import assemble, build_flags
from mlagen.targets.gfx950.clang import find_tools

SOURCE = {
    LOAD_LINE: SourceLine(LOAD_LINE, "loop", "A", "all", "add/load.s.j2", 3, 21, "load(x, i)"),
    USE_LINE: SourceLine(USE_LINE, "prologue", "", "all", "add/use.s.j2", 5, 0),
}


def build(text: str = ADD_TEXT, **changes: object) -> bytes:
    arguments: dict[str, object] = {
        "file_name": "add.s",
        "source_lines": SOURCE,
        "schedule_file": "schedules/add.py",
    }
    return assemble(text, **{**arguments, **changes})  # type: ignore[arg-type]


def test_bytes_do_not_depend_on_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for name in ("here", "there/deeper"):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        monkeypatch.chdir(folder)
        monkeypatch.setenv("TMPDIR", str(folder))
        found.append(build())
        assert list(folder.iterdir()) == []
    assert found[0] == found[1]
    assert found[0][:4] == b"\x7fELF"
    for part in (os.fsencode(tmp_path), b"mlagen-", b"/tmp"):
        assert part not in found[0]


def test_an_error_is_shown_at_template_and_schedule_line() -> None:
    text = ADD_TEXT.replace("global_load_dword v2, v1", "s_no_such_thing v2, v1")
    text = text.replace("v_add_u32_e32 v2, s8, v2", "v_add_u32_e32 v2, s8, s2")
    text = text.replace("s_endpgm", "s_endprogram")
    with pytest.raises(TemplateError) as caught:
        build(text)
    assert caught.value.message == (
        "the assembler refuses add.s:13: invalid instruction\n"
        "    s_no_such_thing v2, v1, s[4:5]\n"
        "    from template add/load.s.j2:3, schedule schedules/add.py:21"
        " (loop, cluster A, load(x, i))\n"
        "  add.s:15: invalid operand for instruction\n"
        "    v_add_u32_e32 v2, s8, s2\n"
        "    from template add/use.s.j2:5 (prologue)\n"
        "  add.s:17: invalid instruction\n"
        "    s_endprogram\n"
        "    from the skeleton: no template line is recorded for it"
    )


def test_many_errors_are_counted_not_listed() -> None:
    with pytest.raises(TemplateError, match="and 7 more") as caught:
        build(ADD_TEXT.replace("s_endpgm", "\n".join(["s_nonsense"] * 12)))
    assert caught.value.message.count("s_nonsense") == 5


def test_a_tool_that_is_gone_is_missing() -> None:
    gone = Tools((("/nonexistent/clang",), ("/nonexistent/ld.lld",)), "test", ())
    with pytest.raises(MissingError, match="/nonexistent/clang cannot be run"):
        build(toolchain=gone)


@pytest.mark.parametrize("name", ["../add.s", "add.txt", "/tmp/add.s"])
def test_only_a_plain_file_name_is_taken(name: str) -> None:
    with pytest.raises(ConfigError, match="no plain file name"):
        build(file_name=name)


def test_what_the_key_needs_is_free_of_paths() -> None:
    for text in (*build_flags("gfx950"), *dict(find_tools("gfx950").versions).values()):
        assert "/" not in text
