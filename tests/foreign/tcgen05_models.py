"""Two public models of the sums of tcgen05.mma, taken from a folder of the user's.

`MLAGEN_TCGEN05_MODELS` names it. It holds the packages `tcgen05_model` (sf-tensor/tcgen05 at
8fce64d) and `mmasim` (microsoft/MMA-Sim at c785138, which needs torch). Nothing of them is in this
repository.
"""

import importlib
import os
import sys

import numpy as np
import pytest

VARIABLE = "MLAGEN_TCGEN05_MODELS"
TORCH = {"f16": "float16", "bf16": "bfloat16", "tf32": "float32", "f32": "float32",
         "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}  # fmt: skip
TYPES = {1: np.uint8, 2: np.uint16, 4: np.uint32}


def package(name):
    """A module of the folder, or a skip that says what is missing."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        pytest.skip(f"{VARIABLE} names no folder with models of tcgen05")
    if folder not in sys.path:
        sys.path.append(folder)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        pytest.skip(f"{VARIABLE}: {name} cannot be loaded from {folder}: {error}")


def container(kind, words):
    """Words of a format as tcgen05_model takes them: bf16 is the upper half."""
    return words << np.uint32(16) if kind == "bf16" else words


class RawWindow:
    """sf-tensor/tcgen05: one sum at a time, whole numbers of Python."""

    name = "sf-tensor/tcgen05"

    def __init__(self):
        self.model = package("tcgen05_model")

    def sums(self, kinds, a, b, c, saturate=False):
        """D's words, as `tensor_sums.sums` gives them."""
        model = self.model.make_model(kinds.a, kinds.b, d_type=kinds.c, saturate=saturate)
        case = self.model.DotProduct
        found = np.zeros(c.shape, np.uint32)
        for tile, (rows, columns) in enumerate(
            zip(container(kinds.a, a).tolist(), container(kinds.b, b).tolist(), strict=True)
        ):
            rows, columns = [tuple(x) for x in rows], [tuple(x) for x in columns]
            totals = c[tile].tolist()
            found[tile] = [
                [model.eval(case(row, column, totals[i][j])) for j, column in enumerate(columns)]
                for i, row in enumerate(rows)
            ]
        return found

    def frozen(self):
        """The words of a B200 that it stores and that are neither scaled nor sparse: name, formats
        of A, B and D, whether saturated, A, B, C, D."""
        kept = package("tcgen05_model.validation")
        vectors = (*kept._unscaled_vectors(), *kept._integer_vectors(), *kept._edge_vectors())
        for name, model, case, wanted in vectors:
            if case.scale_a is not None:
                continue
            if hasattr(model, "a_type"):
                kinds = model.a_type, model.b_type, "s32"
            elif hasattr(model, "a_format"):
                kinds = model.a_format, model.b_format, model.d_type
            else:
                kind = model.input_format
                kind = kind[3:] if kind.startswith("fp") else kind
                kinds = kind, kind, "f32"
            down = 16 if kinds[0] == "bf16" else 0
            a, b = ([word >> down for word in words] for words in (case.a, case.b))
            yield name, kinds, getattr(model, "saturate", False), a, b, case.c, wanted


class MmaSim:
    """microsoft/MMA-Sim: a tile at a time, numbers of torch."""

    name = "microsoft/MMA-Sim"

    def __init__(self):
        self.model = package("mmasim.simulator.nv_ptx")
        self.torch = pytest.importorskip("torch")

    def tensor(self, kind, words):
        """Words as a tensor of their format."""
        kind = getattr(self.torch, TORCH[kind])
        narrow = words.astype(TYPES[kind.itemsize])
        signed = narrow.view(narrow.dtype.str.replace("u", "i"))
        return self.torch.from_numpy(signed.copy()).view(kind)

    def sums(self, kinds, a, b, c, saturate=False):
        """D's words, as `tensor_sums.sums` gives them."""
        assert not saturate
        model = self.model.tcgen05mma("Blackwell", f"m64n8k{kinds.k}.{kinds.c}.{kinds.a}.{kinds.b}")
        found = np.zeros(c.shape, np.uint32)
        for tile in range(len(a)):
            given = [self.tensor(kinds.a, a[tile]), self.tensor(kinds.b, b[tile]).T]
            made = model(*given, self.tensor(kinds.c, c[tile]))
            bits = self.torch.int16 if kinds.c == "f16" else self.torch.int32
            unsigned = np.uint16 if kinds.c == "f16" else np.uint32
            found[tile] = made.view(bits).numpy().view(unsigned)
        return found
