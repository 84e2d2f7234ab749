"""Large bodies: what compressed rows and sparse factors find is what envelopes find."""

from __future__ import annotations

import numpy as np
import pytest

import loki_core as lk
from loki_core.linear_solvers import sparse_bodies
from tests.unit.test_geometry_object import sheet, solver_of

PATH = "Sheet"


@pytest.fixture(params=["envelopes", "rows"])
def both(request, monkeypatch):
    """The same test with every body small, and with every body large."""
    monkeypatch.setattr(sparse_bodies, "LARGE", np.inf if request.param == "envelopes" else 0.0)
    return request.param


def as_all(monkeypatch, make):
    """Envelopes, sparse factors, and multigrid where it can be."""
    found = []
    for limit, dear in ((np.inf, np.inf), (0.0, np.inf), (0.0, 0.0)):
        monkeypatch.setattr(sparse_bodies, "LARGE", limit)
        monkeypatch.setattr(sparse_bodies, "DEAR", dear)
        solver = make()
        solver.run(4)
        sparse = solver.solids.linear.sparse
        assert (sparse is not None) == (limit == 0.0)
        if sparse is not None:
            assert sparse.is_dear == (dear == 0.0 and are_of_points(solver))
        found.append({path: solver.read(path, "position") for path in solver.objects})
    return found


def are_of_points(solver):
    """Strands have angles, too."""
    return all(one.is_of_points for one in solver.solids.solids)


def compare(monkeypatch, make, *, tolerance=1e-9):
    small, *others = as_all(monkeypatch, make)
    for large in others:
        for path, places in small.items():
            np.testing.assert_allclose(large[path], places, rtol=0, atol=tolerance, err_msg=path)


@pytest.mark.parametrize("newton", [1, 20])
@pytest.mark.parametrize("mode", ["stiffness", "compliance"])
def test_a_sheet_moves_alike(monkeypatch, newton, mode):
    def make():
        mesh = sheet(6, pinned=(0, 5))
        mesh.positions[:, 1] += 0.02 * np.sin(9.0 * mesh.positions[:, 0])
        return solver_of(
            mesh,
            lk.DistanceConstraint(
                stiffness=100.0, damping_time=0.01, friction=1e-3, friction_stiffness=1.0, mode=mode
            ),
            lk.GravityForce(), lk.FluidDragForce(law="linear", coefficient=1e-4),
            substeps=2, newton_iterations=newton,
        )  # fmt: skip

    # Rows do without second derivatives of compression: the same solution, in more iterations.
    compare(monkeypatch, make, tolerance=1e-9 if newton == 1 else 1e-5)


def test_strands_may_be_large_too(monkeypatch):
    """Choice goes by size: nothing about it knows a kind of Object."""

    def make():
        strands = np.array([[0.0, 0, 0], [0, 0, 0.1]])[:, None] + 0.02 * np.arange(9)[
            :, None
        ] * np.array([1.0, 0.1, 0.0])
        setup = lk.SolverSetup(
            "strands", lk.CurvesObject(name=PATH, input="hair", radius=1e-3),
            lk.StretchingConstraint(young_modulus=1e7),
            lk.BendingConstraint(young_modulus=1e7, shear_modulus=3e6), lk.GravityForce(),
            substeps=2,
        )  # fmt: skip
        return lk.Solver(setup, {"hair": lk.Curves.from_strands(strands)})

    compare(monkeypatch, make, tolerance=1e-8)


def test_sheets_that_hold_on_to_each_other_and_to_strands(monkeypatch):
    def make():
        below = sheet(5)
        below.positions[:, 1] -= 0.02
        hair = np.array([[0.1, 0.0, 0.1], [0.3, 0.0, 0.3]])[:, None] + 0.02 * np.arange(6)[
            :, None
        ] * np.array([0.0, 1.0, 0.1])
        setup = lk.SolverSetup(
            "held", lk.GeometryObject(name=PATH, input="mesh"),
            lk.GeometryObject(name="Below", input="below"),
            lk.CurvesObject(name="Hair", input="hair", root="free", radius=1e-3),
            lk.DistanceConstraint(stiffness=50.0), lk.BendingConstraint(young_modulus=1e7),
            lk.AttachmentConstraint(source="Below", target=PATH, stiffness=20.0, flexibility=0.5),
            lk.AttachmentConstraint(source="Hair", target=PATH, range=0.03, stiffness=20.0),
            lk.GravityForce(), substeps=2,
        )  # fmt: skip
        inputs = {"mesh": sheet(5, pinned=(0, 4)), "below": below,
                  "hair": lk.Curves.from_strands(hair)}  # fmt: skip
        return lk.Solver(setup, inputs)

    compare(monkeypatch, make, tolerance=1e-8)


def test_contacts_and_friction_act_alike(monkeypatch):
    floor = lk.Surface.from_faces(
        np.array([[-1.0, -0.004, -1], [-1, -0.004, 1], [1, -0.004, 1], [1, -0.004, -1]]),
        np.array([[0, 1, 2], [0, 2, 3]]),
    )

    def make():
        mesh = sheet(5)
        mesh.set_channel("point", "velocity", np.tile([0.5, 0.0, 0.2], (25, 1)))
        setup = lk.SolverSetup(
            "floor", lk.GeometryObject(name=PATH, input="mesh", thickness=2e-3),
            lk.DistanceConstraint(stiffness=100.0), lk.GravityForce(),
            lk.Collider(input="floor", mode="shell", thickness=0.01),
            lk.CollisionConstraint(friction_coefficient=0.3), substeps=2,
        )  # fmt: skip
        return lk.Solver(setup, {"mesh": mesh, "floor": floor})

    compare(monkeypatch, make, tolerance=1e-7)


def test_a_hanging_sheet_does_not_sag(both):
    mesh = sheet(6, pinned=range(6))
    mesh.positions[:] = mesh.positions[:, [1, 0, 2]] * [1.0, -1.0, 1.0]
    solver = solver_of(
        mesh, lk.DistanceConstraint(stiffness=30.0), lk.GravityForce(), lk.SagFreeStart(),
        geometry={"thickness": 1e-3}, substeps=2,
    )  # fmt: skip
    solver.run(6)
    np.testing.assert_allclose(solver.read(PATH, "position"), mesh.positions, rtol=0, atol=1e-6)


def test_a_sheet_of_many_points_is_large_and_threads_change_no_bit():
    from loki_core.kernels.jit import set_thread_count, thread_count

    found, before = [], thread_count()
    try:
        for threads in (1, 2):
            set_thread_count(threads)
            solver = solver_of(
                sheet(40, 1.0, pinned=(0, 39)), lk.DistanceConstraint(), lk.GravityForce(),
                substeps=3,
            )  # fmt: skip
            solver.run(2)
            assert solver.solids.linear.sparse is not None
            found.append(solver.read(PATH, "position"))
    finally:
        set_thread_count(before)
    np.testing.assert_array_equal(*found)
