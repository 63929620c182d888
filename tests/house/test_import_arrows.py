"""The arrows of the design: who may import whom. Lazy and type-only imports count too."""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# What each part may import of mlagen, besides itself and the modules of COMMON. A part is a package
# or a module of mlagen/, or one of the folders that ship as packages. What a target has besides its
# limits is a part, "targets.gfx950", and its words are one: "targets.gfx950.dsl".
COMMON = {
    "disk",
    "errors",
    "extras",
    "legal_names",
    "names",
    "removal",
    "room",
    "severity",
    "telling",
    "untrusted",
}
GENERATOR = {"artifact", "codegen", "dsl", "env", "schedule_view", "targets"}
ARROWS: dict[str, set[str]] = {
    "errors": set(),
    "extras": set(),
    "disk": set(),
    "processes": set(),
    "names": set(),
    "legal_names": set(),
    "removal": set(),
    "room": set(),
    "severity": set(),
    "telling": set(),
    "untrusted": set(),
    "env": set(),
    "problem": set(),
    "targets": set(),  # limits, and the registry
    "targets.gfx950": GENERATOR | {"targets.gfx950.dsl"},
    "targets.gfx950.dsl": {"dsl", "targets"},
    "targets.nvidia": GENERATOR | {"inspect", "ptx", "targets.nvidia.dsl"},
    "targets.sm_90a": GENERATOR | {"targets.nvidia", "targets.nvidia.dsl"},
    "targets.sm_100a": GENERATOR | {"targets.nvidia", "targets.nvidia.dsl", "targets.sm_100a.dsl"},
    "targets.sm_100a.dsl": {"dsl", "targets", "targets.nvidia.dsl"},
    "targets.nvidia.dsl": {"artifact", "dsl", "targets"},
    "dsl": {"targets", "artifact"},
    "family": {"artifact", "launch", "launch_findings", "problem", "targets"},
    "attention": {
        "artifact",
        "dsl",
        "family",
        "launch",
        "launch_findings",
        "problem",
        "targets",
        "targets.gfx950.dsl",
        "targets.nvidia.dsl",
        "targets.sm_100a.dsl",
    },
    "families": {
        "artifact",
        "attention",
        "bench",
        "dsl",
        "family",
        "launch",
        "launch_findings",
        "problem",
        "targets",
        "targets.gfx950.dsl",
        "targets.nvidia.dsl",
        "targets.sm_100a.dsl",
    },
    "schedules": {
        "families",
        "attention",
        "dsl",
        "targets.gfx950.dsl",
        "targets.nvidia.dsl",
        "targets.sm_100a.dsl",
    },
    "templates": set(),
    "artifact": {"targets"},
    "codegen": {"problem", "dsl", "targets", "artifact"},
    "binary": {"targets"},
    "ptx": {"targets"},
    "audit": {"binary", "ptx", "targets"},
    "emulator": {"binary", "ptx", "targets"},
    "pages": set(),
    "timing": {"pages", "binary", "emulator", "targets"},
    "inspect": {"pages", "artifact", "binary", "ptx", "targets"},
    "schedule_view": {"artifact", "codegen", "dsl", "inspect", "targets"},
    "launch": {"artifact", "emulator", "targets"},
    "locate": {"artifact", "binary", "emulator", "ptx"},
    "launch_findings": {"artifact", "launch", "locate"},
    "ops": {"artifact", "attention", "families", "family", "launch", "app", "tune"},
    "compat": {"families", "ops"},
    "bench": {"artifact", "family", "problem"},
    "mutation": {
        "artifact",
        "audit",
        "binary",
        "codegen",
        "emulator",
        "family",
        "launch",
        "problem",
        "processes",
        "ptx",
        "verify",
        "targets",
        "targets.gfx950",
    },
    "verify": {
        "artifact",
        "family",
        "launch",
        "launch_findings",
        "locate",
        "problem",
        "targets",
    },
}
# Commands and what they call may use every part but those above them.
HOUSE = {"app": {"cli"}, "tune": {"cli"}, "cli": set(), "__init__": {"cli"}, "__main__": set()}
ONLY_NUMPY = {
    "problem": {"numpy", "ml_dtypes"},
    "targets": set(),
    "ptx": set(),
    "artifact": {"msgspec"},
}


