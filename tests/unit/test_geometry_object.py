"""Geometry Object: meshes of points that Constraints hold together, as hosts give them."""

from __future__ import annotations

import numpy as np
import pytest

import loki_core as lk
from loki_core.errors import InputError

PATH = "Sheet"


def sheet(n=5, size=0.4, pinned=()):
    """A flat square of quads, n points a side."""
    axis = np.linspace(0.0, size, n)
    x, z = np.meshgrid(axis, axis, indexing="ij")
    places = np.stack((x, 0.0 * x, z), axis=-1).reshape(-1, 3)
    row = np.arange(n * n).reshape(n, n)
    quads = np.stack((row[:-1, :-1], row[:-1, 1:], row[1:, 1:], row[1:, :-1]), axis=-1)
    mesh = lk.Surface.from_faces(places, quads.reshape(-1, 4))
    pins = np.zeros(n * n)
    pins[list(pinned)] = 1.0
    mesh.set_channel("point", "pinned", pins)
    return mesh


def solver_of(mesh, *behaviors, geometry=None, **settings):
    given = {} if geometry is None else geometry
    setup = lk.SolverSetup(
        "geometry", lk.GeometryObject(name=PATH, input="mesh", **given), *behaviors, **settings
    )
    return lk.Solver(setup, {"mesh": mesh})


def masses(mesh, **geometry):
    return solver_of(mesh, geometry=geometry).read(PATH, "mass")


# -- masses ----------------------------------------------------------------------------------------


def test_a_surface_weighs_area_times_thickness_and_a_wireframe_its_section():
    found = masses(sheet(), thickness=1e-3, density=700.0)
    assert found.sum() == pytest.approx(700.0 * 1e-3 * 0.16, rel=1e-14)
    assert np.all(found > 0.0)
    frame = lk.Wireframe(np.array([[0.0, 0, 0], [1, 0, 0], [1, 2, 0]]), np.array([[0, 1], [1, 2]]))
    line = 700.0 * 0.25 * np.pi * 1e-6
    np.testing.assert_allclose(
        masses(frame, thickness=1e-3, density=700.0), line * np.array([0.5, 1.5, 1.0]), rtol=1e-14
    )


def test_n_gons_quads_and_triangles_of_one_shape_weigh_the_same():
    x = np.array([[0.0, 0, 0], [2, 0, 0], [3, 0, 1], [2, 0, 2], [0, 0, 2]])
    whole = lk.Surface.from_polygons(x, [[0, 1, 2, 3, 4]])
    cut = lk.Surface.from_polygons(x, [[0, 1, 3, 4], [1, 2, 3]])
    assert masses(whole).sum() == pytest.approx(masses(cut).sum(), rel=1e-14)


def test_what_is_painted_overrides_by_point_and_by_the_mean_of_faces():
    mesh = sheet(3)
    thickness = np.array([1e-3, 2e-3, 3e-3, 4e-3])
    mesh.set_channel("primitive", "thickness", thickness)
    middle = masses(mesh, density=100.0)[4]  # a quarter of each face
    assert middle == pytest.approx(100.0 * thickness.mean() * 0.04, rel=1e-12)
    mesh.set_channel("point", "thickness", np.full(9, 5e-3))
    assert masses(mesh, density=100.0)[4] == pytest.approx(100.0 * 5e-3 * 0.04, rel=1e-12)


# -- motion ----------------------------------------------------------------------------------------


def test_a_free_sheet_falls_as_a_point_and_keeps_its_shape():
    mesh = sheet()
    solver = solver_of(mesh, lk.DistanceConstraint(stiffness=100.0), lk.GravityForce(), substeps=2)
    solver.run(12)
    moved = solver.read(PATH, "position") - mesh.positions
    h, n = 1.0 / 48.0, 24
    np.testing.assert_allclose(moved[:, 1], -9.81 * h**2 * n * (n + 1) / 2, rtol=1e-10)
    np.testing.assert_allclose(moved[:, [0, 2]], 0.0, atol=1e-12)


