"""Run smoke on any number of ranks and save what it looks like after every step, in curve order.

    smoke_ranks.py TARGET CASE [STEPS]

free      advection, emission and forces, no solve: the same bits on any number of ranks
plume     with pressure to 1e-12, in double precision, on sparse Buckets
ball      a ball moves through a closed box, so that the system is singular
viscous   no-slip walls, viscosity and pressure
failing   a source that is not finite in the third frame: every rank says the same
"""

from __future__ import annotations

import sys

import numpy as np

from loki_core.constraints.pressure import PressureMaterial
from loki_core.constraints.viscosity import ViscosityMaterial
from loki_core.data.voxels import Voxels
from loki_core.errors import InputError
from loki_core.forces.buoyancy import BuoyancyForce
from loki_core.objects.colliders.collider import Collider
from loki_core.objects.gas.volume import VolumeObject
from loki_core.operators.dissipation import DissipationOperator
from loki_core.operators.volume_emission import VolumeEmission
from loki_core.operators.vorticity_confinement import VorticityConfinementOperator
from loki_core.parallel.comm import one_fails_all_fail, world
from loki_core.parallel.reduce import exact_sum
from loki_core.pipeline.solver import Solver
from loki_core.solver_setup import SolverSetup
from loki_graph.nodes.shape_source import unit_sphere
from tests.ranks import balance_at_every_look

H = 0.125
SMOKE = ("density", "temperature", "velocity")
TIGHT = 1.0e-12


def ball(center, radius):
    surface = unit_sphere(24, 12)
    surface.positions = np.asarray(center) + 2.0 * radius * surface.positions
    return surface


def burner():
    density = np.zeros((24, 8, 24))
    density[9:15, 1:5, 8:15] = 1.0
    return Voxels.from_dense(density, (0.0, 0.0, 0.0), H)


def whole_bucket():
    """A source that ends where a Bucket does: its last faces belong to the next one."""
    density = np.zeros((24, 24, 24))
    density[8:16, 8:16, 8:16] = 1.0
    return Voxels.from_dense(density, (0.0, 0.0, 0.0), H)


def build(case):
    """The Solver Setup and the inputs of a case."""
    settings = {
        "domain_lower": (0.0, 0.0, 0.0),
        "domain_upper": (3.0, 4.0, 3.0),
        "boundary_lower": ("open", "wall", "open"),
        "precision": "double",
        "balance_every": 2,
    }
    inputs = {"burner": burner()}
    emission = VolumeEmission(name="burner", source="burner", temperature=600.0)
    children = [BuoyancyForce(), VorticityConfinementOperator(strength=0.2)]
    region, extra = "sparse", {}
    if case == "free":
        children += [
            DissipationOperator(rate=0.5),
            VolumeEmission(name="drift", source="drift", inherit_velocity=1.0),
            VolumeEmission(name="jet", source="jet", velocity=(1.5, 0.5, 0.0)),
        ]
        inputs["drift"] = lambda frame: ball((0.6 + 0.1 * frame, 1.5, 1.5), 0.35)
        inputs["jet"] = whole_bucket()
        extra = {"ambient_velocity": (2.0, 1.0, -1.5)}
        settings["precision"] = "single"
    else:
        children.append(PressureMaterial(tolerance=TIGHT))
    if case == "ball":
        region = "box"
        settings |= {"boundary_lower": ("wall",) * 3, "boundary_upper": ("wall",) * 3}
        settings["domain_upper"] = (3.0, 2.5, 3.0)
        children.append(Collider(name="ball", input="ball"))
        inputs["ball"] = lambda frame: ball((1.0 + 0.05 * frame, 1.4, 1.5), 0.4)
    if case == "viscous":
        children.append(ViscosityMaterial(viscosity=0.5, tolerance=TIGHT))
    if case == "failing":
        inputs["burner"] = failing_burner
    air = VolumeObject(name="air", voxel_size=H, region=region, padding=8, **extra)
    return SolverSetup("smoke", air, emission, *children, **settings), inputs


def failing_burner(frame):
    source = burner()
    if frame == 3:
        source.channel("density").values[0, 0, 4, 4, 4] = np.inf
    return source


def main(target, case, steps="3"):
    comm = world()
    balance_at_every_look()
    saved = {}
    with one_fails_all_fail(comm):
        solver = Solver(*build(case), comm=comm)
        for step in range(int(steps)):
            try:
                solver.run(1)
            except InputError as error:
                saved["error"] = np.array(str(error))
                break
            volume = solver.object("air").volume
            saved[f"coords_{step}"] = volume.buckets.all_coords
            for name in SMOKE:
                saved[f"{name}_{step}"] = solver.read("air", name)
            rows = volume.local("density").astype(np.float64).reshape(-1)
            saved[f"mass_{step}"] = np.array(exact_sum(comm, rows))
        saved["sent"] = np.array(comm.total(comm.bytes_sent))
        if comm.rank == 0:
            np.savez(target, **saved)


if __name__ == "__main__":
    main(*sys.argv[1:])
