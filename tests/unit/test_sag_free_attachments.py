"""Sag-free starts of strands that Attachments hold: nothing moves, whatever holds it."""

from __future__ import annotations

import numpy as np
import pytest

import loki_core as lk
from tests.unit.attachment_scenes import pairs_stream

pytestmark = pytest.mark.compiles

STRANDS, COUNT, LENGTH = 5, 10, 0.06
STILL = 1e-8  # of the length: forces are balanced to 1e-10 of the load
FIRM = {"orientation_stiffness": (0.0, 1e-4, 1e-4)}  # against spin about the held edge


def groom(seed, shift=(0.0, 0.0, 0.0)):
    """Curls that leave the plane y = 0 sideways and down, their first two points attached."""
    rng = np.random.default_rng(seed)
    t = np.linspace(0.0, 1.0, COUNT)[:, None]
    strands = []
    for strand in range(STRANDS):
        along = np.array([0.4 * rng.normal(), -0.6, 1.0])
        along /= np.linalg.norm(along)
        turn = 15.0 * t + rng.uniform(0.0, 6.0)
        curl = 0.004 * t * np.concatenate((np.cos(turn), np.sin(turn), 0.0 * t), axis=1)
        strands.append([0.03 * strand, -0.004, 0.0] + LENGTH * t * along + curl + shift)
    curves = lk.Curves.from_strands(np.array(strands))
    attached = np.zeros((STRANDS, COUNT), np.uint8)
    attached[:, :2] = 1
    curves.set_channel("point", "attached", attached.reshape(-1))
    return curves


def scalp(frame=1, moves_from=1000):
    """A square that begins to rise in a later frame."""
    corners = np.array([[-0.3, 0, -0.3], [-0.3, 0, 0.3], [0.3, 0, 0.3], [0.3, 0, -0.3]], float)
    corners[:, 1] += 0.001 * max(0, frame - moves_from)
    return lk.Surface.from_faces(corners, [[0, 1, 2], [0, 2, 3]])


def rods(name, root):
    return lk.Group(
        name,
        lk.CurvesObject(input=name, root=root, radius=1e-4),
        lk.StretchingConstraint(),
        lk.BendingConstraint(damping_time=0.01),
    )


def solver_of(*parts, newton=1, **inputs):
    setup = lk.SolverSetup("held", *parts, lk.GravityForce(), newton_iterations=newton)
    return lk.Solver(setup, inputs)


def furthest(solver, frames, **grooms):
    """Largest distance from the start in these frames, over the length of a strand."""
    found = 0.0
    for _ in range(frames):
        solver.run(1)
        for name, curves in grooms.items():
            moved = solver.read(f"{name}/CurvesObject", "position") - curves.positions
            found = max(found, float(np.abs(moved).max()) / LENGTH)
    return found


@pytest.mark.parametrize("newton", [1, 4])
def test_strands_on_a_mesh_stand_still_until_it_moves(newton):
    hair = groom(0)
    held = lk.AttachmentConstraint(source="hair", target="scalp", stiffness=50.0, **FIRM)
    inputs = {"hair": hair, "scalp": lambda frame: scalp(frame, 24)}
    plain = solver_of(rods("hair", "free"), held, newton=newton, **inputs)
    assert furthest(plain, 12, hair=hair) > 1e-3
    solver = solver_of(rods("hair", "free"), held, lk.SagFreeStart(), newton=newton, **inputs)
    assert furthest(solver, 23, hair=hair) < STILL
    before, after = solver.actions["SagFreeStart"][0].largest_force
    assert after < 1e-8 * before
    assert furthest(solver, 12, hair=hair) > 0.1  # and goes with it, as it is not frozen


@pytest.mark.parametrize(
    ("mode", "flexibility"), [("stiffness", 0.0), ("stiffness", 1.0), ("compliance", 0.5)]
)
def test_strands_that_hold_each_other_stand_still(mode, flexibility):
    """Two Objects: one is clamped and carries the other by pairs alone; ties at the tips."""
    hair, guides = groom(0), groom(1, shift=(0.0, 0.01, 0.005))
    tips = COUNT * np.arange(STRANDS) + COUNT - 2
    parts = (
        rods("guides", "clamped"),
        rods("hair", "free"),
        lk.AttachmentConstraint(
            name="Held", source="hair", target="guides", stiffness=50.0, mode=mode, **FIRM
        ),
        lk.AttachmentConstraint(
            name="Ties",
            source="hair",
            target="hair",
            emission="explicit",
            pairs="ties",
            stiffness=2.0,
            flexibility=flexibility,
        ),
    )
    inputs = {"hair": hair, "guides": guides, "ties": pairs_stream(tips[:-1], tips[1:] - 1)}
    if mode == "stiffness" and flexibility == 0.0:
        assert furthest(solver_of(*parts, **inputs), 12, hair=hair, guides=guides) > 1e-3
    solver = solver_of(*parts, lk.SagFreeStart(), **inputs)
    assert furthest(solver, 24, hair=hair, guides=guides) < STILL


def test_what_is_free_to_spin_is_left_alone_and_the_rest_is_carried():
    """Without orientation stiffness a curl turns about its held edge; no force may grow."""
    hair = groom(0)
    solver = solver_of(
        rods("hair", "free"),
        lk.AttachmentConstraint(source="hair", target="scalp", stiffness=50.0),
        lk.SagFreeStart(),
        hair=hair,
        scalp=scalp(),
    )
    solver.run(1)
    before, after = solver.actions["SagFreeStart"][0].largest_force
    assert after < before


def test_a_load_from_the_start_is_part_of_a_state():
    hair = groom(0)
    held = lk.AttachmentConstraint(source="hair", target="scalp", stiffness=50.0, **FIRM)
    parts, inputs = (rods("hair", "free"), held, lk.SagFreeStart()), {"hair": hair}
    solver = solver_of(*parts, scalp=scalp(), **inputs)
    solver.run(2)
    again = solver_of(*parts, scalp=scalp(), **inputs)
    again.restore(solver.state())
    assert furthest(again, 6, hair=hair) < STILL


def test_the_names_of_attachments_choose_what_carries():
    hair = groom(0)
    held = lk.AttachmentConstraint(source="hair", target="scalp", stiffness=50.0, **FIRM)
    chosen = lk.SagFreeStart(constraints=("BendingConstraint",), stabilize=False)
    solver = solver_of(rods("hair", "free"), held, chosen, hair=hair, scalp=scalp())
    assert furthest(solver, 12, hair=hair) > 1e-4
    everything = ("StretchingConstraint", "BendingConstraint", "AttachmentConstraint")
    chosen = lk.SagFreeStart(constraints=everything)
    solver = solver_of(rods("hair", "free"), held, chosen, hair=hair, scalp=scalp())
    assert furthest(solver, 12, hair=hair) < STILL