@pytest.mark.parametrize("turned", [False, True])
def test_a_chain_of_springs_hangs_as_statics_say(turned):
    """Each edge carries what is below it: k (l - l0) = sum of the weights below."""
    n, k = 6, 40.0
    down = np.array([2.0, -1.0, 0.5]) / np.sqrt(5.25) if turned else np.array([0.0, -1.0, 0.0])
    places = 0.1 * np.arange(n)[:, None] * down
    chain = lk.Wireframe(places, np.stack((np.arange(n - 1), np.arange(1, n)), axis=1))
    chain.set_channel("point", "pinned", (np.arange(n) == 0).astype(float))
    solver = solver_of(
        chain, lk.DistanceConstraint(stiffness=k, damping_time=0.2),
        lk.GravityForce(acceleration=tuple(9.81 * down)),
        geometry={"thickness": 0.02}, frames_per_second=10.0, substeps=4,
    )  # fmt: skip
    solver.run(60)
    weight = 9.81 * solver.read(PATH, "mass")
    below = np.cumsum(weight[::-1])[::-1][1:]
    length = np.linalg.norm(np.diff(solver.read(PATH, "position"), axis=0), axis=1)
    np.testing.assert_allclose(length - 0.1, below / k, rtol=1e-6)


def test_pins_stay_and_follow_a_moving_input_to_the_bit():
    def mesh(frame):
        moved = sheet(pinned=(0, 4))
        shift = np.array([0.01, 0.02, 0.0]) * (frame - 1)
        return lk.Surface(moved.positions + shift, moved.face_offsets, moved.face_vertices)

    def pinned(frame):
        result = mesh(frame)
        pins = np.zeros(25)
        pins[[0, 4]] = 1.0
        result.set_channel("point", "pinned", pins)
        return result

    solver = solver_of(pinned, lk.DistanceConstraint(), lk.GravityForce(), substeps=2)
    solver.run(5)
    found = solver.read(PATH, "position")[[0, 4]]
    np.testing.assert_allclose(found, mesh(6).positions[[0, 4]], rtol=0, atol=1e-15)


def test_a_moving_input_is_cut_into_islands_once(monkeypatch):
    from loki_core.objects.solids.islands import Islands

    cut = []
    find = Islands.of.__func__
    monkeypatch.setattr(
        Islands, "of", classmethod(lambda cls, stream: cut.append(1) or find(cls, stream))
    )

    def moving(frame):
        mesh = sheet()
        mesh.positions = mesh.positions + 0.001 * frame
        mesh.set_channel("primitive", "frame", np.full(mesh.primitive_count, float(frame)))
        return mesh

    setup = lk.SolverSetup("moving", lk.GeometryObject(input="mesh"))
    solver = lk.Solver(setup, {"mesh": moving})
    solver.run(3)
    assert len(cut) == 1
    np.testing.assert_array_equal(
        solver.outputs()["GeometryObject"].channels["primitive"]["frame"], 4.0
    )


def test_a_sag_free_start_holds_a_hanging_sheet():
    mesh = sheet(pinned=(0, 1, 2, 3, 4))
    mesh.positions[:] = mesh.positions[:, [1, 0, 2]] * [1.0, -1.0, 1.0]  # it hangs
    solver = solver_of(
        mesh, lk.DistanceConstraint(stiffness=30.0), lk.GravityForce(), lk.SagFreeStart(),
        geometry={"thickness": 2e-3}, substeps=2,
    )  # fmt: skip
    solver.run(12)
    np.testing.assert_allclose(solver.read(PATH, "position"), mesh.positions, rtol=0, atol=1e-6)


