"""Every command and snippet of every page is run, and prints what the page shows."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import doc_pages
import prepared
import pytest
from doc_pages import ROOT, Item, PageError, is_excerpt, prints, read_page
from notes import without_notes

from mlagen import env
from mlagen.cli.main import run
from mlagen.family import registry

DOCS = ROOT / "docs"
PAGES = sorted(path.name for path in DOCS.glob("*.md"))
TEXTS = re.compile(r"<text[^>]*>([^<]*)")  # of a picture
SHELL_ONLY = re.compile(r"[|&;<>$`*]")
# What a page may expect of the folder it is read in: a checkout.
CHECKOUT = ("examples", "schedules", "templates")


class Reader:
    """Somebody who types a page's commands, in a folder of their own."""

    def __init__(self, page: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.page, self.capsys = page, capsys
        self.names: dict[str, object] = {"__name__": "__main__"}
        self.code = 0

    def at(self, item: Item) -> str:
        return f"docs/{self.page}:{item.line}"

    def prepare(self) -> None:
        """Make what the page speaks of as if it were there."""
        for command in prepared.PREPARE.get(self.page, ()):
            printed = self.typed(command)
            assert self.code == 0, f"{command} prints:\n{printed}"
        exec(prepared.NAMES.get(self.page, ""), self.names)

    def read(self, items: list[Item]) -> None:
        for n, item in enumerate(items):
            if item.what == "file":
                path = Path(item.path)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(item.text)
            elif item.what == "excerpt":
                whole = (ROOT / item.path).read_text()
                assert is_excerpt(item.text, whole), f"{self.at(item)}: not in {item.path}"
            elif item.what == "python":
                self.snippet(item)
            elif item.what == "gpu":
                if not item.text.startswith("$ "):
                    compile(item.text, self.at(item), "exec")
            elif item.what == "command":
                self.command(item, items[n + 1] if n + 1 < len(items) else None)

    def command(self, item: Item, following: Item | None) -> None:
        key = self.page, item.text
        if key in prepared.ELSEWHERE:
            return
        if item.text == "echo $?":
            printed = f"{self.code}\n"
        else:
            printed = self.typed(prepared.shorter(item.text))
            asked = following is not None and following.text == "echo $?"
            assert asked or self.code == 0, f"{self.at(item)} ends with {self.code}:\n{printed}"
        if item.output is not None:
            assert prints(item.output, printed), f"{self.at(item)} prints:\n{printed}"

    def typed(self, command: str) -> str:
        """Run the command as a shell would; what it printed. Its exit code is kept."""
        words = shlex.split(command)
        self.capsys.readouterr()
        if words[0] == "cd":
            os.chdir(words[1])
            self.code = 0
            return ""
        if words[0] == "mlagen" and not SHELL_ONLY.search(command):
            self.code = run(words[1:])
            out, err = self.capsys.readouterr()
            assert "Traceback" not in out + err
            return out + without_notes(err)
        done = subprocess.run(
            ["bash", "-c", command],
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={
                **os.environ,
                "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
                "ROOT": str(ROOT),
            },
        )
        self.code = done.returncode
        return without_notes(done.stdout)

    def snippet(self, item: Item) -> None:
        if (self.page, item.text.partition("\n")[0]) in prepared.ELSEWHERE:
            return
        exec(compile(item.text, self.at(item), "exec"), self.names)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A checkout's folders to work in. Modules that are imported from it, and
    the families that they register, are forgotten again."""
    for name in CHECKOUT:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tmp_path / "mlagen" / name, ignore=ignored)
    monkeypatch.chdir(tmp_path / "mlagen")
    monkeypatch.setenv(env.CACHE_DIR, str(tmp_path / "cache"))
    monkeypatch.delenv(env.TUNING, raising=False)
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    elsewhere = _modules_in(ROOT / "examples")
    for name in elsewhere:
        del sys.modules[name]
    yield tmp_path / "mlagen"
    for name in _modules_in(tmp_path):
        del sys.modules[name]
    sys.modules.update(elsewhere)


def _modules_in(folder: Path) -> dict[str, object]:
    return {
        name: module
        for name, module in list(sys.modules.items())
        if str(getattr(module, "__file__", None) or "").startswith(f"{folder}{os.sep}")
    }


@pytest.mark.parametrize("page", PAGES)
def test_page(page: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reader = Reader(page, capsys)
    reader.prepare()
    reader.read(read_page((DOCS / page).read_text()))


def test_the_readme_is_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All but its `make`, which is what runs this."""
    items = read_page((ROOT / "README.md").read_text())
    assert {"command", "python", "excerpt"} <= {item.what for item in items}
    reader = Reader("../README.md", capsys)
    reader.prepare()
    reader.read([item for item in items if not item.text.startswith("make ")])
    # The pictures are what the commands beside them draw.
    for drawn in (ROOT / "docs" / "pictures").iterdir():
        made = Path("docs/pictures") / drawn.name
        assert TEXTS.findall(made.read_text()) == TEXTS.findall(drawn.read_text()), drawn.name


def test_what_is_said_of_pages_is_about_pages() -> None:
    """Nothing stands in the tables for a command that no page shows any more."""
    shown = {
        (page, item.text if item.what == "command" else item.text.partition("\n")[0])
        for page in (*PAGES, "../README.md")
        for item in read_page((DOCS / page).read_text())
    }
    assert set(prepared.ELSEWHERE) <= shown
    assert set(prepared.PREPARE) | set(prepared.NAMES) <= {*PAGES, "../README.md"}


def test_the_index_lists_every_page_once() -> None:
    listed = re.findall(r"\]\(([\w.]+\.md)\)", (DOCS / "README.md").read_text())
    assert sorted(listed) == sorted(set(PAGES) - {"README.md"})


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", (DOCS / page).read_text()):
        if "://" not in target:
            assert (DOCS / target).exists(), f"docs/{page} links to {target}"


def test_campaigns_are_cut_short() -> None:
    for shown, run_as in (
        ("mlagen mutate k --set a=1", "mlagen mutate k --set a=1 --sample 1"),
        ("mlagen mutate k --sample 50 --seed 1", "mlagen mutate k --seed 1 --sample 1"),
        ("mlagen audit k.ptx --mutate --sample 90", "mlagen audit k.ptx --mutate --sample 10"),
        ("mlagen audit k.ptx --trips 8", "mlagen audit k.ptx --trips 8"),
    ):
        assert prepared.shorter(shown) == run_as


# ---- the reader itself --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("```sh\nmlagen list\n```", "a block of sh is not run"),
        ("```\nmlagen list\n```", "a block of no language is not run"),
        ("```text\n$ mlagen list\n```", "a command in a block of text"),
        ("```text\nmlagen list\n```", "a command in a block of text"),
        ("```console\nmlagen list\n```", "output without a command"),
        ("```console\n$ mlagen list", "does not end"),
        ("    rm -r out", "no command"),
        ("    MLAGEN_ACCEPTANCE=1 rm -r out", "no command"),
    ],
)
def test_what_would_not_be_run_is_refused(block: str, message: str) -> None:
    with pytest.raises(PageError, match=re.escape(message)):
        read_page(f"Words.\n\n{block}\n")


