"""`wtloki new`: write a starter Solver Setup with a small input, ready to run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bridges.standalone.options import machine_options, print_json

if TYPE_CHECKING:
    from loki_core.solver_setup import SolverSetup

TEMPLATES = ("particles", "emitter")
SUFFIX = ".loki.json"


@click.command("new")
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option(
    "--template", type=click.Choice(TEMPLATES), default="particles", show_default=True, help="Kind."
)
@machine_options
def command(file: Path | None, *, template: str, as_json: bool) -> None:
    """Write a starter setup FILE and a small input beside it, and say what to do next.

    particles: points that fall in the wind; emitter: new particles from a disc, with lifetimes.
    Nothing that exists is overwritten.
    """
    import numpy as np

    from loki_core.errors import InputError
    from loki_core.setup_document import write_setup

    target = file or Path(f"{template}{SUFFIX}")
    if target.suffix != ".json":
        target = target.with_name(target.name + SUFFIX)
    stem = target.name.removesuffix(".json").removesuffix(".loki")
    seeds = target.with_name(f"{stem}_seeds.npz")
    for path in (target, seeds):
        if path.exists():
            raise InputError(f"{path} is there already; choose another name or remove it")
    target.parent.mkdir(parents=True, exist_ok=True)
    setup = _build(template, stem)
    write_setup(setup, target)
    arrays: dict[str, Any] = _seeds(template)
    with seeds.open("xb") as stream:
        np.savez(stream, **arrays)
    steps = [
        f"wtloki check {target} --input seeds={seeds}",
        f"wtloki explain {target}",
        f"wtloki run {target} --input seeds={seeds} --frames 48 --output {stem}_cache",
        f"wtloki preview {stem}_cache",
    ]
    if as_json:
        print_json({"setup": str(target), "inputs": {"seeds": str(seeds)}, "next": steps})
        return
    click.echo(f"wrote {target} and {seeds}\nnext:")
    for step in steps:
        click.echo(f"  {step}")


def _build(template: str, name: str) -> SolverSetup:
    from loki_core.forces.fluid_drag import FluidDragForce
    from loki_core.forces.gravity import GravityForce
    from loki_core.objects.particles import ParticleObject
    from loki_core.solver_setup import Group, SolverSetup

    particles = ParticleObject(input="seeds", radius=0.004, density=100.0)
    if template == "emitter":
        particles = ParticleObject(
            source="seeds",
            rate=2000.0,
            velocity=(0.0, 6.0, 0.0),
            velocity_spread=0.8,
            lifetime=1.5,
            lifetime_variation=0.3,
            radius=0.004,
            density=100.0,
        )
    group = Group("Particles", particles, FluidDragForce(velocity=(1.5, 0.0, 0.0)))
    return SolverSetup(name, group, GravityForce(), substeps=2, checkpoint_every=12)


def _seeds(template: str) -> dict[str, Any]:
    import numpy as np

    random = np.random.default_rng(1)
    if template == "emitter":
        angle, radius = 2.0 * np.pi * random.random(200), 0.1 * np.sqrt(random.random(200))
        x, z = radius * np.cos(angle), radius * np.sin(angle)
        return {"positions": np.stack((x, np.zeros(200), z), axis=1)}
    direction = random.normal(size=(2000, 3))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    ball = direction * np.cbrt(random.random((2000, 1)))
    return {"positions": 0.5 * ball + (0.0, 2.0, 0.0), "velocity": np.cross((0.0, 3.0, 0.0), ball)}
