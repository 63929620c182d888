"""Every field of every shipped problem tells its meaning and its legal values: true ones."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

from mlagen.app.catalogue import describe
from mlagen.codegen.schedules import available
from mlagen.errors import ConfigError
from mlagen.problem.fields import example_of, problem_of, told, told_of

TYPES = {info.problem_type.__name__: info.problem_type for info in available()}
FIELDS = [(kind, field) for kind in TYPES.values() for field in dataclasses.fields(kind)]
NAMES = [f"{kind.__name__}.{field.name}" for kind, field in FIELDS]

# What some values need beside them.
BESIDE: dict[tuple[str, str, Any], dict[str, Any]] = {
    ("MlaDecodeConfig", "dtype", "fp8_rope_aware"): {"cache_dtype": "fp8_rope_aware"},
    ("MlaSparseDecodeConfig", "rows", "model1"): {"d_qk": 512},
    ("MlaSparsePrefillConfig", "rows", "model1"): {"d_qk": 512},
    ("MlaSparseDecodeConfig", "rows", "v41"): {"d_qk": 512},
    ("MlaSparsePrefillConfig", "rows", "v41"): {"d_qk": 512},
    ("MlaSparsePrefillConfig", "compute", "fp8"): {"dtype": "fp8_e4m3", "rows": "e4m3"},
    ("MlaSparseDecodeConfig", "compute", "fp8"): {"dtype": "fp8_e4m3", "rows": "e4m3"},
    ("MlaDecodeConfig", "compute", "fp8"): {"dtype": "fp8_e4m3", "cache_dtype": "fp8_e4m3"},
}


def made(kind: type[Any], **fields: Any) -> Any:
    """The type's example with other fields, as texts."""
    given = {**example_of(kind).to_fields(), **fields}
    return problem_of(kind, {name: str(value) for name, value in given.items()})


def test_all_shipped_problems_are_here() -> None:
    assert len(TYPES) == 7


@pytest.mark.parametrize(("kind", "field"), FIELDS, ids=NAMES)
def test_a_field_tells_its_meaning_and_its_legal_values(
    kind: type[Any], field: dataclasses.Field[Any]
) -> None:
    meaning, legal = told_of(field)
    assert len(meaning) > 3 and legal


@pytest.mark.parametrize(("kind", "field"), FIELDS, ids=NAMES)
def test_legal_values_are_legal_and_others_are_not(
    kind: type[Any], field: dataclasses.Field[Any]
) -> None:
    legal, name = field.metadata["legal"], field.name
    if isinstance(legal, tuple):
        for value in legal:
            built = made(kind, **{name: value, **BESIDE.get((kind.__name__, name, value), {})})
            assert str(getattr(built, name)).lower() == str(value)
        other = "no such value" if isinstance(legal[0], str) else max(legal) + 1
        with pytest.raises(ConfigError):
            made(kind, **{name: other})
    elif name.endswith("heads"):
        low, high = map(int, re.match(r"(\d+) \.\. (\d+)\b", legal).groups())  # type: ignore[union-attr]
        prefill = kind.__name__ in ("MhaProblem", "MlaProblem")  # whose two limits are one
        names = ("num_heads", "num_kv_heads") if prefill else (name,)
        made(kind, **dict.fromkeys(names, high))
        for value in (low - 1, high + 1):
            with pytest.raises(ConfigError):
                made(kind, **dict.fromkeys(names, value))
    elif name == "page_size":
        for value in [int(word) for word in re.findall(r"\d+\b(?! GiB)", legal)]:
            assert made(kind, page_size=value).page_size == value
    elif name == "mask":
        for text in legal.partition(";")[0].split(", "):
            for window in ("1", "512"):
                mask = text.replace("W", window)
                assert str(made(kind, mask=mask).mask) == mask
    else:
        assert name in {"q_len", "cache_depth", "rope_cache_offset"}


@pytest.mark.parametrize(
    ("fields", "fits"),
    [
        ({"q_len": 8}, True),
        ({"q_len": 9}, False),
        ({"q_len": 0}, False),
    ],
)
def test_new_tokens_of_decoding(fields: dict[str, int], fits: bool) -> None:
    _judge(TYPES["MlaDecodeConfig"], fields, fits, "q_len", "1 .. 8")


@pytest.mark.parametrize(
    ("fields", "fits"),
    [
        ({"cache_depth": 576}, True),
        ({"cache_depth": 584}, False),
        ({"kv_form": "latent", "cache_depth": 192, "rope_cache_offset": 128}, True),
        ({"kv_form": "latent", "cache_depth": 184, "rope_cache_offset": 128}, False),
        ({"kv_form": "latent", "cache_depth": 200, "rope_cache_offset": 136}, True),
        ({"kv_form": "latent", "cache_depth": 196, "rope_cache_offset": 128}, False),
    ],
)
def test_rows_of_a_latent_cache(fields: dict[str, Any], fits: bool) -> None:
    _judge(TYPES["MlaProblem"], fields, fits, "cache_depth", "latent from 192 on, by 16 bytes")
    _judge(TYPES["MlaProblem"], fields, fits, "rope_cache_offset", "128 .. cache_depth - 64")


def _judge(kind: type[Any], fields: dict[str, Any], fits: bool, name: str, words: str) -> None:
    assert words in next(f for f in dataclasses.fields(kind) if f.name == name).metadata["legal"]
    if fits:
        made(kind, **fields)
        return
    with pytest.raises(ConfigError):
        made(kind, **fields)


def test_the_listing_has_both() -> None:
    fields = {field.name: field for field in describe("mla_decode_sm90").fields}
    assert fields["page_size"].meaning == "rows a page"
    assert fields["page_size"].legal == "1, 16, 32 or a multiple of 64"


def test_a_field_that_tells_nothing_is_listed_without() -> None:
    @dataclasses.dataclass(frozen=True)
    class Own:
        size: int
        width: int = told(4, meaning="of a row", legal=(1, 2, 4))

    plain, own = dataclasses.fields(Own)
    assert told_of(plain) == ("", "")
    assert told_of(own) == ("of a row", "1, 2 or 4")
