"""Viscosity Material: a symmetric system, momentum, decay, and flows without shear."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from loki_core.constraints.viscosity import ViscosityMaterial
from loki_core.errors import DivergenceError, SetupError
from loki_core.objects.colliders.collider import Collider
from loki_core.operators.domain_boundary import DomainBoundary
from loki_core.pipeline.stages import Stage
from tests.skeleton.floating_body import announce
from tests.skeleton.volume_scene import VolumeScene
from tests.unit.test_pressure import H, ball, stir

pytestmark = pytest.mark.compiles

DENSITY = 1.204
DT = 0.01


def scene(kappa, *behaviors, **options):
    """Air in which dt mu / (rho h^2) is kappa."""
    viscosity = kappa * DENSITY * H * H / DT
    return VolumeScene(
        ViscosityMaterial(viscosity=viscosity, tolerance=1e-12), *behaviors, **options
    )


def solve(one):
    one.run(Stage.SOLVE_VISCOSITY, dt=DT)
    return one.solver.actions["ViscosityMaterial"][0]


def matrix_of(action):
    indptr, indices, data = action._solve.system.csr()
    size = len(indptr) - 1
    return csr_matrix((data, indices, indptr), shape=(size, size))


@pytest.mark.parametrize("sides", ["periodic", "wall", "open"])
@pytest.mark.parametrize("with_solid", [False, True])
def test_the_system_is_symmetric_and_positive(sides, with_solid):
    options = {"size": (1, 1, 2), "sides": sides}
    behaviors = []
    if with_solid:
        behaviors = [Collider(name="ball", input="ball")]
        options["inputs"] = {"ball": ball((0.5, 0.5, 0.9), 0.3)}
    one = scene(10.0, *behaviors, **options)
    stir(one)
    matrix = matrix_of(solve(one))
    difference = abs(matrix - matrix.T)
    assert difference.max() <= 1e-6 * abs(matrix).max()
    used = matrix.diagonal() > 0.0
    assert used.sum() > 1000
    rng = np.random.default_rng(1)
    for _ in range(5):
        x = np.where(used, rng.normal(size=len(used)), 0.0)
        # I plus a stress that only takes energy away
        assert x @ (matrix @ x) >= (1.0 - 1e-6) * (x @ x)


def test_momentum_is_kept_in_a_periodic_box():
    one = scene(7.0)
    stir(one)
    before = one.dense("velocity").sum(axis=(1, 2, 3))
    energy = np.sum(one.dense("velocity") ** 2)
    solve(one)
    np.testing.assert_allclose(one.dense("velocity").sum(axis=(1, 2, 3)), before, atol=1e-8)
    assert np.sum(one.dense("velocity") ** 2) < 0.5 * energy


@pytest.mark.parametrize(("along", "across"), [(0, 1), (1, 2), (2, 0), (0, 2)])
def test_a_shear_wave_decays_by_its_discrete_symbol(along, across):
    """Backward Euler on u_a = sin(k x_b): u / (1 + K (2 sin(k h / 2))^2)."""
    one = scene(3.0)
    k = 2.0 * np.pi / 2.0

    def wave(x):
        u = np.zeros_like(x)
        u[along] = np.sin(k * x[across])
        return u

    one.fill_velocity(wave)
    start = one.dense("velocity")
    solve(one)
    factor = 1.0 / (1.0 + 3.0 * (2.0 * np.sin(0.5 * k * H)) ** 2)
    np.testing.assert_allclose(one.dense("velocity"), factor * start, atol=1e-10)


def test_a_compression_wave_feels_twice_the_stress():
    """Normal stress is 2 mu du/dx: the full stress form, not a Laplacian."""
    one = scene(3.0)
    k = 2.0 * np.pi / 2.0
    one.fill_velocity(lambda x: np.stack((np.sin(k * x[0]), 0 * x[0], 0 * x[0])))
    start = one.dense("velocity")
    solve(one)
    factor = 1.0 / (1.0 + 6.0 * (2.0 * np.sin(0.5 * k * H)) ** 2)
    np.testing.assert_allclose(one.dense("velocity"), factor * start, atol=1e-10)


@pytest.mark.parametrize("kappa", [0.5, 50.0])
def test_rigid_motion_has_no_stress(kappa):
    one = scene(kappa, sides="open")
    spin = np.array([0.3, -1.0, 0.7])

    def rigid(x):
        turn = np.cross(spin, np.moveaxis(x - 1.0, 0, -1))
        return np.moveaxis(turn, -1, 0) + np.reshape([1.0, 2.0, -3.0], (3, 1, 1, 1))

    one.fill_velocity(rigid)
    start = one.dense("velocity")
    solve(one)
    np.testing.assert_allclose(one.dense("velocity"), start, atol=1e-9)


def test_no_viscosity_changes_nothing():
    one = VolumeScene(ViscosityMaterial(viscosity=0.0))
    stir(one)
    start = one.dense("velocity")
    solve(one)
    np.testing.assert_array_equal(one.dense("velocity"), start)


def test_extreme_viscosity_stops_gas_between_walls_that_hold_it():
    one = scene(1.0e7, sides="wall")
    stir(one)
    solve(one)
    assert np.abs(one.dense("velocity")).max() < 1e-4


def test_gas_takes_the_velocity_of_a_wall_that_moves_along_itself():
    belt = DomainBoundary(sides=("all",), condition="no_slip", velocity=(0.0, 0.0, 2.0))
    one = scene(
        1.0e7,
        belt,
        sides="wall",
        boundary_lower=("wall", "wall", "periodic"),
        boundary_upper=("wall", "wall", "periodic"),
    )
    solve(one)
    u = one.dense("velocity")
    np.testing.assert_allclose(u[2], 2.0, rtol=1e-4)
    np.testing.assert_allclose(u[:2], 0.0, atol=1e-6)


def test_a_viscosity_below_zero_is_refused():
    with pytest.raises(SetupError, match="minimum"):
        ViscosityMaterial(viscosity=-1.0)


def test_faces_that_drag_holds_are_not_dragged_along():
    # (1 + dt D / m) (u - u*) = viscous change: by the definition, with the matrix of no drag.
    free = scene(4.0)
    stir(free)
    start = free.dense("velocity").copy()
    matrix = matrix_of(solve(free))
    held = scene(4.0)
    held.item.need_drag()
    announce(held.solver)
    stir(held)
    np.testing.assert_array_equal(held.dense("velocity"), start)
    drag = held.volume.local("drag")
    drag[:] = 0.0
    drag[:, :, :4] = 5000.0 * held.item.face_mass / DT
    before = held.volume.local("velocity").astype(np.float64).reshape(-1).copy()
    solve(held)
    after = held.volume.local("velocity").reshape(-1)
    share = DT * drag.reshape(-1) / held.item.face_mass
    stress = matrix @ after - after
    np.testing.assert_allclose((1.0 + share) * (after - before), -stress, atol=1e-5)
    moved = np.abs(after - before)
    assert moved[share > 0.0].mean() < 0.1 * moved[share == 0.0].mean()


def test_drag_that_is_no_drag_is_refused():
    one = scene(1.0)
    one.item.need_drag()
    announce(one.solver)
    stir(one)
    one.volume.local("drag")[:] = np.nan
    with pytest.raises(DivergenceError, match="drag"):
        solve(one)
