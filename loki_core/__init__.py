"""Loki: one declarative Solver Setup for liquids, gases, solids and particles that couple.

    import loki_core as loki

    setup = loki.SolverSetup("dust", loki.ParticleObject(input="seeds"), loki.GravityForce())
    solver = loki.Solver(setup, {"seeds": loki.Points(positions)})
    solver.run(24)
    positions = solver.read("ParticleObject", "position")

Importing this package imports numpy alone and compiles nothing.
"""

from __future__ import annotations

from loki_core.behavior import Behavior, find_behavior, load_extensions, parameter, registry
from loki_core.constraints.attachment import AttachmentConstraint
from loki_core.constraints.bending import BendingConstraint
from loki_core.constraints.collision import CollisionConstraint
from loki_core.constraints.constraint import Constraint, ConstraintBehavior
from loki_core.constraints.distance import DistanceConstraint
from loki_core.constraints.elements import Elements
from loki_core.constraints.energy import EnergyAction
from loki_core.constraints.membrane import MembraneConstraint
from loki_core.constraints.neo_hookean import NeoHookeanConstraint
from loki_core.constraints.point_energy import PointEnergy
from loki_core.constraints.pressure import PressureMaterial
from loki_core.constraints.stretching import StretchingConstraint
from loki_core.constraints.viscosity import ViscosityMaterial
from loki_core.data.body import Body
from loki_core.data.curves import Curves
from loki_core.data.discrete_volume import DiscreteVolume
from loki_core.data.grid_domain import BoundaryCondition, GridDomain
from loki_core.data.particle_system import ParticleSystem
from loki_core.data.points import Points
from loki_core.data.surface import Surface
from loki_core.data.voxels import Voxels
from loki_core.data.wireframe import Wireframe
from loki_core.errors import (
    AccessError,
    Cancelled,
    DivergenceError,
    ExpressionError,
    FormatError,
    GraphError,
    InputError,
    LokiError,
    ScheduleError,
    SetupError,
)
from loki_core.forces.buoyancy import BuoyancyForce
from loki_core.forces.coupled_drag import CoupledDragForce
from loki_core.forces.fluid_drag import FluidDragForce
from loki_core.forces.force import Force
from loki_core.forces.force_density_field import ForceDensityField
from loki_core.forces.gravity import GravityForce
from loki_core.forces.surface_tension import SurfaceTensionForce
from loki_core.keyframes import Keyframes
from loki_core.objects.basics.object import Object
from loki_core.objects.colliders.collider import Collider
from loki_core.objects.gas.volume import VolumeObject
from loki_core.objects.liquid.hybrid import HybridObject
from loki_core.objects.liquid.liquid_surface import LiquidSurface
from loki_core.objects.particles.particles import ParticleObject
from loki_core.objects.solids.curves import CurvesObject
from loki_core.objects.solids.geometry import GeometryObject
from loki_core.operators.channel_mixing import ChannelMixing
from loki_core.operators.coupled_buoyancy import CoupledBuoyancyOperator
from loki_core.operators.dissipation import DissipationOperator
from loki_core.operators.domain_boundary import DomainBoundary
from loki_core.operators.droplet_collisions import BinaryDropletCollisions
from loki_core.operators.guide import GuideOperator
from loki_core.operators.liquid_sink import LiquidSink
from loki_core.operators.liquid_source import LiquidSource
from loki_core.operators.match_target import MatchTarget
from loki_core.operators.operator import Operator
from loki_core.operators.particle_expression import ParticleExpression
from loki_core.operators.position_based_fluid import PositionBasedFluid
from loki_core.operators.sag_free_start import SagFreeStart
from loki_core.operators.smoothed_particle_fluid import SmoothedParticleFluid
from loki_core.operators.turbulence import TurbulenceForce
from loki_core.operators.volume_emission import VolumeEmission
from loki_core.operators.volume_expression import VolumeExpression
from loki_core.operators.vorticity_confinement import VorticityConfinementOperator
from loki_core.pipeline.solver import Solver
from loki_core.pipeline.stages import Stage
from loki_core.pipeline.task import Step, task
from loki_core.setup_document import read_setup, write_setup
from loki_core.solver_settings import SolverSettings
from loki_core.solver_setup import Group, SolverSetup

__version__ = "0.1.0"

__all__ = [
    "AccessError",
    "AttachmentConstraint",
    "Behavior",
    "BendingConstraint",
    "BinaryDropletCollisions",
    "Body",
    "BoundaryCondition",
    "BuoyancyForce",
    "Cancelled",
    "ChannelMixing",
    "Collider",
    "CollisionConstraint",
    "Constraint",
    "ConstraintBehavior",
    "CoupledBuoyancyOperator",
    "CoupledDragForce",
    "Curves",
    "CurvesObject",
    "DiscreteVolume",
    "DissipationOperator",
    "DistanceConstraint",
    "DivergenceError",
    "DomainBoundary",
    "Elements",
    "EnergyAction",
    "ExpressionError",
    "FluidDragForce",
    "Force",
    "ForceDensityField",
    "FormatError",
    "GeometryObject",
    "GraphError",
    "GravityForce",
    "GridDomain",
    "Group",
    "GuideOperator",
    "HybridObject",
    "InputError",
    "Keyframes",
    "LiquidSink",
    "LiquidSource",
    "LiquidSurface",
    "LokiError",
    "MatchTarget",
    "MembraneConstraint",
    "NeoHookeanConstraint",
    "Object",
    "Operator",
    "ParticleExpression",
    "ParticleObject",
    "ParticleSystem",
    "PointEnergy",
    "Points",
    "PositionBasedFluid",
    "PressureMaterial",
    "SagFreeStart",
    "ScheduleError",
    "SetupError",
    "SmoothedParticleFluid",
    "Solver",
    "SolverSettings",
    "SolverSetup",
    "Stage",
    "Step",
    "StretchingConstraint",
    "Surface",
    "SurfaceTensionForce",
    "TurbulenceForce",
    "ViscosityMaterial",
    "VolumeEmission",
    "VolumeExpression",
    "VolumeObject",
    "VorticityConfinementOperator",
    "Voxels",
    "Wireframe",
    "find_behavior",
    "load_extensions",
    "parameter",
    "read_setup",
    "registry",
    "task",
    "write_setup",
]