def test_a_sheet_rests_on_a_ball():
    turn = np.linspace(0.0, 2.0 * np.pi, 17)[:-1]
    rings = np.linspace(0.0, np.pi, 9)
    ball = 0.12 * np.array(
        [[np.sin(b) * np.cos(a), np.cos(b), np.sin(b) * np.sin(a)] for b in rings for a in turn]
    )
    row = np.arange(9 * 16).reshape(9, 16)
    after = np.roll(row, -1, axis=1)
    quads = np.stack((row[:-1], after[:-1], after[1:], row[1:]), axis=-1).reshape(-1, 4)
    ball = lk.Surface.from_faces(ball, quads)
    mesh = sheet(9)
    mesh.positions[:] += [-0.2, 0.15, -0.2]
    setup = lk.SolverSetup(
        "ball", lk.GeometryObject(name=PATH, input="mesh", thickness=0.01, density=100.0),
        lk.DistanceConstraint(stiffness=50.0, damping_time=0.02),
        lk.CollisionConstraint(friction_coefficient=0.5), lk.Collider(input="ball"),
        lk.GravityForce(), substeps=4,
    )  # fmt: skip
    solver = lk.Solver(setup, {"mesh": mesh, "ball": ball})
    solver.run(24)
    found = solver.read(PATH, "position")
    assert np.linalg.norm(found, axis=1).min() > 0.12  # outside
    assert found[40, 1] > 0.11 and found[[0, 8, 72, 80], 1].max() < 0.05  # draped over it


# -- what goes in and out --------------------------------------------------------------------------


def test_the_hosts_faces_come_back_with_all_channels():
    x = np.array([[0.0, 0, 0], [5, 0, 0], [1, 0, 0], [5, 0, 1], [1, 0, 1], [6, 0, 0], [0, 0, 1]])
    mesh = lk.Surface.from_polygons(x, [[1, 5, 3], [0, 2, 4, 6]])  # two islands, points mixed
    mesh.set_channel("point", "heat", np.arange(7.0))
    mesh.set_channel("vertex", "uv", np.arange(14.0).reshape(7, 2))
    mesh.set_channel("primitive", "material", np.array([7, 8]))
    mesh.set_channel("detail", "name", np.array([3.0]))
    solver = solver_of(mesh, lk.DistanceConstraint(), lk.GravityForce())
    solver.run(1)
    found = solver.outputs()[PATH]
    np.testing.assert_array_equal(found.face_offsets, mesh.face_offsets)
    np.testing.assert_array_equal(found.face_vertices, mesh.face_vertices)
    np.testing.assert_allclose(found.positions[:, [0, 2]], x[:, [0, 2]], atol=1e-9)
    for place, name in (("point", "heat"), ("vertex", "uv"), ("primitive", "material")):
        np.testing.assert_array_equal(found.channels[place][name], mesh.channels[place][name])
    assert found.channels["detail"]["name"] == 3.0
    assert np.all(found.channels["point"]["velocity"][:, 1] < 0.0)


def test_a_restart_continues_bit_for_bit():
    def made():
        return solver_of(
            sheet(pinned=(0, 4)), lk.DistanceConstraint(damping_time=0.01, friction=0.01,
            friction_stiffness=10.0), lk.GravityForce(), substeps=2,
        )  # fmt: skip

    first = made()
    first.run(3)
    second = made()
    second.restore(first.state())
    for one in (first, second):
        one.run(3)
    for name in ("position", "velocity"):
        np.testing.assert_array_equal(first.read(PATH, name), second.read(PATH, name))


def test_an_empty_mesh_is_a_body_of_nothing():
    solver = solver_of(lk.GeometryObject().empty_stream("input"), lk.DistanceConstraint())
    solver.run(2)
    assert solver.outputs()[PATH].point_count == 0


def test_bad_meshes_are_named():
    mesh = sheet(3)
    loose = lk.Surface(
        np.concatenate((mesh.positions, [[1.0, 1.0, 1.0]])), mesh.face_offsets, mesh.face_vertices
    )
    with pytest.raises(InputError, match='input "mesh": point 9 is part of no primitive'):
        solver_of(loose)
    mesh.positions[1] = mesh.positions[0]
    with pytest.raises(InputError, match="points 0 and 1 are at one place"):
        solver_of(mesh)
    with pytest.raises(InputError, match="is a Points; a Surface or a Wireframe is expected"):
        solver_of(lk.Points(np.zeros((1, 3))))

    def other(frame):
        return sheet(3 if frame < 3 else 4)

    with pytest.raises(InputError, match="has 9 faces of 16 points now, and 4 faces of 9 points"):
        solver_of(other, lk.DistanceConstraint()).run(3)
