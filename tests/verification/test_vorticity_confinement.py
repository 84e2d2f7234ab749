"""Vorticity Confinement: the formula, what it must leave alone, and what it strengthens.

Run as a script it saves what all Operators on volumes make on any number of ranks.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from loki_core.data.voxels import Voxels
from loki_core.errors import SetupError
from loki_core.operators.vorticity_confinement import EVEN, VorticityConfinementOperator
from tests.ranks import results_on_ranks
from tests.skeleton.volume_scene import VolumeScene

pytestmark = pytest.mark.compiles

RHO = 1.204


def shifted(values, step, axis):
    """values[i + step] along an axis of a periodic box."""
    return np.roll(values, -step, axis)


def reference(velocity, h, strength):
    """The force [3, x, y, z] on a dense periodic grid, by whole-array shifts."""
    edges, cells = [], []
    for a in range(3):
        b, c = (a + 1) % 3, (a + 2) % 3
        along = velocity[c] - shifted(velocity[c], -1, b)
        edges.append((along - (velocity[b] - shifted(velocity[b], -1, c))) / h)
        beside = edges[a] + shifted(edges[a], 1, b)
        cells.append(0.25 * (beside + shifted(beside, 1, c)))
    size = np.sqrt(sum(w * w for w in cells))
    central = [0.5 * (shifted(size, 1, a) - shifted(size, -1, a)) for a in range(3)]
    force = []
    for a in range(3):
        b, c = (a + 1) % 3, (a + 2) % 3

        def face(values, axis=a):
            return 0.5 * (values + shifted(values, -1, axis))

        gradient = [face(central[b]), face(central[c]), size - shifted(size, -1, a)]
        length = np.sqrt(sum(g * g for g in gradient) + (EVEN * face(size)) ** 2)
        turned = gradient[0] * face(cells[c]) - gradient[1] * face(cells[b])
        force.append(strength * h * RHO * h**3 * turned / length)
    return np.stack(force)


def test_every_face_has_the_force_of_the_formula_across_buckets():
    one = VolumeScene(VorticityConfinementOperator(strength=0.7), size=(2, 3, 2))
    velocity = np.random.default_rng(4).standard_normal(one.dense("velocity").shape)
    one.fill("velocity", velocity)
    expected = reference(velocity, one.h, 0.7)
    np.testing.assert_allclose(
        one.forces(), expected, rtol=1e-9, atol=1e-13 * np.abs(expected).max()
    )


@pytest.mark.parametrize("sides", ["periodic", "open", "wall"])
def test_uniform_flow_is_left_alone_beside_walls_too(sides):
    one = VolumeScene(VorticityConfinementOperator(strength=1.0), sides=sides)
    one.fill_velocity(lambda x: np.stack([np.full_like(x[0], v) for v in (1.0, -2.0, 0.5)]))
    assert not np.any(one.forces())


def test_a_wall_inside_a_bucket_makes_no_vorticity():
    upper = (1.75, 1.75, 1.75)  # 14 of 16 voxels
    one = VolumeScene(VorticityConfinementOperator(strength=1.0), sides="wall", domain_upper=upper)
    one.fill_velocity(lambda x: np.where(x < 1.75, 1.0, 0.0) * np.ones((3, 1, 1, 1)))
    assert not np.any(one.forces())


@pytest.mark.parametrize(("precision", "bound"), [("double", 1e-9), ("single", 5e-3)])
def test_rigid_rotation_has_no_preferred_direction(precision, bound):
    one = VolumeScene(
        VorticityConfinementOperator(strength=1.0), size=(3, 3, 2), sides="open",
        precision=precision,
    )  # fmt: skip
    one.fill_velocity(lambda x: np.stack([-5.0 * x[1], 5.0 * x[0], 0.0 * x[2]]))
    inner = one.forces()[:, 3:-3, 3:-3, 3:-3]
    full = one.h * 10.0 * RHO * one.h**3  # epsilon h |omega| m
    assert np.abs(inner).max() < bound * full


def gaussian_vortex(one, width=0.25):
    centre = 0.5 * 8 * one.h * np.array(one.size)

    def swirl(x):
        dx, dy = x[0] - centre[0], x[1] - centre[1]
        speed = np.exp(-(dx * dx + dy * dy) / (2.0 * width**2))
        return np.stack([-dy * speed, dx * speed, 0.0 * x[2]])

    one.fill_velocity(swirl)
    return swirl


def test_the_core_of_a_vortex_is_strengthened_and_momentum_does_not_drift():
    one = VolumeScene(VorticityConfinementOperator(strength=1.0), size=(4, 4, 1), h=0.0625)
    swirl = gaussian_vortex(one)
    force = one.forces()
    flow = np.stack([swirl(one.centres(a))[a] for a in range(3)])
    inside = np.hypot(*(one.centres()[:2] - 1.0)) < 0.2
    assert np.sum((force * flow)[:, inside]) > 0.0  # it does work on the flow
    curl = force[1] - shifted(force[1], -1, 0) - force[0] + shifted(force[0], -1, 1)
    assert curl[16, 16].min() > 0.0  # vorticity of the core grows, along its own direction
    bound = one.h * 2.0 * RHO * one.h**3  # |omega| of the core is 2
    assert np.abs(force).max() <= bound
    # The vortex is symmetric, so what is pushed on one side is pushed back on the other.
    assert np.abs(force.sum(axis=(1, 2, 3))).max() < 1e-12 * np.abs(force).sum()


def test_a_mask_multiplies_the_strength():
    half = np.zeros((16, 16, 16))
    half[:, 8:] = 0.5
    mask = Voxels.from_dense(half, (0.0, 0.0, 0.0), 0.125, name="mask")
    masked = VolumeScene(VorticityConfinementOperator(mask="where"), inputs={"where": mask})
    plain = VolumeScene(VorticityConfinementOperator())
    velocity = np.random.default_rng(6).standard_normal(plain.dense("velocity").shape)
    for one in (masked, plain):
        one.fill("velocity", velocity)
    expected = plain.forces()[:, 1:-1, 9:-1, 1:-1]
    np.testing.assert_allclose(masked.forces()[:, 1:-1, 9:-1, 1:-1], 0.5 * expected, rtol=1e-6)
    assert not np.any(masked.forces()[:, :, 1:7])


def test_bad_input_is_refused():
    with pytest.raises(SetupError, match=r"strength = -1 1/s is below the minimum"):
        VorticityConfinementOperator(strength=-1.0)


# -- ranks --------------------------------------------------------------------------------------


def all_operators():
    """Forces and channels after every Action on volumes ran once, on this job's ranks."""
    from loki_core.forces.buoyancy import BuoyancyForce
    from loki_core.operators.dissipation import DissipationOperator
    from loki_core.operators.guide import GuideOperator
    from loki_core.operators.turbulence import TurbulenceForce
    from loki_core.operators.volume_expression import VolumeExpression
    from loki_core.pipeline.stages import Stage

    x = (np.arange(32) + 0.5) * 0.125
    guide = np.stack(np.meshgrid(np.sin(x), np.cos(2.0 * x), x * x, indexing="ij"))
    stream = Voxels.from_dense(guide, (0.0, 0.0, 0.0), 0.125, name="velocity")
    one = VolumeScene(
        BuoyancyForce(),
        VorticityConfinementOperator(),
        TurbulenceForce(masked_by="density"),
        GuideOperator(field="flow", strength=0.5),
        DissipationOperator(channels=("density",)),
        VolumeExpression(
            expression="density = density + rand(1)\nvelocity += 0.1 * curlnoise(position)"
        ),
        size=(3, 2, 3),
        sides="open",
        precision="single",
        inputs={"flow": stream},
    )
    rng = np.random.default_rng(8)
    one.fill("velocity", rng.standard_normal(one.dense("velocity").shape))
    one.fill("temperature", 300.0 + 50.0 * rng.random(one.dense("temperature").shape))
    one.run(Stage.PRE_SOLVE)
    force = one.forces(time=0.3)
    drag = one.dense("drag")
    one.run(Stage.APPLY_FLUID_FORCES)
    one.run(Stage.SOLVE_SECONDARIES)
    return {
        "force": force,
        "drag": drag,
        "velocity": one.dense("velocity"),
        "density": one.dense("density"),
    }


@pytest.mark.mpi
def test_operators_give_the_same_bits_on_any_number_of_ranks(tmp_path):
    # Kernels that a process has just compiled were seen to round otherwise than from the cache.
    results_on_ranks(Path(__file__), 2, tmp_path)
    alone = results_on_ranks(Path(__file__), 1, tmp_path)
    assert np.abs(alone["force"]).max() > 0.0
    assert np.unique(alone["density"]).size > 1000
    for ranks in (2, 3):
        shared = results_on_ranks(Path(__file__), ranks, tmp_path)
        for name, values in alone.items():
            np.testing.assert_array_equal(shared[name], values, err_msg=f"{name}, {ranks} ranks")


if __name__ == "__main__":
    from loki_core.parallel.comm import one_fails_all_fail, world

    with one_fails_all_fail(world()):
        found = all_operators()
        if world().rank == 0:
            np.savez(sys.argv[1], **found)
