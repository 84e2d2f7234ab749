"""Volume Object: start fields, states, restarts, extremes, and setups as documents."""

from __future__ import annotations

import json

import numpy as np
import pytest

from examples.smoke_around_sphere import example as smoke_around_sphere
from examples.smoke_plume import example as smoke_plume
from examples.wind_tunnel import example as wind_tunnel
from loki_core.constraints.pressure import PressureMaterial
from loki_core.constraints.viscosity import ViscosityMaterial
from loki_core.data.points import Points
from loki_core.data.voxels import Voxels
from loki_core.errors import DivergenceError, InputError, LokiError, SetupError
from loki_core.forces.buoyancy import BuoyancyForce
from loki_core.forces.fluid_drag import FluidDragForce
from loki_core.forces.force_density_field import ForceDensityField
from loki_core.forces.gravity import GravityForce
from loki_core.objects.colliders.collider import Collider
from loki_core.objects.gas.volume import VolumeObject
from loki_core.operators.dissipation import DissipationOperator
from loki_core.operators.volume_emission import VolumeEmission
from loki_core.operators.volume_expression import VolumeExpression
from loki_core.operators.vorticity_confinement import VorticityConfinementOperator
from loki_core.pipeline.solver import Solver
from loki_core.setup_document import read_setup, write_setup
from loki_core.solver_setup import Group, SolverSetup
from tests.unit.test_pressure import ball

pytestmark = pytest.mark.compiles

H = 0.125


def cube(lower, upper, corner=(0.0, 0.0, 0.0), voxel=H, **channels):
    """Voxels with `channels` inside a range of whole voxels."""
    fields = {}
    size = 8 * int(np.ceil(max(upper) / 8.0))
    for name, value in {"density": 1.0, **channels}.items():
        field = np.zeros((size,) * 3)
        field[tuple(slice(a, b) for a, b in zip(lower, upper, strict=True))] = value
        fields[name] = field
    return Voxels.from_dense(fields, corner, voxel)


def plume(*behaviors, corner=(0.0, 0.0, 0.0), air=None, **settings):
    """A small sparse plume and its source."""
    setup = SolverSetup(
        "plume",
        VolumeObject(name="air", voxel_size=H, padding=8, **(air or {})),
        PressureMaterial(),
        BuoyancyForce(),
        VolumeEmission(name="burner", source="source", temperature=500.0),
        *behaviors,
        **{
            "domain_lower": tuple(corner),
            "domain_upper": tuple(np.array(corner) + 3.0),
            "boundary_lower": ("open", "wall", "open"),
            **settings,
        },
    )
    return setup, {"source": cube((10, 2, 10), (14, 5, 14), corner)}


def everything(solver):
    """All that a frame writes, with the places of its Buckets."""
    item = solver.object("air")
    names = ("velocity", "pressure", *item.materials)
    values = {name: solver.read("air", name) for name in names}
    return {"coords": item.volume.buckets.all_coords.copy(), **values}


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, values in one.items():
        np.testing.assert_array_equal(values, other[name], err_msg=name)


# -- start fields -----------------------------------------------------------------------------


def test_an_input_is_sampled_at_cells_and_faces_and_its_own_channels_are_carried():
    centre = (np.arange(16) + 0.5) * H
    face = np.arange(16) * H
    x, y, _ = np.meshgrid(centre, centre, centre, indexing="ij")
    fields = {
        "density": 1.0 + x,
        "soot": 2.0 + y,
        "velocity": np.stack([np.broadcast_to(1.0 + face[:, None, None], x.shape), 0 * x, 0 * x]),
    }
    stream = Voxels.from_dense({"velocity": fields["velocity"]}, (0, 0, 0), H, location="face")
    for name in ("density", "soot"):
        cells = Voxels.from_dense(fields[name], (0, 0, 0), H)
        stream.set_channel(name, cells.channel("density").values)
    setup = SolverSetup(
        "still",
        VolumeObject(name="air", voxel_size=H, input="start", region="box"),
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=(2.0, 2.0, 2.0),
        precision="double",
    )
    solver = Solver(setup, {"start": stream})
    assert set(solver.object("air").materials) == {"density", "temperature", "soot"}
    written = solver.outputs()["air"]
    for name in fields:
        np.testing.assert_allclose(written.to_dense(name).squeeze(), fields[name], atol=1e-12)
    np.testing.assert_allclose(written.to_dense("temperature"), 293.15)


