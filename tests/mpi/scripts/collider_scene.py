"""A turning ball and a still, open bowl in still air; what the air's faces look like at the end.

collider_scene.py TARGET
"""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import trimesh

from loki_core.behavior import Behavior, parameter
from loki_core.data.discrete_volume import DiscreteVolume
from loki_core.data.surface import Surface
from loki_core.data.voxels import Voxels
from loki_core.objects.basics.capabilities import Faces
from loki_core.objects.basics.object import Object
from loki_core.objects.colliders.collider import Collider, add_solids
from loki_core.parallel.comm import one_fails_all_fail, world
from loki_core.pipeline.solver import Solver
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import task
from loki_core.solver_setup import Group, SolverSetup
from tests.ranks import balance_at_every_look

RADIUS = 0.3
SPEED, TURN = np.array([1.5, 0.0, 0.6]), 4.0  # m/s, 1/s about y
FRAME = 1.0 / 24.0


def define_air():
    """A Behavior whose volume does nothing but take in colliders; its Buckets wander."""

    class StillAirObject(Behavior, kind="object"):
        """Air that does not move."""

        wanders: bool = parameter(False, doc="Whether its Buckets change.")

        def create(self, scope):
            return [StillAir(self, scope)]

    class StillAir(Object, Faces):
        def __post_init__(self):
            super().__post_init__()
            self.volume = DiscreteVolume(self.scope.domain, name=self.path, dtype=self.scope.dtype)
            for name in ("velocity", "open_fraction"):
                self.volume.add_channel(name, components=3, location="face")
            self.volume.add_channel("kind", np.uint8)
            self.colliders = []
            self.changes = 0
            self.versions = None

        @property
        def data(self):
            return {"volume": self.volume}

        @property
        def task_data(self):
            fields = {f"collider{n}": one.volume for n, one in enumerate(self.colliders)}
            return self.data | fields

        def need_solids(self):
            if "solid_velocity" not in self.volume.channels:
                self.volume.add_channel("solid_velocity", components=3, location="face")

        def declare(self, name, stage, declaration):
            if name == "update_boundaries":
                fields = [
                    (n, c) for n, one in enumerate(self.colliders) for c in one.volume.channels
                ]
                reads = tuple(f"collider{n}.{channel}" for n, channel in fields)
                declaration = replace(declaration, reads=reads)
            return stage, declaration

        def ingest(self):
            self._fill(0)

        def _fill(self, step):
            axes = np.meshgrid(*[np.arange(-4, 4)] * 3, indexing="ij")
            coords = np.stack(axes, axis=-1).reshape(-1, 3).astype(np.int32)
            if self.behavior.wanders:
                coords = coords[(coords[:, 0] + step) % 5 != 0]
            self.volume.set_buckets(coords)

        @task(Stage.ADAPT_TOPOLOGY, layout=("volume",))
        def adapt(self, access, step):
            if self.behavior.wanders:
                self._fill(step.substep)

        @task(Stage.UPDATE_BOUNDARIES, layout=("volume",))
        def update_boundaries(self, access, step):
            versions = tuple(one.version for one in self.colliders)
            self.changes += versions != self.versions
            self.versions = versions
            self.volume.local("open_fraction")[:] = 1.0
            self.volume.local("kind")[:] = 1
            if "solid_velocity" in self.volume.channels:
                self.volume.local("solid_velocity")[:] = 0.0
            add_solids(self.volume, self.colliders)

        def output(self):
            return None

    return StillAirObject


def ball(frame):
    """The ball at the end of a frame, painted by its latitude."""
    mesh = trimesh.creation.icosphere(subdivisions=3, radius=RADIUS)
    time = (frame - 1) * FRAME
    c, s = np.cos(TURN * time), np.sin(TURN * time)
    turned = np.array(mesh.vertices) @ np.array([[c, 0, -s], [0, 1, 0], [s, 0, c]])
    surface = Surface.from_faces(turned + SPEED * time - [0.4, 0.0, 0.1], np.array(mesh.faces))
    surface.set_channel("point", "paint", np.array(mesh.vertices)[:, 1])
    return surface


