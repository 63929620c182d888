"""Pipeline schedules: derived waits, the pipeline proof, and what it refuses."""

from dataclasses import dataclass

import pytest

from mlagen.codegen.expand import expand_loop
from mlagen.codegen.target import schedule_of
from mlagen.dsl import Access, Operation, RingTile, Value, bind, copy, record, schedule, tiles
from mlagen.dsl.signature import Signature, TmaMatrix, pack
from mlagen.errors import CapacityError, ProofError, ScheduleError
from mlagen.targets.nvidia.codegen.derive import derive
from mlagen.targets.nvidia.codegen.proof import prove_pipelines
from mlagen.targets.nvidia.codegen.runs import parts, section, straight
from mlagen.targets.nvidia.dsl import release
from mlagen.targets.nvidia.dsl.pipeline import PipelineSpace


@dataclass(frozen=True)
class Toy:
    """A problem of nothing but tiles."""

    slots: int = 2


class Steps:
    """Operations that move and multiply tiles of one pipeline."""

    def __init__(self, s: PipelineSpace, slots: int, rows: int = 64):
        self.producer = s.role("producer", warpgroups=1, registers=40, single=True)
        self.math = s.role("math", warpgroups=1, registers=200)
        tile = s.smem.tile("T", "t", rows=rows, row_bytes=128, slots=slots)
        self.feed = s.smem.pipeline("feed", tile, producer="producer", consumer="math", releases=4)
        s.named("c", ".f32", 32, "accumulator")
        s.signature = Signature(
            pack(("t", TmaMatrix("t", "bf16", 64, 64, rows), "read")), (("n", 1),), (256, 1, 1)
        )
        bind(self.feed, self.mover)

    def mover(self, kind, tile):
        access = Access(kind, RingTile("feed", tile))
        return Operation(kind, f"pipeline/{kind}.ptx.j2", tile, lambda at: {}, access=access)

    def mma(self, tile):
        return record(
            Operation("mma", "x", tile, lambda at: {}, uses=(Value("feed", tile),),
                      defines=(Value("c"),), asynchronous=True)
        )  # fmt: skip

    def look(self, tile):
        """Ordinary code that reads the accumulator."""
        return record(Operation("look", "x", tile, lambda at: {}, uses=(Value("c"),)))


def make(body, slots=2, rows=64):
    """The pipeline schedule whose math role does `body(steps, i)`."""

    @schedule(problem=Toy, target="sm_90a")
    def toy(problem, s):
        steps = Steps(s, slots, rows)
        for i in tiles(steps.producer):
            copy(steps.feed, i)
        for i in tiles(steps.math):
            body(steps, i)

    return schedule_of(toy, Toy(), {})


def loops(made):
    return [derive(made, stream) for stream in made.streams]


def released_later(steps, i):
    """The tile is released one iteration after its product was issued."""
    steps.mma(i)
    release(steps.feed, i - 1)


def test_waits_are_derived_before_first_use_and_before_the_copy():
    made = make(released_later)
    producer, math = loops(made)
    assert [op.name for op in producer.cluster.steps] == ["wait_empty", "copy"]
    assert [op.name for op in math.cluster.steps] == ["wait_full", "mma", "release"]


def test_group_waits_are_issued_minus_needed():
    """One product may fly while the one before it is released; the last must be done."""
    made = make(released_later)
    math = loops(made)[1]
    assert math.groups == {("loop", 2): 1, ("drain, i = N", 2): 0}
    assert math.final is None


def test_release_right_after_the_product_waits_for_it():
    def at_once(steps, i):
        steps.mma(i)
        release(steps.feed, i)

    math = loops(make(at_once))[1]
    assert math.groups[("loop", 2)] == 0


def test_ordinary_code_waits_for_the_accumulator():
    def looking(steps, i):
        steps.mma(i)
        steps.look(i)
        release(steps.feed, i)

    math = loops(make(looking))[1]
    assert math.groups == {("loop", 2): 0}


@pytest.mark.parametrize("slots", [2, 3, 4])
def test_a_sound_pipeline_is_proved(slots):
    made = make(released_later, slots)
    proof = prove_pipelines(made, loops(made))
    assert not proof.violations and proof.tiles >= slots + 2 and proof.checked > 20


def test_a_ring_too_shallow_for_its_release_is_a_deadlock():
    """Tile i + 1 must be full before tile i is released: one slot cannot hold both."""
    made = make(released_later, slots=1)
    (problem,) = prove_pipelines(made, loops(made)).violations
    assert "error[deadlock]" in problem and "role" in problem and "1 deep" in problem


