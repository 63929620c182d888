"""Fixtures that several folders share."""

from __future__ import annotations

import math
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

# The tests run in several processes: BLAS threads would fight for the same cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# What a user has tuned must not change what is tested.
os.environ["MLAGEN_TUNING"] = f"{tempfile.gettempdir()}/mlagen-tests-{os.getpid()}/tuning.sqlite"

# Under nohup, and in the background of a script, SIGINT is ignored, also by every process that is
# started: those of tests that interrupt one would go on.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What benchmarks count with is tested here too.
sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

import pytest
from hypothesis import HealthCheck, settings
from small_kernel import make
from sources import sources

from mlagen.artifact import Artifact

# Two test processes share two cores: that data is made slowly says nothing of the code.
settings.register_profile("mlagen", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("mlagen")

# The cases of these files are many, and each builds or interprets a large kernel: of each test one
# of so many is run, at least one: others when the sources have changed, so that all have their
# turn. All are run where MLAGEN_ACCEPTANCE is set. "file::test" is one test of a file.
SAMPLED = {
    "test_install.py": 3,
    "test_code_of_base.py": 48,
    "test_mla_decode_gfx950.py": 12,
    "test_mla_decode_gfx950_items.py": 9,
    "test_mla_decode_gfx950_stored.py": 16,
    "test_mla_sparse_gfx950.py": 12,
    "test_mla_prefill_v2.py": 40,
    "test_mla_prefill_pages.py": 40,
    "test_mla_prefill_persistent.py": 40,
    "test_mha_fp8.py": 40,
    "test_mla_decode_numbers.py": 40,
    "test_audit_decode.py": 40,
    "test_llvm_corpus.py": 4,
    "test_mha_acceptance.py": 40,
    "test_damaged_plans.py": 60,
    "test_mla_sparse_blackwell_acceptance.py": 120,
    "test_mla_sparse_gfx950_acceptance.py": 60,
    "test_mha_forms.py": 12,
    "test_mha_prefill_v2.py": 20,
    "test_mha_prefill.py": 20,
    "test_prefill_sequences.py": 4,
    "test_prefill_masks.py": 4,
    "test_mha_cross_product.py": 3,
    "test_mha_kernel.py": 3,
    "test_mla_prefill_kernel.py": 4,
    "test_audit_mutants.py": 4,
    "test_audit_sparse.py": 6,
    "test_scalar_loads.py": 2,
    "test_verify_sparse.py": 120,
    "test_litmus.py": 60,
    "test_blocks_tell.py": 12,
    "test_block_ends.py": 6,
    "test_verify_sparse_blackwell.py": 140,
    "test_verify_sparse_decode_blackwell.py": 60,
    "test_verify_decode_blackwell.py": 40,
    "test_sparse_edits_blackwell.py": 24,
    "test_decode_edits_blackwell.py": 12,
    "test_mla_decode_blackwell_acceptance.py": 60,
    "test_sparse_decode_edits_blackwell.py": 12,
    "test_schedule_fuzz.py": 4,
    "test_cases.py": 4,
    "test_oracles_forms.py": 4,
    "test_values_approx.py": 3,
    "test_decode_edits.py": 3,
    "test_decode_forms.py": 4,
    "test_mla_sparse_calls.py": 3,
    "test_head_counts.py": 40,
    "test_mla_sparse_oracles.py": 4,
    "test_matrix_products.py": 4,
    "test_tiles_are_knobs.py": 3,
    "test_lds_dma_wait.py": 3,
    "test_audited.py": 16,
    "test_attacks.py": 12,
    "test_attacks_machine.py": 40,
    "test_attacks_python.py": 8,
    "test_size_edits.py": 8,
    "test_stated_roundings.py": 8,
    "test_nonfinite_decode.py": 40,
    "test_nonfinite_prefill.py": 40,
    "test_nonfinite_sparse.py": 40,
    "test_aiter_mla_ours.py": 4,
    "test_verify_few_rows.py": 4,
    "test_verify_hopper.py": 3,
    "test_verify_hopper_e4m3.py": 3,
    "test_verify_shared_rows.py": 3,
    "test_hostile_ptx.py": 3,
    "test_sparse_edits.py": 3,
    "test_hip_mla_sparse.py": 3,
    "test_lifetimes.py": 2,
    "test_hidden_rows.py": 108,
    "test_pages.py::test_page": 3,
    "test_advice_applied.py": 2,
    "test_facts_of_arguments.py": 2,
    "test_grains_of_queries.py": 4,
    "test_mla_sparse_calls_blackwell.py": 3,
}

# Of the cases that this leaves of a file, whatever their test, again one of so many: tests take
# turns. Who names a test, or asks by -k, gets it.
TURNS = {
    "test_attacks_machine.py": 3,
    "test_attacks_python.py": 2,
    "test_attacks.py": 2,
    "test_verify_decode_blackwell.py": 4,
    "test_verify_sparse.py": 2,
    "test_verify_sparse_blackwell.py": 2,
    "test_mla_decode_gfx950.py": 3,
    "test_mla_decode_gfx950_items.py": 3,
    "test_mla_decode_gfx950_stored.py": 3,
    "test_mla_sparse_gfx950.py": 3,
    "test_mla_prefill_v2.py": 2,
    "test_mha_prefill_v2.py": 2,
    "test_damaged_plans.py": 2,
    "test_mha_fp8.py": 2,
    "test_mha_acceptance.py": 3,
    "test_mla_acceptance.py": 3,
    "test_mla_sparse_blackwell_acceptance.py": 3,
    "test_mla_sparse_gfx950_acceptance.py": 2,
    "test_mla_decode_blackwell_acceptance.py": 3,
    "test_verify_sparse_decode_blackwell.py": 2,
    "test_mha_forms.py": 2,
    "test_mha_cross_product.py": 2,
    "test_audit_decode.py": 2,
    "test_schedule_fuzz.py": 2,
    "test_decode_edits.py": 2,
    "test_mla_decode_numbers.py": 2,
    "test_prefill_sequences.py": 2,
    "test_prefill_masks.py": 2,
    "test_tiles_are_knobs.py": 2,
    "test_mla_prefill_pages.py": 2,
    "test_mla_prefill_persistent.py": 2,
}

LEFT_OUT = pytest.StashKey[int]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what the sampled files are not asked for: a case that is skipped costs a
    millisecond in each of three processes."""
    if "MLAGEN_ACCEPTANCE" in os.environ:
        return
    left = _beyond(items, SAMPLED, "case", lambda item: item.nodeid.partition("[")[0])
    if not config.option.keyword and not any("::" in name for name in config.args):
        kept = [item for item in items if item not in left]
        left |= _beyond(kept, TURNS, "turn", lambda item: str(item.path))
    if left:
        items[:] = [item for item in items if item not in left]
        config.hook.pytest_deselected(items=[*left])
    config.stash[LEFT_OUT] = len(left)


def _beyond(
    items: Sequence[pytest.Item],
    rates: Mapping[str, int],
    draw: str,
    group: Callable[[pytest.Item], str],
) -> set[pytest.Item]:
    """What is left out where of each group one of so many is run, at least one, `rates` by the
    file's name, or the file's and the test's: others when the sources have changed, and others of
    another `draw`."""
    salt = f"{sources('mlagen', 'schedules', 'templates')} {draw}"
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        if _rate(item, rates):
            groups.setdefault(group(item), []).append(item)
    left: set[pytest.Item] = set()
    for cases in groups.values():
        one_of = _rate(cases[0], rates)
        drawn = sorted(cases, key=lambda case: sha256(f"{salt} {case.nodeid}".encode()).digest())
        left.update(drawn[math.ceil(len(cases) / one_of) :])
    return left


def _rate(item: pytest.Item, rates: Mapping[str, int]) -> int:
    """Of how many cases one is run; 0: all are."""
    name, test = item.path.name, getattr(item, "originalname", "")
    return rates.get(f"{name}::{test}", rates.get(name, 0))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """What a process of xdist left out, each of them the same, is told by the one that started
    it."""
    node.config.stash[LEFT_OUT] = getattr(node, "workeroutput", {}).get("left out", 0)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left out"] = session.config.stash.get(LEFT_OUT, 0)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if count := config.stash.get(LEFT_OUT, 0):
        terminalreporter.write_line(
            f"{count} cases of sampled files were left out; MLAGEN_ACCEPTANCE=1 runs all of them"
        )


@pytest.fixture(scope="session")
def make_artifact() -> Callable[..., Artifact]:
    """Makes the artifact of the small kernel; keyword arguments replace manifest fields."""
    return make


@pytest.fixture(scope="session")
def add_artifact() -> Artifact:
    """The artifact of the small kernel."""
    return make()