def files_of(part: str) -> list[Path]:
    if part in ("schedules", "templates"):
        return sorted((ROOT / part).rglob("*.py"))
    package = ROOT / "mlagen" / part.partition(".")[0]
    files = sorted(package.rglob("*.py")) if package.is_dir() else [package.with_suffix(".py")]
    return [path for path in files if part_of(module_of(path)) == part]


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def imports_of(path: Path) -> set[str]:
    """Full names of all modules a file imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def part_of(name: str) -> str:
    """The part of mlagen that an imported name belongs to."""
    pieces = name.split(".")
    below = pieces[2:] if pieces[1:2] == ["targets"] else []
    if below[1:] and below[0] != "registry" and below[1] not in ("limits", "__init__"):
        return f"targets.{below[0]}" + (".dsl" if below[1] == "dsl" else "")
    return pieces[1] if len(pieces) > 1 else "__init__"


def all_parts() -> set[str]:
    inside = {p.stem for p in (ROOT / "mlagen").iterdir() if p.suffix == ".py" or p.is_dir()}
    targets = {p.name for p in (ROOT / "mlagen" / "targets").iterdir() if p.is_dir()}
    folders = {f"targets.{name}{part}" for name in targets for part in ("", ".dsl")}
    found = inside | folders | {"schedules", "templates"}
    return {part for part in found if part != "py" and "__pycache__" not in part}


def test_every_part_is_in_the_table() -> None:
    found = {part for part in all_parts() if files_of(part)}
    assert found == ARROWS.keys() | HOUSE.keys()


def test_the_table_has_no_circle() -> None:
    assert list(graphlib.TopologicalSorter(ARROWS).static_order())


@pytest.mark.parametrize("part", sorted(ARROWS))
def test_arrows(part: str) -> None:
    legal = ARROWS[part] | {part} | COMMON
    for path in files_of(part):
        used = {part_of(name) for name in imports_of(path) if name.split(".")[0] == "mlagen"}
        assert used <= legal, f"{path.relative_to(ROOT)} imports {sorted(used - legal)}"


@pytest.mark.parametrize("part", sorted(HOUSE))
def test_nothing_but_the_program_uses_its_commands(part: str) -> None:
    for path in files_of(part):
        used = {part_of(name) for name in imports_of(path) if name.split(".")[0] == "mlagen"}
        assert not used & HOUSE[part], path


# Words that several targets share.
SHARED = {"nvidia": {"sm_90a", "sm_100a"}}


def test_what_is_of_a_target_lies_in_its_folder() -> None:
    """Attention is said in a target's words below a folder of that name, and nowhere else."""
    for path in (*files_of("attention"), *files_of("families")):
        parts = {part_of(name) for name in imports_of(path)} - {"targets"}
        used = {part.split(".")[1] for part in parts if part.startswith("targets.")}
        folders = set(path.relative_to(ROOT).parts)
        assert used <= folders | {words for words in SHARED if folders & SHARED[words]}, path


# A family's kernels whose split results, or plans, another one's merge; or that have the loop of
# another one's.
BESIDE = {
    "mla_prefill": {"split_merge"},
    "mla_sparse": {"mla_decode"},
    "split_merge": {"mla_decode"},
}


def test_families_and_their_oracles_stand_alone() -> None:
    """A family imports no other but those beside it. Operations, which lie in a target's folder,
    are imported from such folders alone: oracles, plans and callables know none."""
    targets = {path.name for path in (ROOT / "mlagen" / "targets").iterdir() if path.is_dir()}
    for path in (*files_of("attention"), *files_of("families")):
        parts = path.relative_to(ROOT).parts
        used = {name for name in imports_of(path) if name.startswith("mlagen.")}
        if parts[1] == "families" and len(parts) > 3:
            others = {name.split(".")[2] for name in used if name.startswith("mlagen.families.")}
            assert others <= {parts[2]} | BESIDE.get(parts[2], set()), path
        if not targets & set(parts):
            operations = [n for n in used if targets & set(n.split(".")) and ".limits" not in n]
            assert not operations and not [n for n in used if n.startswith("mlagen.dsl")], path


@pytest.mark.parametrize("part", sorted(ONLY_NUMPY))
def test_values_depend_on_little(part: str) -> None:
    legal = {"mlagen", *sys.stdlib_module_names, *ONLY_NUMPY[part]}
    for path in files_of(part):
        used = {name.split(".")[0] for name in imports_of(path)}
        assert used <= legal, f"{path.relative_to(ROOT)} imports {sorted(used - legal)}"


def loaded_after(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


def test_importing_launch_loads_no_generator() -> None:
    loaded = loaded_after("import mlagen.launch")
    assert "mlagen.launch" in loaded
    heavy = {
        "jinja2",
        "rich",
        "numba",
        "tinygrad",
        "mlagen.dsl",
        "mlagen.codegen",
        "mlagen.families.mha_prefill.gfx950",
    }
    assert not loaded & heavy


def test_importing_the_command_line_is_light() -> None:
    loaded = loaded_after("import mlagen.cli.main")
    assert not loaded & {"numpy", "jinja2", "rich", "numba", "tinygrad", "mlagen.codegen"}


@pytest.mark.parametrize(("target", "words"), [("gfx950", "gfx950"), ("sm_90a", "nvidia")])
def test_words_and_limits_of_a_target_load_no_other_and_no_generator(
    target: str, words: str
) -> None:
    loaded = loaded_after(f"import mlagen.targets.{words}.dsl, mlagen.targets.{target}.limits")
    ours = {name for name in loaded if name.startswith("mlagen.")}
    legal = ARROWS[f"targets.{words}.dsl"] | {f"targets.{words}.dsl", "artifact"} | COMMON
    assert {part_of(name) for name in ours} <= legal
    own = {target, words, "registry", *SHARED.get(words, ())}
    assert {n.split(".")[2] for n in ours if n.startswith("mlagen.targets.")} <= own


def test_a_build_loads_no_other_target(tmp_path: Path) -> None:
    """In a process of its own, as a user builds."""
    command = ["build", "mha_prefill_v2", "--set", "num_heads=1", "--set", "num_kv_heads=1"]
    arguments = [*command, "--templates", str(tmp_path), "-o", str(tmp_path / "out")]
    (tmp_path / "gfx950").mkdir()
    (tmp_path / "gfx950" / "unused.s.j2").touch()
    loaded = loaded_after(f"from mlagen.cli.main import run; assert run({arguments!r}) == 0")
    assert "mlagen.targets.gfx950.codegen.build" in loaded
    assert not {name for name in loaded if "sm_90a" in name}


def test_the_probe_would_see_a_module() -> None:
    assert "jinja2" in loaded_after("import mlagen.launch, jinja2")