def test_a_users_channel_moves_with_the_gas_and_is_written():
    setup = SolverSetup(
        "wind",
        VolumeObject(
            name="air",
            voxel_size=H,
            input="start",
            velocity_scheme="none",
            channels=("soot", "age:3.5"),
            ambient_velocity=(3.0, 0.0, 0.0),
        ),
        frames_per_second=24.0,
    )
    start = cube((2, 2, 2), (6, 6, 6), density=0.0, soot=1.0)
    solver = Solver(setup, {"start": start})
    solver.run(4)
    written = solver.outputs()["air"]
    assert set(written.channels) >= {"soot", "age", "velocity"}
    soot = written.to_dense("soot")[0].astype(float)
    places = (written.first_voxel()[0] + np.arange(soot.shape[0]) + 0.5) * H
    centre = np.sum(soot.sum(axis=(1, 2)) * places) / soot.sum() + written.origin[0]
    np.testing.assert_allclose(centre, 4.0 * H + 3.0 * 4.0 / 24.0, atol=0.1 * H)
    np.testing.assert_allclose(written.to_dense("age"), 3.5)


@pytest.mark.parametrize(
    ("channels", "message"),
    [
        (("velocity",), "velocity"),
        (("not a name",), "not a name"),
        (("soot:much",), "soot:much"),
        (("soot:nan",), "soot:nan"),
    ],
)
def test_impossible_materials_are_refused(channels, message):
    with pytest.raises(SetupError, match=message):
        SolverSetup("bad", VolumeObject(channels=channels))


def test_a_stream_of_the_wrong_type_is_refused():
    setup = SolverSetup("bad", VolumeObject(name="air", input="start"))
    with pytest.raises(InputError, match="voxels are expected"):
        Solver(setup, {"start": Points(np.zeros((3, 3)))})


def test_a_voxel_size_that_does_not_divide_the_bucket_is_refused():
    setup = SolverSetup("bad", VolumeObject(name="air", voxel_size=0.3), bucket_size=1.0)
    with pytest.raises(SetupError, match=r"0\.3 m does not divide"):
        Solver(setup)


def test_a_whole_box_needs_a_box():
    with pytest.raises(LokiError, match="domain_lower"):
        Solver(SolverSetup("bad", VolumeObject(name="air", region="box")))


# -- states -----------------------------------------------------------------------------------


# "solid" needs ColliderField.version; "drag" needs hierarchies that do not remember older matrices.
@pytest.mark.parametrize("case", ["reflection", "solid", "drag"])
def test_a_resumed_run_is_the_same_bit_for_bit(case):
    extra = [VorticityConfinementOperator(strength=0.1), DissipationOperator(rate=0.2)]
    more = {}
    if case == "solid":
        extra.append(Collider(name="ball", input="ball"))
        more["ball"] = lambda frame: ball((1.5 + 0.02 * frame, 1.2, 1.5), 0.3)
    if case == "drag":  # the matrices change in every step
        extra.append(FluidDragForce(law="quadratic", velocity=(1.0, 0.0, 0.0)))
        extra.append(ViscosityMaterial(viscosity=0.3))
    setup, inputs = plume(*extra, air={"reflection": case == "reflection"})
    inputs |= more
    through = Solver(setup, inputs)
    through.run(2)
    state = through.state()
    through.run(3)
    resumed = Solver(setup, inputs)
    resumed.restore(state)
    resumed.run(3)
    assert_same(everything(through), everything(resumed))


def test_two_runs_are_the_same_bit_for_bit():
    ends = []
    for _ in range(2):
        solver = Solver(*plume())
        solver.run(3)
        ends.append(everything(solver))
    assert_same(*ends)


def test_the_number_of_threads_changes_nothing():
    from loki_core.kernels.jit import set_thread_count, thread_count

    before = thread_count()
    ends = []
    try:
        for threads in (1, 2):
            solver = Solver(*plume(), threads=threads)
            solver.run(3)
            ends.append(everything(solver))
    finally:
        set_thread_count(before)
    assert_same(*ends)


def test_a_bad_substep_is_undone_and_halved():
    # The speed that is called implausible is reached in a whole step, not in shorter ones.
    push = ForceDensityField(value=(0.0, 0.0, 100.0))
    drag = VolumeExpression(expression="velocity = velocity * 0.0", stage="SUBSTEP_BEGIN")
    setup = SolverSetup(
        "fast",
        VolumeObject(name="air", voxel_size=H, region="box", velocity_scheme="none"),
        push,
        drag,
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=(1.0, 1.0, 1.0),
        boundary_lower=("periodic",) * 3,
        boundary_upper=("periodic",) * 3,
        maximum_speed=3.0,
    )
    solver = Solver(setup)
    solver.run(1)
    assert solver.timeline.retried >= 1
    assert solver.frame == 2
    np.testing.assert_allclose(solver.read("air", "velocity")[:, 2], 100.0 / 48.0, rtol=1e-5)


