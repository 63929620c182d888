"""The kernel descriptor of what is built has the resources that the manifest states."""

import struct

import pytest

from mlagen.app.build import build_artifact
from mlagen.binary import load_code_object
from mlagen.errors import TemplateError
from mlagen.targets.gfx950.codegen import agree_descriptor, build


@pytest.fixture(scope="module")
def made():
    """An artifact, and the schedule that it was built from."""
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "check_descriptor", lambda code, schedule: seen.append(schedule))
        artifact = build_artifact("mha_prefill_v2", {"num_heads": "8", "num_kv_heads": "2"}, {})
    return artifact, seen[0]


def test_it_is(made):
    artifact, schedule = made
    agree_descriptor.check_descriptor(artifact.code, schedule)
    (kernel,) = load_code_object(artifact.code).kernels.values()
    resources = artifact.manifest.resources
    assert kernel.descriptor.lds_bytes == resources.lds_bytes
    assert kernel.descriptor.kernarg_bytes == artifact.manifest.kernarg_bytes
    assert (
        kernel.descriptor.vgprs >= resources.vgprs + resources.agprs > kernel.descriptor.vgprs - 16
    )
    assert kernel.descriptor.sgprs >= resources.sgprs


@pytest.mark.parametrize(
    ("place", "change", "said"),
    [
        (0, 256, "LDS bytes"), (4, 16, "scratch bytes"), (8, 8, "kernarg bytes"),
        (48, 1, "vector registers"), (48, 2 << 6, "scalar registers"),
        (44, 1, "first accumulation register"), (56, 1 << 10, "lanes of a wave"),
    ],
)  # fmt: skip
def test_another_resource_is_refused(made, place, change, said):
    artifact, schedule = made
    descriptor = agree_descriptor.bytes_of(artifact.code, agree_descriptor.OBJECT, "descriptor")
    start = artifact.code.index(descriptor)
    turned = bytearray(artifact.code)
    (word,) = struct.unpack_from("<I", turned, start + place)
    struct.pack_into("<I", turned, start + place, word ^ change)
    with pytest.raises(TemplateError, match=f"descriptor has [0-9]+ {said}"):
        agree_descriptor.check_descriptor(bytes(turned), schedule)
