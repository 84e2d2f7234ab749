"""Compliance mode: multipliers carry what Constraints do, of any stiffness, rigid ones included."""

from __future__ import annotations

import numpy as np
import pytest

import loki_core as lk
from loki_core.errors import SetupError
from loki_core.linear_solvers.body_system import BodySystem
from loki_core.linear_solvers.choice import choose_solver, solve_with_fallback
from loki_core.linear_solvers.direct import Direct
from loki_core.linear_solvers.multifrontal import SparseFactors
from loki_core.linear_solvers.multiplier_system import MultiplierBlock, MultiplierSystem
from loki_core.linear_solvers.quasi_definite import QuasiDefinite
from loki_core.linear_solvers.schur_complement import SchurComplement
from tests.unit.body_systems import dense, random_values, rod_first, shape

pytestmark = pytest.mark.compiles

GRAVITY = 9.81


def two_strands(points=9, apart=0.02):
    """Strands along x, side by side, the second a little bent."""
    one = np.zeros((points, 3))
    one[:, 0] = np.linspace(0.0, 0.2, points)
    two = one + np.array([0.0, 0.0, apart])
    two[points // 2 :, 1] += 0.003
    return lk.Curves(np.concatenate((one, two)), [0, points, 2 * points])


def pairs_of(points=9):
    pairs = lk.Points(np.zeros((2, 3)))
    pairs.set_channel("point", "source_id", np.array([points - 1, points // 2]))
    pairs.set_channel("point", "target_id", np.array([2 * points - 1, points + points // 2]))
    return pairs


def run(*behaviors, frames=6, root="clamped", newton_iterations=1, gravity=True):
    forces = [lk.GravityForce()] if gravity else []
    setup = lk.SolverSetup(
        "scene",
        lk.CurvesObject(name="S", input="strands", root=root, radius=1e-3),
        *forces,
        *behaviors,
        substeps=4,
        newton_iterations=newton_iterations,
    )
    solver = lk.Solver(setup, {"strands": two_strands(), "pairs": pairs_of()})
    solver.run(frames)
    return solver


def elastic(mode="stiffness", **both):
    return (
        lk.StretchingConstraint(young_modulus=1e7, mode=mode, **both),
        lk.BendingConstraint(young_modulus=1e7, shear_modulus=3e6, mode=mode, **both),
    )


def tie(**given):
    return lk.AttachmentConstraint(
        source="S", target="S", emission="explicit", pairs="pairs", **given
    )


# -- the same motion as in stiffness mode ------------------------------------------------------


@pytest.mark.parametrize("damping", [{}, {"damping_time": 0.02}])
def test_constraints_of_bodies_move_as_in_stiffness_mode(damping):
    soft, hard = (run(*elastic(mode, **damping)) for mode in ("stiffness", "compliance"))
    assert hard.solids.report.solver == "schur_complement"
    a, b = (one.read("S", "position") for one in (soft, hard))
    assert np.abs(a - two_strands().positions).max() > 0.01
    np.testing.assert_allclose(b, a, rtol=0, atol=1e-11)


@pytest.mark.parametrize(
    "response",
    [
        {"stiffness": 100.0, "flexibility": 1.0},
        {"stiffness": 50.0, "flexibility": 0.3, "orientation_stiffness": (1e-3, 0.0, 1e-3)},
        {"stiffness": 20.0, "damping_time": 0.05, "friction": 1e-3, "friction_stiffness": 5.0},
    ],
)
def test_attachments_move_as_in_stiffness_mode(response):
    soft, hard = (
        run(*elastic(), tie(mode=mode, **response)) for mode in ("stiffness", "compliance")
    )
    assert hard.solids.report.solver == "quasi_definite"
    a, b = (one.read("S", "position") for one in (soft, hard))
    np.testing.assert_allclose(b, a, rtol=0, atol=1e-8)


def test_friction_alone_needs_no_stiffness():
    """Dahl friction of a Constraint whose k is 0: what is carried is its slope."""
    rub = {"stiffness": 0.0, "friction": 1e-3, "friction_stiffness": 2.0}
    soft, hard = (
        run(lk.DistanceConstraint(mode=mode, **rub), root="pinned", frames=3)
        for mode in ("stiffness", "compliance")
    )
    np.testing.assert_allclose(
        hard.read("S", "position"), soft.read("S", "position"), rtol=0, atol=1e-10
    )


# -- rigid Constraints -------------------------------------------------------------------------


def edge_lengths(solver):
    position = solver.read("S", "position").reshape(2, -1, 3)
    return np.linalg.norm(np.diff(position, axis=1), axis=2)


def test_rigid_edges_keep_their_length():
    """A chain that swings; the error of one Newton iteration is of second order in the step."""
    start = edge_lengths(run(frames=0))
    rigid = lk.DistanceConstraint(mode="compliance", compliance=0.0)
    once = run(rigid, root="pinned", frames=12)
    often = run(rigid, root="pinned", frames=12, newton_iterations=20)
    assert np.abs(edge_lengths(once) / start - 1.0).max() < 1e-3
    assert np.abs(edge_lengths(often) / start - 1.0).max() < 1e-8
    assert often.read("S", "position")[8, 1] < -0.1


def test_multipliers_are_the_forces():
    """A chain at rest that hangs: each edge carries the weight of what is below it."""
    points = 6
    place = np.zeros((points, 3))
    place[:, 1] = -0.05 * np.arange(points)
    setup = lk.SolverSetup(
        "hangs",
        lk.CurvesObject(name="S", input="strands", root="pinned", radius=1e-3),
        lk.DistanceConstraint(mode="compliance", compliance=0.0),
        lk.GravityForce(),
    )
    solver = lk.Solver(setup, {"strands": lk.Curves(place, [0, points])})
    solver.run(3)
    (constraint,) = solver.solids.constraints
    mass = solver.read("S", "mass")
    below = np.cumsum(mass[::-1])[::-1][1:]
    np.testing.assert_allclose(constraint.soft.tension[:, 0], below * GRAVITY, rtol=1e-7)
    np.testing.assert_allclose(solver.read("S", "position"), place, rtol=0, atol=1e-10)


def test_a_rigid_tie_conserves_momentum_and_holds():
    rigid = tie(mode="compliance", compliance=0.0, flexibility=1.0)
    solver = run(*elastic(), rigid, root="free", gravity=False, frames=0)
    velocity = np.random.default_rng(3).standard_normal((18, 3))
    solver.write("S", "velocity", velocity)
    mass = solver.read("S", "mass")[:, None]
    before = (mass * velocity).sum(axis=0)
    at = solver.read("S", "position")
    apart = np.linalg.norm(at[[8, 4]] - at[[17, 13]], axis=1)
    solver.run(4)
    after = (mass * solver.read("S", "velocity")).sum(axis=0)
    np.testing.assert_allclose(after, before, rtol=0, atol=1e-9 * np.abs(mass * velocity).sum())
    at = solver.read("S", "position")
    now = np.linalg.norm(at[[8, 4]] - at[[17, 13]], axis=1)
    assert np.abs(now / apart - 1.0).max() < 0.2  # one iteration at 1 m/s and 1/96 s
    velocity = solver.read("S", "velocity")
    d = at[[8, 4]] - at[[17, 13]]
    closing = np.einsum("na,na->n", velocity[[8, 4]] - velocity[[17, 13]], d / now[:, None])
    assert np.abs(closing).max() < 1.0  # free ends would pass each other at several m/s


def test_a_rigid_tie_with_newton_is_exact():
    rigid = tie(mode="compliance", compliance=0.0, flexibility=1.0)
    solver = run(*elastic(), rigid, newton_iterations=20)
    at, start = solver.read("S", "position"), two_strands().positions
    now, then = (np.linalg.norm(x[[8, 4]] - x[[17, 13]], axis=1) for x in (at, start))
    np.testing.assert_allclose(now, then, rtol=1e-9)
    assert not solver.warnings


def test_what_is_held_twice_is_held():
    """Two rigid Constraints on the same edges share the load; neither is singular."""
    rigid = [
        lk.DistanceConstraint(name=name, mode="compliance", compliance=0.0) for name in ("A", "B")
    ]
    solver = run(*rigid, root="pinned", newton_iterations=10)
    alone = run(rigid[0], root="pinned", newton_iterations=10)
    np.testing.assert_allclose(
        solver.read("S", "position"), alone.read("S", "position"), rtol=0, atol=1e-7
    )


def test_rigid_elements_of_prescribed_points_carry_nothing():
    solver = run(lk.DistanceConstraint(mode="compliance", compliance=0.0))  # clamped root edges
    (constraint,) = solver.solids.constraints
    assert np.all(constraint.soft.multiplier[[0, 8]] == 0.0)
    assert np.all(np.isfinite(solver.read("S", "position")))


def test_points_follow_host_geometry_rigidly():
    anchor = lambda frame: lk.Points(np.array([[0.2, 0.03 + 0.002 * frame, 0.0]]))  # noqa: E731
    setup = lk.SolverSetup(
        "led",
        lk.CurvesObject(name="S", input="strands", radius=1e-3),
        *elastic(),
        lk.AttachmentConstraint(
            source="S", target="anchor", emission="closest", range=0.033, mode="compliance",
            compliance=0.0,
        ),
    )  # fmt: skip
    solver = lk.Solver(setup, {"strands": two_strands(), "anchor": anchor})
    start = solver.read("S", "position")[8]
    solver.run(5)
    moved = solver.read("S", "position")[8] - start
    np.testing.assert_allclose(moved, [0.0, 0.010, 0.0], rtol=0, atol=1e-9)
    assert solver.solids.report.solver == "schur_complement"  # nothing joins bodies


def test_sag_free_start_knows_rigid_edges():
    rigid = lk.StretchingConstraint(mode="compliance", compliance=0.0)
    solver = run(rigid, elastic()[1], lk.SagFreeStart(), frames=24)
    moved = np.linalg.norm(solver.read("S", "position") - two_strands().positions, axis=1)
    assert moved.max() < 0.01 * 0.2


def test_a_restored_run_continues_bit_for_bit():
    rigid = lk.StretchingConstraint(mode="compliance", compliance=0.0, damping_time=0.01)
    parts = (rigid, elastic()[1], tie(mode="compliance", compliance=0.0, flexibility=1.0))
    first = run(*parts, frames=2)
    state = first.state()
    first.run(2)
    second = run(*parts, frames=0)
    second.restore(state)
    second.run(2)
    for name in ("position", "velocity"):
        np.testing.assert_array_equal(second.read("S", name), first.read("S", name))


def test_a_compliance_needs_its_mode():
    with pytest.raises(SetupError, match=r'compliance = 0.1 has no effect.*mode = "compliance"'):
        lk.SolverSetup("x", lk.DistanceConstraint(compliance=0.1))


# -- the linear solvers ------------------------------------------------------------------------


def random_system(*, joins=False, compliance=(1e-12, 1.0)):
    """Two rods, with rows inside them or between them; and the same as a dense matrix."""
    parts = shape([rod_first(5), rod_first(4)])
    body_start, first, row, _ = parts
    values = random_values(*parts, 5)
    bodies = BodySystem(body_start, first, row, values)
    rng = np.random.default_rng(7)
    dofs = np.array([[0, 1, 2, 4], [8, 9, 10, 12], [19, 20, 23, 24]], np.int32)
    if joins:
        dofs[1, 3] = 21
    gradient = rng.standard_normal((3, 2, 4))
    give = rng.uniform(*compliance, (3, 2))
    give[2, 1] = np.inf
    runs = np.zeros(1, np.int64) if joins else np.array([0, 2, 3])
    block = MultiplierBlock(
        runs, dofs, gradient, give, np.zeros((3, 2)), np.ones(3, bool), np.arange(3)
    )
    system = MultiplierSystem(bodies, [block], np.zeros(bodies.size, np.uint8))
    size = bodies.size
    whole = np.zeros((size + 5, size + 5))
    whole[:size, :size] = dense(body_start, first, row, values)
    for number, (n, m) in enumerate([(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)]):
        whole[size + number, dofs[n]] = whole[dofs[n], size + number] = gradient[n, m]
        whole[size + number, size + number] = -give[n, m]
    return system, whole


@pytest.mark.parametrize("joins", [False, True])
def test_solvers_agree_with_a_dense_matrix(joins):
    system, whole = random_system(joins=joins)
    b = np.random.default_rng(2).standard_normal(system.size)
    expected = np.linalg.solve(whole, b)
    product = np.empty(system.size)
    system.multiply(expected, product)
    np.testing.assert_allclose(product, b, rtol=0, atol=1e-12)
    np.testing.assert_allclose(system.diagonal(), np.diag(whole), rtol=0, atol=1e-14)
    for kind in (Direct,) if joins else (Direct, SchurComplement):
        solver, x = kind(), np.zeros(system.size)
        solver.prepare(system)
        report = solver.solve(b, x, tol=1e-12)
        assert report.converged, report
        np.testing.assert_allclose(x, expected, rtol=0, atol=1e-9)


def test_the_choice():
    alone, joined = random_system()[0], random_system(joins=True)[0]
    assert choose_solver(alone).name == "schur_complement"
    assert choose_solver(joined).name == "quasi_definite"
    assert choose_solver(joined, "direct").name == choose_solver(alone, "direct").name == "direct"
    with pytest.raises(SetupError, match="cannot solve bodies with multipliers"):
        choose_solver(alone, "manybodies")
    with pytest.raises(SetupError, match="multipliers of single bodies"):
        SchurComplement().prepare(joined)
    with pytest.raises(SetupError, match="not a BodySystem"):
        SchurComplement().prepare(alone.bodies)


@pytest.mark.parametrize("joins", [False, True])
def test_factors_of_bodies_and_multipliers_together(joins):
    system, whole = random_system(joins=joins)
    solver = QuasiDefinite()
    for seed in range(2):  # the second time the fronts are known
        b, x = np.random.default_rng(seed).standard_normal(system.size), np.zeros(system.size)
        solver.prepare(system)
        report = solver.solve(b, x, tol=1e-12)
        assert report.converged and report.iterations <= 4
        expected = np.linalg.solve(whole, b)
        np.testing.assert_allclose(x, expected, rtol=0, atol=1e-9 * abs(expected).max())
    with pytest.raises(SetupError, match="not a BodySystem"):
        solver.prepare(system.bodies)


def test_a_rigid_sheet_of_many_points_is_solved_in_two_steps(monkeypatch):
    """A body with factors of its own: multipliers come right after what they hold."""
    made = []
    monkeypatch.setattr(
        "loki_core.linear_solvers.quasi_definite.SparseFactors",
        lambda *a, **k: made.append(SparseFactors(*a, **k)) or made[-1],
    )
    n = 45
    x, z = (one.reshape(-1) for one in np.meshgrid(*(np.linspace(0.0, 1.0, n),) * 2))
    row = np.arange(n * n).reshape(n, n)
    quads = np.stack((row[:-1, :-1], row[:-1, 1:], row[1:, 1:], row[1:, :-1]), -1).reshape(-1, 4)
    mesh = lk.Surface.from_faces(np.stack((x, 0.0 * x, z), axis=1), quads)
    mesh.set_channel("point", "pinned", ((x == 0.0) & ((z == 0.0) | (z == 1.0))).astype(float))
    setup = lk.SolverSetup(
        "sheet",
        lk.GeometryObject(name="S", input="mesh"),
        lk.MembraneConstraint(mode="compliance", compliance=0.0),
        lk.GravityForce(),
        frames_per_second=200,
    )
    solver = lk.Solver(setup, {"mesh": mesh})
    solver.run(3)
    report = solver.solids.report
    assert report.solver == "quasi_definite" and report.iterations == 2
    assert report.residual < 1e-14
    assert len(made) == 1 and made[0].replaced == 0  # one analysis for all steps
    # Neither stretch nor shear: strains of second order in the step are left.
    (action,) = solver.actions["MembraneConstraint"]
    action.evaluate_only(action.value)
    assert abs(action.value).max() < 2e-3
    assert abs(solver.read("S", "position")[:, 1]).max() > 1e-4  # it falls


def test_a_schur_complement_that_fails_falls_back():
    system, whole = random_system()
    b = np.ones(system.size)
    x = np.zeros(system.size)
    report = solve_with_fallback(system, b, x, tol=1e-10, max_iterations=1)
    assert report.solver == "direct" and "schur_complement" in report.fell_back_from
    np.testing.assert_allclose(x, np.linalg.solve(whole, b), rtol=0, atol=1e-8)