def test_a_state_that_stays_bad_is_a_clear_error():
    setup = SolverSetup(
        "hopeless",
        VolumeObject(name="air", voxel_size=H, region="box"),
        ForceDensityField(value=(0.0, 1e12, 0.0)),
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=(1.0, 1.0, 1.0),
        boundary_lower=("periodic",) * 3,
        boundary_upper=("periodic",) * 3,
    )
    solver = Solver(setup)
    with pytest.raises(DivergenceError, match=r"hopeless/air.*velocity is .* m/s in the Bucket"):
        solver.run(1)
    assert solver.frame == 1
    assert not np.any(solver.read("air", "velocity"))


def test_a_divergence_is_rolled_back_with_solids_and_emission_in_place():
    setup, inputs = plume(maximum_speed=0.35, retries=0)
    solver = Solver(setup, inputs)
    with pytest.raises(DivergenceError, match="halvings"):
        solver.run(20)
    kept = everything(solver)
    frame = solver.frame
    assert frame > 2
    calm = Solver(*plume())
    calm.run(frame - 1)
    assert_same(kept, everything(calm))


# Needs ColliderField.version to change with every new field, also on the same Buckets.
def test_a_solid_that_moves_is_where_its_mesh_is():
    # Inside a Bucket too: its field is measured anew on the same Buckets.
    setup, inputs = plume(Collider(name="ball", input="ball"), air={"region": "box"})
    inputs["ball"] = lambda frame: ball((1.5 + 0.02 * frame, 1.2, 1.5), 0.3)
    solver = Solver(setup, inputs)
    for frame in range(2, 6):
        solver.run(1)
        solid = solver.object("air").voxels(("open_fraction",))
        closed = (1.0 - solid.to_dense("open_fraction")[1])[1:, 2:-2]  # lower faces along y
        weight = closed[:, 2:12].sum(axis=(1, 2))
        weight[[0, 1, -2, -1]] = 0.0
        places = solid.origin[0] + (solid.first_voxel()[0] + 1.5 + np.arange(len(weight))) * H
        centre = np.sum(weight * places) / np.sum(weight)
        np.testing.assert_allclose(centre, 1.5 + 0.02 * frame, atol=0.1 * 0.02)


# -- extremes ---------------------------------------------------------------------------------


def test_volumes_of_several_voxel_sizes_share_a_setup_and_a_collider():
    def gas(name, size):
        return Group(
            name,
            VolumeObject(name="air", voxel_size=size),
            PressureMaterial(),
            VolumeEmission(source="source", temperature=500.0),
        )

    setup = SolverSetup(
        "two",
        gas("fine", H),
        gas("coarse", 2.0 * H),
        BuoyancyForce(),
        Collider(name="ball", input="ball"),
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=(2.0, 2.0, 2.0),
    )
    inputs = {"source": cube((4, 4, 4), (12, 8, 12)), "ball": ball((1.0, 1.5, 1.0), 0.2)}
    solver = Solver(setup, inputs)
    solver.run(3)
    assert [solver.object(f"{name}/air").resolution for name in ("fine", "coarse")] == [8, 4]
    speeds = [np.abs(solver.read(f"{name}/air", "velocity")).max() for name in ("fine", "coarse")]
    np.testing.assert_allclose(speeds[1], speeds[0], rtol=0.5)
    assert min(speeds) > 0.05


def test_nothing_at_all_runs():
    setup = SolverSetup(
        "nothing",
        VolumeObject(name="air", voxel_size=H),
        PressureMaterial(),
        ViscosityMaterial(),
        GravityForce(),
        BuoyancyForce(),
        VorticityConfinementOperator(),
        FluidDragForce(),
    )
    solver = Solver(setup)
    solver.run(2)
    assert solver.counts() == {"air": 0}