def test_a_page_is_read_in_order() -> None:
    page = """# Title

In `a.py`:

```python
x = 1
```

From `b/c.py`:

```python
y = 2
```

    mlagen list      what there is
    mlagen doctor    # what is missing
    MLAGEN_SAMPLE=1 pytest tests    all of it

```console
$ mlagen build nothing
error: no
$ echo $?
2
$ python a.py \\
>     --more
```

```python
z = 3
```

```console-gpu
$ python b.py
```
"""
    found = [(x.what, x.path or x.text.strip(), x.output) for x in read_page(page)]
    assert found == [
        ("file", "a.py", None),
        ("excerpt", "b/c.py", None),
        ("command", "mlagen list", None),
        ("command", "mlagen doctor", None),
        ("command", "MLAGEN_SAMPLE=1 pytest tests", None),
        ("command", "mlagen build nothing", "error: no"),
        ("command", "echo $?", "2"),
        ("command", "python a.py --more", None),
        ("python", "z = 3", None),
        ("gpu", "$ python b.py", None),
    ]


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a\nb", "a\nb\n", True),
        ("a\n…\nd", "a\nb\nc\nd\n", True),
        ("a\n…\nd", "a\nd\n", True),
        ("a … c\n", "a b c\n", True),
        ("a\n…", "a\n", True),
        ("a\nb", "a\nb\nc\n", False),
        ("a\nc", "a\nb\nc\n", False),
        ("a … d\n", "a b c\n", False),
        ("a … d\n", "a b\nc d\n", False),
    ],
)
def test_output_is_compared(shown: str, printed: str, same: bool) -> None:
    assert prints(shown, printed) == same


def test_excerpts_are_compared() -> None:
    whole = "class A:\n    def f(self):\n        return 1\n\n    def g(self):\n        return 2\n"
    assert is_excerpt("def f(self):\n    return 1\n...\ndef g(self):\n", whole)
    assert not is_excerpt("def g(self):\n...\ndef f(self):\n", whole)
    assert not is_excerpt("def f(self):\n    return 2\n", whole)


def test_a_page_that_shows_the_wrong_thing_fails(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reader = Reader("x.md", capsys)
    reader.read(
        read_page("```console\n$ mlagen build none\nerror: …\n  hint: …\n$ echo $?\n2\n```\n")
    )
    for page, message in (
        ("```console\n$ mlagen build none\n```\n", "ends with 2"),
        ("```console\n$ mlagen --version\nmlagen, version 9\n```\n", "prints"),
        ("From `README.md`:\n\n```python\nnothing like it\n```\n", "not in README.md"),
    ):
        with pytest.raises(AssertionError, match=message):
            reader.read(read_page(page))
    with pytest.raises(ZeroDivisionError):
        reader.read(read_page("```python\n1 / 0\n```\n"))
    assert doc_pages.ELLIPSIS == "…"