def test_a_use_after_the_release_is_refused():
    def early(steps, i):
        steps.mma(i)
        release(steps.feed, i + 1)

    with pytest.raises(ProofError, match=r"released-early.*mma\(i\)"):
        loops(make(early))


def test_a_tile_that_is_never_released_is_refused():
    with pytest.raises(ScheduleError, match="releases it 0 times"):
        loops(make(lambda steps, i: steps.mma(i)))


def test_releases_of_two_tiles_in_one_phase_are_found():
    """A warp that releases a tile before it waits for it may do so before others have released the
    slot's last one: the arrivals would empty the slot too early."""

    def body(steps, i):
        steps.mma(i)
        release(steps.feed, i)

    made = make(body)
    producer, math = loops(made)
    wait, _, released = math.cluster.steps
    object.__setattr__(math.cluster, "steps", (released, wait))
    object.__setattr__(math, "groups", {})
    (problem,) = prove_pipelines(made, [producer, math]).violations
    assert "releases feed(2) without knowing that all have released the tile before" in problem


def test_the_proof_does_not_trust_the_derivation():
    """Take a derived wait away: the proof, which follows the final sequence, says so."""
    made = make(released_later)
    for which, gone, message in ((0, "wait_empty", "may still"),
                                 (1, "wait_full", "before it is full")):  # fmt: skip
        broken = loops(made)
        cluster = broken[which].cluster
        kept = tuple(op for op in cluster.steps if op.name != gone)
        object.__setattr__(cluster, "steps", kept)
        shifted = {(s, i - 1): w for (s, i), w in broken[which].groups.items()}
        object.__setattr__(broken[which], "groups", shifted)
        assert any(message in text for text in prove_pipelines(made, broken).violations)
    broken = loops(made)
    broken[1].groups.clear()
    texts = prove_pipelines(made, broken).violations
    assert any("still read by a matrix group" in text for text in texts)


def test_sections_name_where_an_iteration_is_printed():
    math = loops(make(released_later))[1]
    assert [section(math, i, 3) for i in range(4)] == [
        "prologue, i = 0", "loop", "loop", "drain, i = N",
    ]  # fmt: skip


def test_a_run_leaves_the_loop_when_its_last_full_tiles_are_done():
    """Two tiles a pass, the next two looked at meanwhile: the pass that lacks some of these is the
    loop's until its own tiles are done, and the rest of it a drain's."""

    @schedule(problem=Toy, target="sm_90a")
    def toy(problem, s):
        steps = Steps(s, 4)
        for i in tiles(steps.producer):
            copy(steps.feed, i)
        for i in tiles(steps.math, step=2):
            steps.mma(i)
            steps.look(i + 2)
            release(steps.feed, i)
            steps.mma(i + 1)
            release(steps.feed, i + 1)
            steps.look(i + 3)

    made = schedule_of(toy, Toy(), {})
    math = loops(made)[1]

    def printed(n):
        return [
            (where, " ".join(str(op) for op in operations if op.name in ("mma", "look")))
            for instance in expand_loop([math.cluster], math.edge, n)
            for where, operations in parts(math, instance, n)
        ]

    before = ("prologue, i = -2", "look(i+2) look(i+3)")
    own, rest = "mma(i) look(i+2) mma(i+1)", "look(i+3)"
    assert straight(math, 1) and not straight(math, 2)
    assert printed(2) == [before, ("loop", "mma(i) mma(i+1)")]
    assert printed(4) == [before, ("loop", f"{own} {rest}"), ("loop", "mma(i) mma(i+1)")]
    # What is left of the first pass is nothing, but its end.
    drains = [("drain, i = N-3", ""), ("drain, i = N-1", "mma(i)")]
    assert printed(3) == [before, ("loop", own), *drains]
    assert printed(5) == [before, ("loop", f"{own} {rest}"), *printed(3)[1:]]
    assert not prove_pipelines(made, loops(made)).violations


def test_capacities_and_shapes_are_refused():
    with pytest.raises(CapacityError, match="SMEM ran out"):
        make(released_later, slots=64)
    with pytest.raises(ScheduleError, match="in eights"):
        make(released_later, rows=60)
    with pytest.raises(ScheduleError, match="setmaxnreg takes 24 to 256"):

        @schedule(problem=Toy, target="sm_90a")
        def greedy(problem, s):
            s.role("math", warpgroups=1, registers=300)

        schedule_of(greedy, Toy(), {})


def test_gfx950_words_are_refused_here():
    with pytest.raises(ScheduleError, match="role"):

        @schedule(problem=Toy, target="sm_90a")
        def sectioned(problem, s):
            Steps(s, 2)
            for _ in tiles("everyone"):
                pass

        schedule_of(sectioned, Toy(), {})
