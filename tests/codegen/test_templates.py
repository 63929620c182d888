"""Compiled templates: kept for later processes, by their text."""

import shutil
from pathlib import Path

import pytest

from mlagen.codegen import templates
from mlagen.codegen.target import templates_for

SHIPPED = Path(__file__).parents[2] / "templates"
NAME = "pipeline/wait.ptx.j2"
CONTEXT = {"smem": "%smem", "barrier": 8, "slot": 0, "phase": 0, "fence": False}


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A copy of the shipped templates in their place, and what is compiled: names."""
    folder = tmp_path / "templates"
    shutil.copytree(SHIPPED, folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(templates.resources, "files", lambda name: folder)
    monkeypatch.setattr(templates.sys, "dont_write_bytecode", False)
    compiled = []
    inner = templates.jinja2.Environment.compile

    def compile_(self, source, name=None, filename=None, **more):
        compiled.append(name)
        return inner(self, source, name, filename, **more)

    monkeypatch.setattr(templates.jinja2.Environment, "compile", compile_)
    yield folder, compiled
    templates._shipped.cache_clear()


def rendered():
    """As a new process renders it."""
    templates._shipped.cache_clear()
    lines = templates_for("sm_90a").render(NAME, CONTEXT, "a test")
    return [text for _, _, text in lines]


def test_a_template_is_compiled_once_for_its_text(own):
    folder, compiled = own
    first = rendered()
    assert compiled.count(NAME) == 1
    assert rendered() == first
    assert compiled.count(NAME) == 1
    with (folder / "sm_90a" / NAME).open("a") as file:
        file.write("// edited\n")
    assert rendered() == [*first, "// edited"]
    assert compiled.count(NAME) == 2


def test_what_is_damaged_or_cannot_be_kept_is_compiled(own):
    folder, compiled = own
    first = rendered()
    for file in (folder / "__pycache__").iterdir():
        file.write_bytes(b"j2")
    assert rendered() == first
    shutil.rmtree(folder / "__pycache__")
    (folder / "__pycache__").write_text("no folder")
    assert rendered() == first
    assert compiled.count(NAME) == 3
