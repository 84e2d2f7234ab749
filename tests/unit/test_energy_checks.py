"""What every Point Energy has to fulfil, whatever its psi is, on every kind of solid.

Energies are taken from the registry; one that is new needs an entry in SETUPS. Two more are defined
here: one by place, one by the deformation gradient of three directions. Then first and second
derivatives, what is made semi-definite, momentum, invariance, and the sum of the joint system are
tested as those of all others.
"""

from __future__ import annotations

import numpy as np
import pytest

import loki_core as lk
from loki_core.behavior import action_class_for, isolated_registry, register_action
from loki_core.constraints.elements import Elements
from loki_core.constraints.point_energy import PointEnergy
from loki_core.kernels.solids.point_energies import make_definite
from loki_core.objects.basics.capabilities import Edges, Triangles
from tests.unit.test_constraint_checks import (
    SOLIDS,
    STEP,
    dense,
    displace,
    kept,
    move_rigidly,
    rigid_motions,
    rotation,
    solver_with,
    strain,
)

pytestmark = pytest.mark.compiles

#: Behavior class -> function that gives a Behavior.
SETUPS = {"NeoHookeanConstraint": lambda: lk.NeoHookeanConstraint(shear_modulus=2.0e5)}


with isolated_registry():  # they are for this file alone

    class TubeConstraint(lk.Behavior, kind="constraint"):
        """Keeps edges from becoming long or short, by place: psi = k (|e|^2 / l^2 - 1)^2 / 4."""

        stiffness: float = lk.parameter(3.0, unit="J", minimum=0.0, doc="Energy.")

    class TubeAction(PointEnergy[Edges], behavior=TubeConstraint):
        """By place, on the edges of anything."""

        stiffness_reads = ("edges.rest_length",)

        def find_elements(self):
            solid = self.target
            ends = solid.edge_vertices
            dofs = solid.unknowns.joint("position", ends).reshape(len(ends), 6).astype(np.int32)
            return Elements(solid.edge_offsets, dofs, ends)

        def find_parameters(self):
            super().find_parameters()
            self.length = self.target.edges.local("rest_length").copy()

        def _square(self, at):
            along = at[:, 1] - at[:, 0]
            return along, np.einsum("ni,ni->n", along, along) / self.length**2 - 1.0

        def energy(self, at, psi):
            psi[:] = 0.25 * float(self.settings.stiffness) * self._square(at)[1] ** 2

        def derivatives(self, at, stress, tangent):
            along, square = self._square(at)
            k = float(self.settings.stiffness) / self.length**2
            stress[:, 1] = (k * square)[:, None] * along
            stress[:, 0] = -stress[:, 1]
            block = (2.0 * k / self.length**2)[:, None, None] * along[:, :, None] * along[:, None]
            block += (k * square)[:, None, None] * np.eye(3)
            tangent[:] = np.kron(np.array([[1.0, -1.0], [-1.0, 1.0]]), np.ones((3, 3))) * np.tile(
                block, (1, 2, 2)
            )

    class SheetConstraint(lk.Behavior, kind="constraint"):
        """Without contraction across, by deformation gradient: psi = k |F^T F - I|^2."""

        stiffness: float = lk.parameter(2.0e4, unit="Pa", minimum=0.0, doc="Stress over strain.")

    class SheetAction(PointEnergy[Triangles], behavior=SheetConstraint):
        """By deformation gradient, on triangles, painted thickness and all."""

        stiffness_reads = ("particles.rest_position",)

        def find_elements(self):
            return self.target.triangle_elements()

        def sizes(self):
            return self.target.triangle_volumes()

        def energy(self, at, psi):
            strain = np.einsum("nia,nib->nab", at, at) - np.eye(2)
            psi[:] = float(self.settings.stiffness) * np.sum(strain**2, axis=(1, 2))

        def derivatives(self, at, stress, tangent):
            k, one = 4.0 * float(self.settings.stiffness), np.eye(2)
            strain = np.einsum("nia,nib->nab", at, at) - one
            stress[:] = k * at @ strain
            found = np.einsum("ij,nab->niajb", np.eye(3), strain)
            found += np.einsum("nib,nja->niajb", at, at)
            found += np.einsum("ab,nic,njc->niajb", one, at, at)
            tangent[:] = k * found.reshape(len(at), 6, 6)


