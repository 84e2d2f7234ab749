"""Small setups with every kind of Object, for tests of what stands at the root above them all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

import loki_core as lk
from loki_core.behavior import Behavior, registry
from tests.particle_fluids import block, box_mesh, radius_of

VOXEL = 1 / 8
SPACING = 1 / 16
CLOSED = ("wall",) * 3

#: What a Behavior needs to have something to do in these setups; the others take their defaults.
SETTINGS: dict[str, dict[str, Any]] = {
    "AttachmentConstraint": {"source": "Hair/Strands", "target": "Balls/Balls", "range": 0.3},
    "ChannelMixing": {"channels": ("dye",)},
    "Collider": {"input": "mesh"},
    "DissipationOperator": {"channels": ("density", "temperature")},
    "DomainBoundary": {"sides": ("y_lower",)},
    "FluidDragForce": {"velocity": (1.0, 0.0, 0.0), "field": "field"},
    "ForceDensityField": {"value": (0.0, 1.0, 0.0), "field": "field", "channel": "velocity"},
    "GuideOperator": {"field": "field", "strength": 1.0},
    "LiquidSink": {"source": "mesh"},
    "LiquidSource": {"source": "mesh", "velocity": (0.0, -1.0, 0.0)},
    "LiquidSurface": {"source": "Liquid/Water"},
    "MatchTarget": {"target": "strands"},
    "ParticleExpression": {"expression": "tint = age", "new_channels": ("tint",)},
    "TurbulenceForce": {"masked_by": "density"},
    "VolumeEmission": {"source": "mesh"},
    "VolumeExpression": {
        "expression": "soot = density + temperature",
        "new_channels": ("soot",),
    },
}


def built(name: str, **values: Any) -> Behavior:
    """A registered Behavior with something to do."""
    return registry()[name](**{**SETTINGS.get(name, {}), **values})


def acting() -> list[str]:
    """Names of all Behaviors that act on Objects, or show them: those that others stand above."""
    own = {"CurvesObject", "GeometryObject", "HybridObject", "ParticleObject", "VolumeObject"}
    return [name for name in registry() if name not in own]


def inputs() -> dict[str, Any]:
    """Streams that the Objects and Behaviors name."""
    roots = np.array([[0.3, 0.6, 0.3], [0.4, 0.6, 0.4], [1.4, 0.6, 0.6]])
    strands = roots[:, None] + np.linspace(0.0, 0.3, 5)[:, None] * np.array([1.0, -0.5, 0.2])
    water = lk.Points(block(8, 6, 8, spacing=SPACING))
    water.set_channel("point", "dye", np.linspace(0.0, 1.0, water.point_count))
    field = lk.Voxels(np.zeros((1, 3), np.int32), 0.25, block_resolution=8)
    field.set_channel("velocity", np.full((1, 3, 8, 8, 8), 0.5), location="cell")
    field.set_channel("mask", np.full((1, 1, 8, 8, 8), 0.5), location="cell")
    return {
        "strands": lk.Curves.from_strands(strands),
        "water": water,
        "balls": lk.Points([[0.5, 0.7, 0.5], [0.6, 0.75, 0.5], [1.5, 0.7, 0.5]]),
        "block": lk.Points(block(4, 4, 4, spacing=SPACING, corner=(1.0, 0.1, 0.2))),
        "other": lk.Points(block(4, 4, 4, spacing=SPACING, corner=(1.5, 0.1, 0.2))),
        "drops": lk.Points([[1.1, 0.8, 0.5], [1.11, 0.8, 0.5], [1.7, 0.8, 0.3]]),
        "sheet": sheet(),
        "mesh": box_mesh((0.8, 0.5, 0.4), (1.1, 0.8, 0.7)),
        "field": field,
    }


def sheet() -> lk.Surface:
    """Four quads, tilted, in the air above the liquid."""
    x, z = np.meshgrid(0.1 * np.arange(3), 0.1 * np.arange(3), indexing="ij")
    places = np.stack((1.2 + x, 0.7 + 0.2 * x, 0.2 + z), axis=-1).reshape(-1, 3)
    corner = np.array([0, 1, 3, 4])
    return lk.Surface.from_faces(places, corner[:, None] + np.array([0, 1, 4, 3]))


def objects() -> dict[str, lk.Group]:
    """A Group with a bare Object of each kind."""
    radius = radius_of(SPACING)
    return {
        "Gas": lk.Group("Gas", lk.VolumeObject(name="Air", voxel_size=VOXEL, region="box")),
        "Liquid": lk.Group(
            "Liquid", lk.HybridObject(name="Water", voxel_size=VOXEL, input="water")
        ),
        "Hair": lk.Group("Hair", lk.CurvesObject(name="Strands", input="strands", radius=1e-3)),
        "Sheet": lk.Group("Sheet", lk.GeometryObject(name="Sheet", input="sheet")),
        "Balls": lk.Group("Balls", lk.ParticleObject(name="Balls", input="balls", radius=radius)),
    }


def equipped() -> dict[str, lk.Group]:
    """The same with what belongs to each, and particles that are liquids and droplets."""
    radius = radius_of(SPACING)
    bare = objects()

    def fluid(name: str, stream: str, kind: Behavior) -> lk.Group:
        return lk.Group(name, lk.ParticleObject(name=name, input=stream, radius=radius), kind)

    return {
        "Gas": lk.Group("Gas", *bare["Gas"].children, lk.PressureMaterial()),
        "Liquid": lk.Group(
            "Liquid", *bare["Liquid"].children, lk.PressureMaterial(), lk.LiquidSurface()
        ),
        "Hair": lk.Group(
            "Hair", *bare["Hair"].children, lk.StretchingConstraint(), lk.BendingConstraint()
        ),
        "Sheet": lk.Group("Sheet", *bare["Sheet"].children, lk.DistanceConstraint()),
        "Balls": bare["Balls"],
        "Positions": fluid("Positions", "block", lk.PositionBasedFluid()),
        "Smoothed": fluid("Smoothed", "other", lk.SmoothedParticleFluid()),
        "Drops": fluid("Drops", "drops", lk.BinaryDropletCollisions()),
    }


def setup(groups: Iterable[lk.Group], behaviors: Iterable[Behavior], **settings: Any) -> Any:
    """All of them in a closed box."""
    named = [
        one if one.name else one.replace(name=f"{type(one).__name__}{number}")
        for number, one in enumerate(behaviors)
    ]
    return lk.SolverSetup(
        "mixed",
        *groups,
        *named,
        domain_lower=(0.0, 0.0, 0.0),
        domain_upper=(2.0, 1.0, 1.0),
        boundary_lower=CLOSED,
        boundary_upper=CLOSED,
        **{"bucket_size": 8 * VOXEL, "frames_per_second": 100.0, **settings},
    )