def bowl():
    mesh = trimesh.creation.icosphere(subdivisions=3, radius=0.35)
    faces = np.array(mesh.faces)
    low = np.array(mesh.vertices)[faces].mean(axis=1)[:, 1] < 0.0
    return Surface.from_faces(np.array(mesh.vertices) + np.array([0.3, -0.5, 0.2]), faces[low])


def cloud():
    """A container around the room, as a level set."""
    return level_set_ball(0.95, edge=0.11, velocity=(0.0, 0.2, 0.0))


def level_set_ball(radius, *, edge, centre=(0.0, 0.0, 0.0), velocity=None):
    """A ball as a narrow band of voxels, as VDB files have it; its inside is stored."""
    blocks = int(np.ceil((radius + 4.0 * edge) / (4.0 * edge)))
    h, shift = edge, 4.0 * edge * blocks
    axis = h * (np.arange(8 * blocks) + 0.5) - shift
    places = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"))
    distance = np.clip(np.linalg.norm(places, axis=0) - radius, -3.0 * h, 3.0 * h)
    voxels = Voxels.from_dense(
        {"distance": distance.astype(np.float32)},
        np.array(centre) - shift,
        h,
        background=3.0 * h,
    )
    if velocity is not None:
        shape = (voxels.block_count, 3, 8, 8, 8)
        values = np.broadcast_to(np.reshape(velocity, (1, 3, 1, 1, 1)), shape)
        voxels.set_channel("velocity", values.astype(np.float32))
    return voxels


def make_solver(air, comm=None, *, wanders=True, substeps=2, **options):
    setup = SolverSetup(
        "scene",
        Group(
            "Room",
            air(name="air", wanders=wanders),
            Collider(input="ball", name="ball", channels=("paint",), **options),
            Collider(input="bowl", name="bowl"),
            Collider(input="cloud", name="cloud", mode="solid_outside"),
        ),
        substeps=substeps,
        bucket_size=0.25,
        balance_every=2,
    )
    return Solver(setup, {"ball": ball, "bowl": bowl(), "cloud": cloud()}, comm=comm)


def gathered(comm, volume):
    """All channels of all ranks, ordered by Bucket."""
    coords = np.concatenate(comm.all_gather(volume.buckets.local_coords.reshape(-1)))
    order = np.lexsort(coords.reshape(-1, 3).T)
    found = {"coords": coords.reshape(-1, 3)[order]}
    for name in volume.channels:
        values = volume.local(name)
        whole = np.concatenate(comm.all_gather(np.ascontiguousarray(values).reshape(-1)))
        found[name] = whole.reshape(-1, *values.shape[1:])[order]
    return found


def samples(comm, collider):
    """The collider's field at places that this rank owns, ordered by number."""
    rng = np.random.default_rng(4)
    places = rng.uniform(-1.0, 1.0, (3000, 3))
    domain = collider.scope.domain
    relative = domain.to_relative(places)
    mine = np.flatnonzero(domain.owners(domain.keys(domain.bucket_coordinates(relative)))
                          == comm.rank)  # fmt: skip
    sample = collider.sample(relative[mine])
    found = np.column_stack(
        (sample.distance, sample.velocity, sample.primitive, *sample.channels.values())
    )
    numbers = np.concatenate(comm.all_gather(mine))
    rows = np.concatenate(comm.all_gather(found.reshape(-1))).reshape(len(numbers), -1)
    return rows[np.argsort(numbers)]


def main(target):
    comm = world()
    balance_at_every_look()
    with one_fails_all_fail(comm):
        solver = make_solver(define_air(), comm)
        solver.run(3)
        found = {}
        for path in ("Room/air", "Room/ball", "Room/bowl", "Room/cloud"):
            item = solver.object(path)
            name = path.split("/")[1]
            parts = gathered(comm, item.volume)
            found |= {f"{name}_{key}": values for key, values in parts.items()}
            if name != "air":
                found[f"{name}_samples"] = samples(comm, item)
        counts = comm.all_gather(np.array([solver.object("Room/ball").volume.buckets.local_count]))
        found["counts"] = np.concatenate(counts)
        if comm.rank == 0:
            np.savez(target, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