#: Name -> Behavior and Action of those defined here.
HERE = {
    "TubeConstraint": (TubeConstraint, TubeAction),
    "SheetConstraint": (SheetConstraint, SheetAction),
}


@pytest.fixture(autouse=True, scope="module")
def registered():
    with isolated_registry(*(behavior for behavior, _ in HERE.values())):
        for behavior, action in HERE.values():
            register_action(behavior, action)
        yield


def energies():
    """Point Energies of the registry."""
    found = []
    for name, behavior in lk.registry().items():
        try:
            action = action_class_for(behavior)
        except lk.SetupError:
            continue
        if isinstance(action, type) and issubclass(action, PointEnergy):
            found.append(name)
    return sorted(found)


def acts(name, solid):
    action = HERE[name][1] if name in HERE else action_class_for(lk.registry()[name])
    kind = action.capability
    return kind in SOLIDS[solid][0].__mro__ and not (kind is Triangles and solid == "wireframe")


EACH = pytest.mark.parametrize(
    ("name", "solid"),
    [(name, solid) for name in (*sorted(SETUPS), *HERE) for solid in SOLIDS if acts(name, solid)],
)


def test_every_energy_is_checked():
    missing = [name for name in energies() if name not in (*SETUPS, *HERE)]
    assert not missing, f"add an entry for {missing} to SETUPS of {__file__}"


@pytest.fixture(scope="module")
def made():
    """Solvers with a strained state, each made once."""
    known = {}

    def get(name, solid):
        if (name, solid) not in known:
            behavior = HERE[name][0]() if name in HERE else SETUPS[name]()
            solver = solver_with(solid, behavior)
            solver.run(1)
            strain(solver, amount=0.002)
            known[name, solid] = solver
        return known[name, solid]

    return get


def actions_of(solver):
    found = [one for some in solver.actions.values() for one in some]
    assert found and all(one.elements.count > 0 for one in found)
    return found


def forces(action):
    action.evaluate_all(STEP.dt)
    out = np.zeros(action.target.system.size)
    action.add_forces(np.zeros(len(out), np.uint8), out)
    return out


def perturbed(action, at, i, h):
    psi, moved = np.zeros(len(at)), at.copy()
    moved.reshape(len(at), -1)[:, i] += h
    action.energy(moved, psi)
    return moved, psi


@EACH
def test_derivatives_by_central_differences(made, name, solid):
    for action in actions_of(made(name, solid)):
        action._find(action.at)
        at = action.at
        n, q = len(at), at[0].size
        h = 1e-6 * max(1.0, np.abs(at).max()) if action.elements.gradients is not None else 1e-8
        stress, tangent = np.zeros_like(at), np.zeros((n, q, q))
        action.derivatives(at, stress, tangent)
        np.testing.assert_allclose(
            tangent, tangent.transpose(0, 2, 1), rtol=0, atol=1e-13 * abs(tangent).max()
        )
        for i in range(q):
            (right, up), (left, down) = (perturbed(action, at, i, s * h) for s in (1.0, -1.0))
            found = (up - down) / (2.0 * h)
            np.testing.assert_allclose(
                stress.reshape(n, q)[:, i], found, rtol=0, atol=1e-6 * abs(stress).max()
            )
            ends = [np.zeros_like(at), np.zeros_like(at)]
            for end, place in zip(ends, (right, left), strict=True):
                action.derivatives(place, end, np.zeros_like(tangent))
            change = (ends[0] - ends[1]).reshape(n, q) / (2.0 * h)
            np.testing.assert_allclose(
                tangent[:, i], change, rtol=0, atol=1e-6 * abs(tangent).max()
            )


