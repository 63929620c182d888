"""jinja2: the templates of one target, looked up in folders; each line knows its template."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2

from mlagen.codegen.template_bounds import BoundedEnvironment
from mlagen.dsl.function import last_line
from mlagen.errors import MlagenError, TemplateError
from mlagen.untrusted import words

_MARK = "\x01"  # ends an output line, followed by the template and the line that made it
_PLACE = re.compile(r".+\.j2:\d+")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # in a template they are no text


class Templates:
    """The template environment of one target.

    An operation asks for `family/name`. It is looked up in the target's own folder and then in
    those of the targets that it extends (`folders`), in each of them first below the given
    directories, in their order, then below ours.
    """

    def __init__(self, target: str, folders: Sequence[str], *directories: Path | None) -> None:
        given = [directory for directory in directories if directory is not None]
        for directory in given:
            if not directory.is_dir():
                raise TemplateError(f"template folder {directory} does not exist")
        self.target = target
        self.directories = [*map(str, given), "mlagen's own"]
        folders = tuple(folders)
        self.environment = _environment(folders, *given) if given else _shipped(folders)

    def render(
        self, name: str, context: Mapping[str, Any], asked_by: str
    ) -> list[tuple[str, int, str]]:
        """(template, its line, text) of every line that `name` of the target renders to."""
        try:
            self.environment.start()
            text = self.environment.get_template(name).render(context)
        except jinja2.TemplateSyntaxError as error:
            where = f"{_shown(error.filename or name)}:{error.lineno}"
            raise TemplateError(f"{where}: {error.message}") from error
        except jinja2.TemplateNotFound as error:
            raise TemplateError(
                f"template {self.target}/{error.name} does not exist ({asked_by})",
                hint=f"looked in {', '.join(self.directories)}",
            ) from error
        except jinja2.UndefinedError as error:
            raise TemplateError(
                f"{_failing_place(error)}: {error.message} ({asked_by})",
                hint="names come from the context of the operation that asked",
            ) from error
        except Exception as error:  # a template computes with what it is given
            what = words(error)
            if isinstance(error, MlagenError):
                what = error.message
            if isinstance(error, RecursionError):
                what = "it calls, includes or imports itself without an end"
            raise TemplateError(f"{_failing_place(error)}: {what} ({asked_by})") from error
        lines = []
        for line in text.removesuffix("\n").split("\n") if text else ():
            body, *marks = line.split(_MARK)
            source, _, number = marks[-1].rpartition(":") if marks else (name, "", "0")
            strange = _CONTROL.search(body)
            if strange or not all(map(_PLACE.fullmatch, marks)):
                where = f"{source}:{number}" if number.isdigit() else name
                found = strange[0] if strange else _MARK
                raise TemplateError(f"{where}: the control character {found!r} in what it renders "
                                    f"to ({asked_by})")  # fmt: skip
            source, _, number = marks[0].rpartition(":") if marks else (name, "", "0")
            lines.append((source, int(number), body))
        return lines


class _Compiled(jinja2.FileSystemBytecodeCache):
    """What earlier processes compiled, beside our templates as Python's `.pyc` beside a module: by
    the digest of the text and the versions of jinja2 and Python. Where nothing can be written, or
    Python shall write none, templates are compiled each time."""

    def load_bytecode(self, bucket: jinja2.bccache.Bucket) -> None:
        with suppress(OSError):
            super().load_bytecode(bucket)

    def dump_bytecode(self, bucket: jinja2.bccache.Bucket) -> None:
        if sys.dont_write_bytecode:
            return
        with suppress(OSError):
            Path(self.directory).mkdir(parents=True, exist_ok=True)
            super().dump_bytecode(bucket)


def _environment(folders: tuple[str, ...], *directories: Path) -> BoundedEnvironment:
    """An environment that looks in these folders of a target, of each directory and of ours."""
    ours = Path(str(resources.files("mlagen.templates")))
    paths = [place / folder for folder in folders for place in (*directories, ours)]
    return BoundedEnvironment(
        loader=_NumberedLoader(jinja2.FileSystemLoader(paths)),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
        # The number is that of the options here and of bounds, which no digest covers.
        bytecode_cache=None
        if directories
        else _Compiled(f"{ours}/__pycache__", f"%s-{jinja2.__version__}-3.cache"),
    )


@functools.cache
def _shipped(folders: tuple[str, ...]) -> BoundedEnvironment:
    """The environment for our templates alone is kept with what it has compiled, which saves a
    tenth of a build. An edited file is read again, but not one that comes to stand before it: with
    other directories nothing is kept."""
    return _environment(folders)


class _NumberedLoader(jinja2.BaseLoader):
    """Marks every output line of an operation template with its own line number, so that an
    instruction finds the template line that made it."""

    def __init__(self, inner: jinja2.BaseLoader) -> None:
        self.inner = inner

    def get_source(self, environment: jinja2.Environment, template: str) -> Any:
        source, filename, uptodate = self.inner.get_source(environment, template)
        strange = _CONTROL.search(source.replace("\r\n", "\n"))
        if strange:
            number = source.replace("\r\n", "\n").count("\n", 0, strange.start()) + 1
            what = f"the control character {strange[0]!r} stands in it"
            raise jinja2.TemplateSyntaxError(what, number, template, filename)
        if template.endswith((".s.j2", ".ptx.j2")) and "/" in template:
            lines = []
            comment = False
            for number, line in enumerate(source.split("\n"), 1):
                opened = comment
                for mark in re.findall(r"\{#|#\}", line):
                    comment = mark == "{#"
                code = line.strip()
                plain = code and not opened and not comment and not code.startswith("{%")
                plain = plain and not code.startswith("{#")
                lines.append(f"{line}{_MARK}{template}:{number}" if plain else line)
            source = "\n".join(lines)
        return source, filename, uptodate


def _failing_place(error: BaseException) -> str:
    """The line of a template, or of one that it takes macros from, at which the traceback of a
    render error ends (jinja2 rewrites frames)."""
    file, line = last_line(error, lambda file: file.endswith(".j2"))
    return f"{_shown(file)}:{line}" if file else ""


def _shown(path: str) -> str:
    """A template's file as messages tell it: the target's folder, the family's, the name."""
    return "/".join(Path(path).parts[-3:])