def test_a_single_voxel():
    for side in ("open", "wall"):
        setup = SolverSetup(
            "one",
            VolumeObject(name="air", voxel_size=H, region="box"),
            PressureMaterial(),
            BuoyancyForce(),
            GravityForce(),
            domain_lower=(0.0, 0.0, 0.0),
            domain_upper=(H, H, H),
            boundary_lower=(side,) * 3,
            boundary_upper=(side,) * 3,
        )
        solver = Solver(setup)
        solver.run(2)
        assert np.isfinite(solver.read("air", "velocity")).all(), side
        assert np.count_nonzero(solver.read("air", "kind")) == 1, side


def test_a_single_periodic_voxel_is_refused_with_a_reason():
    setup = SolverSetup(
        "one",
        VolumeObject(name="air", voxel_size=H, region="box"),
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=(H, H, H),
        boundary_lower=("periodic",) * 3,
        boundary_upper=("periodic",) * 3,
    )
    with pytest.raises(SetupError, match="no whole number of Buckets of 4 voxels"):
        Solver(setup).run(1)


def test_far_from_the_origin_the_result_is_the_same():
    here = Solver(*plume())
    # Whole voxels away, in numbers that float64 holds exactly.
    there = Solver(*plume(corner=(1.0e5, -1.0e5, 1.0e5)))
    for solver in (here, there):
        solver.run(4)
    one, other = everything(here), everything(there)
    assert one["density"].shape == other["density"].shape
    for name in ("velocity", "density", "temperature"):
        scale = np.abs(one[name]).max()
        np.testing.assert_allclose(other[name], one[name], atol=1e-5 * scale, err_msg=name)


def test_a_thousand_metres_a_second():
    setup = SolverSetup(
        "fast",
        VolumeObject(name="air", voxel_size=H, input="start", ambient_velocity=(1000.0, 0.0, 0.0)),
        PressureMaterial(),
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=(4.0, 2.0, 2.0),
    )
    solver = Solver(setup, {"start": cube((2, 2, 2), (6, 6, 6))})
    solver.run(2)
    u = solver.read("air", "velocity")
    assert np.isfinite(u).all()
    assert u.size == 0 or np.abs(u).max() < 2000.0


def test_a_jet_of_a_thousand_metres_a_second():
    setup, inputs = plume()
    inputs["jet"] = cube((10, 10, 10), (14, 14, 14))
    setup = setup.with_children(
        (*setup.children, VolumeEmission(name="jet", source="jet", velocity=(0.0, 1000.0, 0.0)))
    )
    solver = Solver(setup, inputs)
    solver.run(3)
    u = solver.read("air", "velocity")
    assert np.isfinite(u).all()
    assert 300.0 < np.abs(u).max() < 3000.0
    density = solver.read("air", "density")
    assert density.min() >= -1e-6 and density.max() <= 1.0 + 1e-6


def test_steps_of_one_second():
    setup, inputs = plume(ViscosityMaterial(), frames_per_second=1.0)
    solver = Solver(setup, inputs)
    solver.run(5)
    for name, values in everything(solver).items():
        assert np.isfinite(values).all(), name
    assert np.abs(solver.read("air", "velocity")).max() < 1000.0
    temperature = solver.read("air", "temperature")
    assert temperature.min() >= 293.0 and temperature.max() <= 500.1


def test_adaptive_substeps_follow_the_speed():
    setup, inputs = plume(adaptive_substeps=True, courant_number=0.5)
    inputs["source"] = cube((10, 2, 10), (14, 5, 14), mask=1.0)
    jet = VolumeEmission(name="jet", source="source", velocity=(0.0, 8.0, 0.0))
    solver = Solver(setup.with_children((*setup.children, jet)), inputs)
    solver.run(2)
    # 8 m/s over 0.125 m at half a voxel a step: 128 steps a second, 5.3 a frame.
    assert solver.timeline.substep >= 6


# -- documents --------------------------------------------------------------------------------


@pytest.mark.parametrize("example", [smoke_plume, smoke_around_sphere, wind_tunnel])
def test_setups_of_the_examples_survive_json(example, tmp_path):
    setup, _ = example.build()
    path = tmp_path / "setup.loki.json"
    write_setup(setup, path)
    again = read_setup(path)
    assert again == setup
    assert again.settings == setup.settings
    assert json.loads(path.read_text())  # plain JSON, no NaN or the like


def test_a_setup_from_json_runs_like_the_one_from_python(tmp_path):
    setup, inputs = plume()
    path = tmp_path / "setup.loki.json"
    write_setup(setup, path)
    ends = []
    for one in (setup, read_setup(path)):
        solver = Solver(one, inputs)
        solver.run(2)
        ends.append(everything(solver))
    assert_same(*ends)
