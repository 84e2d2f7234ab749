"""Gas, liquid, hair, a particle fluid and droplets below Forces and couplings at the root.

mixed_scene.py TARGET.npz FRAMES
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import loki_core as lk
from loki_core.parallel.comm import one_fails_all_fail, world
from tests.particle_fluids import block, box_mesh, radius_of
from tests.ranks import balance_at_every_look

CLOSED = ("wall",) * 3
VOXEL, SPACING = 1 / 16, 1 / 32
POINTS = ("Water/Water", "Hair/Strands", "Slush/Slush", "Rain/Drops")


def setup(**settings: Any) -> lk.SolverSetup:
    """Five Groups that say what is there; what acts on all of it stands at the root."""
    return lk.SolverSetup(
        "mixed",
        lk.Group("Smoke", lk.VolumeObject(name="Air", voxel_size=VOXEL, region="box")),
        lk.Group("Water", lk.HybridObject(name="Water", voxel_size=VOXEL, input="water")),
        lk.Group(
            "Hair",
            lk.CurvesObject(name="Strands", input="hair", radius=2e-3, density=700.0),
            lk.StretchingConstraint(young_modulus=1e6),
            lk.BendingConstraint(young_modulus=1e6, shear_modulus=3e5),
        ),
        lk.Group(
            "Slush",
            lk.ParticleObject(name="Slush", input="slush", radius=radius_of(SPACING)),
            lk.PositionBasedFluid(),
        ),
        lk.Group(
            "Rain",
            lk.ParticleObject(name="Drops", input="drops", radius=4e-3),
            lk.BinaryDropletCollisions(),
        ),
        lk.GravityForce(),
        lk.BuoyancyForce(),
        lk.CoupledDragForce(),
        lk.CoupledBuoyancyOperator(),
        lk.PressureMaterial(tolerance=1e-10),
        lk.TurbulenceForce(masked_by="density", acceleration=3.0),
        lk.DissipationOperator(channels=("density",), rate=0.2),
        lk.VolumeEmission(source="fire", temperature=600.0),
        lk.Collider(input="pillar"),
        lk.ParticleExpression(expression="tint = velocity[1]", new_channels=("tint",)),
        **{
            "precision": "double",
            "substeps": 2,
            "balance_every": 4,
            "domain_lower": (0.0, 0.0, 0.0),
            "domain_upper": (2.0, 1.0, 1.0),
            "boundary_lower": CLOSED,
            "boundary_upper": CLOSED,
            **settings,
        },
    )


def inputs() -> dict[str, Any]:
    """Water on the left, slush on the right, strands and drops above, a pillar and a fire."""
    rng = np.random.default_rng(25)
    roots = rng.uniform((0.2, 0.75, 0.1), (1.8, 0.85, 0.9), (20, 1, 3))
    strands = roots + np.linspace(0.0, 1.0, 7)[:, None] * np.array([0.12, -0.35, 0.02])
    drops = lk.Points(rng.uniform((0.1, 0.5, 0.1), (1.9, 0.95, 0.9), (80, 3)))
    drops.set_channel("point", "velocity", rng.normal(0.0, 1.0, (80, 3)))
    fire = box_mesh((1.05, 0.1, 0.3), (1.25, 0.2, 0.6))
    return {
        "water": box_mesh((0.0, 0.0, 0.0), (0.6, 0.45, 1.0)),
        "hair": lk.Curves.from_strands(strands),
        "slush": lk.Points(block(10, 10, 20, spacing=SPACING, corner=(1.55, 0.02, 0.15))),
        "drops": drops,
        "fire": fire,
        "pillar": box_mesh((0.85, -0.1, 0.4), (1.0, 0.6, 0.6)),
    }


def main() -> None:
    """Run, and save what rank 0 has gathered."""
    balance_at_every_look()
    solver = lk.Solver(setup(), inputs())
    solver.run(int(sys.argv[2]))
    found = {"counts": np.concatenate(solver.comm.all_gather(np.array([solver.object(
        "Water/Water").count()])))}  # fmt: skip
    for path in POINTS:
        for name in ("position", "velocity"):
            found[f"{path.partition('/')[0]}_{name}"] = solver.read(path, name)
    for name in ("velocity", "density", "temperature"):
        found[f"Smoke_{name}"] = solver.read("Smoke/Air", name)
    exchanged = solver.exchanges()
    names = [name for name in sorted(exchanged) if "momentum_residual" in exchanged[name]]
    found["given"] = np.array([exchanged[name]["momentum_to_solids"] for name in names])
    found["inactive"] = np.array([one.path for one in solver.inactive])
    if solver.comm.rank == 0:
        np.savez(sys.argv[1], **found)


if __name__ == "__main__":
    with one_fails_all_fail(world()):
        main()