@EACH
def test_force_is_the_negative_derivative_of_the_energy(made, name, solid):
    solver = made(name, solid)
    system, h = solver.solids, 1e-8
    for action in actions_of(solver):
        force, found = forces(action), np.zeros(system.size)
        for i in range(system.size):
            sides = []
            for sign in (1.0, -1.0):
                with kept(system):
                    displace(system, sign * h * np.eye(system.size)[i])
                    sides.append(action.energies(STEP.dt).sum())
            found[i] = (sides[1] - sides[0]) / (2.0 * h)
        own = action.target.unknowns.range
        assert abs(force[own]).max() > 0.0
        np.testing.assert_allclose(
            force[own], found[own], rtol=0, atol=2e-6 * abs(force[own]).max()
        )


@EACH
def test_inner_forces_have_no_momentum_and_rotations_no_energy(made, name, solid):
    solver = made(name, solid)
    for action in actions_of(solver):
        force = forces(action)
        for motion in rigid_motions(solver.solids):
            assert abs(motion @ force) <= 1e-10 * (abs(motion) @ abs(force))
        before = action.energies(STEP.dt)
        for angle in (0.3, 2.0, 3.1):
            with kept(solver.solids):
                turn = rotation((1.0, -2.0, 0.5), angle)
                move_rigidly(solver.solids, turn, (0.3, -0.1, 0.2))
                after = action.energies(STEP.dt)
            np.testing.assert_allclose(after, before, rtol=0, atol=1e-11 * before.max())


@EACH
def test_the_matrix_is_the_second_derivative_made_definite(made, name, solid):
    solver = made(name, solid)
    system, h = solver.solids, 1e-7
    for action in actions_of(solver):
        system.rhs[:], system.values[:] = 0.0, 0.0
        system.couplings.clear()
        action.accumulate(None, STEP)
        matrix, force = dense(system), system.rhs.copy()
        largest = abs(matrix).max()
        np.testing.assert_allclose(matrix, matrix.T, rtol=0, atol=1e-13 * largest)
        assert np.linalg.eigvalsh(matrix).min() >= -1e-12 * largest
        own = np.arange(system.size)[action.target.unknowns.range]
        np.testing.assert_allclose(
            force[own], forces(action)[own], rtol=0, atol=1e-13 * abs(force).max()
        )
        # With what it is short of it is the whole second derivative.
        action.derivatives(action.at, action.stress, action.tangent)
        whole = np.zeros_like(matrix)
        for dofs, block in zip(action.elements.dofs, action._chained(action.tangent), strict=True):
            np.add.at(whole, np.ix_(dofs, dofs), block)
        for i in own:
            sides = []
            for sign in (1.0, -1.0):
                with kept(system):
                    displace(system, sign * h * np.eye(system.size)[i])
                    sides.append(forces(action))
            change = (sides[1] - sides[0]) / (2.0 * h)
            np.testing.assert_allclose(whole[own, i], change[own], rtol=0, atol=1e-5 * largest)
        assert np.linalg.eigvalsh(matrix - whole).min() >= -1e-10 * largest


def test_semi_definite_parts_have_the_eigenvalues_that_are_not_negative():
    rng = np.random.default_rng(2)
    matrices = rng.standard_normal((40, 6, 6))
    matrices += matrices.transpose(0, 2, 1)
    matrices[:5] = matrices[:5] @ matrices[:5]  # definite ones stay as they are, to the last bit
    before = matrices.copy()
    make_definite(matrices)
    np.testing.assert_array_equal(matrices[:5], before[:5])
    values, vectors = np.linalg.eigh(before)
    expected = np.einsum("nia,na,nja->nij", vectors, np.maximum(values, 0.0), vectors)
    np.testing.assert_allclose(matrices, expected, rtol=0, atol=1e-13 * abs(before).max())


def test_an_author_who_forgets_something_is_told():
    with isolated_registry():

        class EmptyConstraint(lk.Behavior, kind="constraint"):
            """Nothing."""

        class EmptyAction(PointEnergy[Edges], behavior=EmptyConstraint):
            """Nothing."""

        with pytest.raises(lk.SetupError, match="must define find_elements"):
            solver_with("strands", EmptyConstraint()).run(1)
