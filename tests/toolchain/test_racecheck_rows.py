"""`tests/gpu/racecheck_exchanges.py` tells what orders a store and a load of two roles, and says so
no more when that is taken out of the text. The hazards are made up: every such pair of a kernel."""

from __future__ import annotations

import importlib.metadata
import re
import sys
from pathlib import Path

import pytest

from mlagen.app.build import build_artifact
from mlagen.errors import MlagenError
from mlagen.targets.nvidia.ptxas import assemble_ptx, find_ptxas

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "gpu"))

from racecheck_exchanges import Listing, disassembled

try:
    find_ptxas("sm_90a")
except MlagenError:
    pytest.skip("no ptxas (pip install 'mlagen[nvidia]')", allow_module_level=True)


@pytest.fixture(scope="module")
def made():
    return build_artifact("mla_sparse_decode_sm90", {"num_heads": 64, "rows": "v32"}, {})


@pytest.fixture(autouse=True)
def nvdisasm(monkeypatch):
    """The wheel's, which lies beside its ptxas."""
    try:
        files = importlib.metadata.distribution("nvidia-cuda-nvdisasm").files or ()
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("no nvdisasm (pip install 'mlagen[dev]')")
    tool = next(Path(str(file.locate())) for file in files if file.name == "nvdisasm")
    monkeypatch.setenv("PATH", str(tool.parent), prepend=":")


def rows(artifact, text, folder):
    """(operation of the store, of the load, what orders them) of all pairs of a store and a load of
    two roles at the same constant address."""
    code = assemble_ptx(text, file_name="k.ptx", source_lines={}, schedule_file="k.py").cubin
    cubin = folder / "k.cubin"
    cubin.write_bytes(code)
    listing = Listing.of(disassembled(cubin), text, artifact.manifest)
    places: dict[tuple[str, int], dict[str, int]] = {}  # of each operation one access
    for index, (address, instruction, _) in enumerate(listing.lines):
        kind, place = listing.access(index)
        if kind and re.search(r"\b(LDS|STS)\b", instruction):
            places.setdefault((kind, place), {})[listing.operation(index)] = address
    found = set()
    for (kind, place), stores in places.items():
        for store, first in stores.items() if kind == "st" else ():
            for load, second in places.get(("ld", place), {}).items():
                if store.partition(":")[0] != load.partition(":")[0]:
                    order = listing.hazard(second, first)[3]
                    found.add((store.partition("(")[0], load.partition("(")[0], order))
    return found


def test_every_pair_is_ordered(made, tmp_path):
    found = rows(made, made.text, tmp_path)
    assert ("left: running_maximum", "right: take_left_maximum", "named barrier 6") in found
    assert ("left: store_sum", "right: finish", "named barrier 8") in found
    grains = [order for store, _, order in found if store == "feeder: store_grains"]
    assert grains and all(order.startswith("mbarrier of cache") for order in grains)
    assert not [row for row in found if row[2] == "not seen"]


@pytest.mark.parametrize(
    ("pattern", "instead", "store"),
    [
        (r"bar\.(sync|arrive) 6, 256;", "// 6", "left: running_maximum"),
        (r"(@%first mbarrier\.arrive\.shared::cta\.b64 _, \[%bar\];)", r"// \1",
         "feeder: store_grains"),
    ],
)  # fmt: skip
def test_what_no_longer_orders_them_is_not_seen(made, tmp_path, pattern, instead, store):
    text, count = re.subn(pattern, instead, made.text)
    assert count
    found = rows(made, text, tmp_path)
    assert "not seen" in {order for name, _, order in found if name == store}
