"""`wtloki new`: write a starter Solver Setup, or a template, with small inputs, ready to run."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from loki_vfx.bridges.standalone.options import machine_options, print_json

if TYPE_CHECKING:
    from loki_core.solver_setup import SolverSetup

#: Starter Solver Setups, each with one line of help.
STARTERS = {
    "particles": "Points fall in the wind.",
    "emitter": "New particles leave a disc, and have lifetimes.",
}
SUFFIX = ".loki.json"


@click.command("new")
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option(
    "--template",
    default="particles",
    metavar="NAME",
    show_default=True,
    help="Write this starter setup or template.",
)
@click.option("--list", "only_list", is_flag=True, help="List the starter setups and templates.")
@machine_options
def command(file: Path | None, *, template: str, only_list: bool, as_json: bool) -> None:
    """Write a starter setup or a template to FILE with small inputs, and say what to do next.

    A template is a Loki Graph with exposed parameters: `--set` and every host change them by
    name. Existing files stay.
    """
    if only_list:
        _list(as_json=as_json)
        return
    target = file or Path(f"{template}{SUFFIX}")
    if target.suffix != ".json":
        target = target.with_name(target.name + SUFFIX)
    stem = target.name.removesuffix(".json").removesuffix(".loki")
    inputs = _write_starter(target, template) if template in STARTERS else _copy(target, template)
    options = [word for name, path in inputs.items() for word in ("--input", f"{name}={path}")]
    cache = f"{stem}_cache"
    steps = [
        shlex.join(["wtloki", *words])
        for words in (
            ["check", str(target), *options],
            ["explain", str(target)],
            ["run", str(target), *options, "--frames", "48", "--output", cache],
            ["preview", cache],
        )
    ]
    if as_json:
        paths = {name: str(path) for name, path in inputs.items()}
        print_json({"setup": str(target), "inputs": paths, "next": steps})
        return
    click.echo(f"wrote {' and '.join(str(path) for path in (target, *inputs.values()))}\nnext:")
    for step in steps:
        click.echo(f"  {step}")


def _list(*, as_json: bool) -> None:
    from loki_graph.templates import templates

    found = STARTERS | {one.name: one.doc for one in templates()}
    if as_json:
        print_json({"templates": [{"name": name, "doc": doc} for name, doc in found.items()]})
        return
    for name, doc in found.items():
        click.echo(f"{name:16}  {doc}")


def _write_starter(target: Path, template: str) -> dict[str, Path]:
    """Write a starter setup and its points; return the files of inputs."""
    import numpy as np

    from loki_core.setup_document import write_setup

    stem = target.name.removesuffix(".json").removesuffix(".loki")
    seeds = target.with_name(f"{stem}_seeds.npz")
    _make_room(target, seeds)
    write_setup(_build(template, stem), target)
    arrays: dict[str, Any] = _seeds(template)
    with seeds.open("xb") as stream:
        np.savez(stream, **arrays)
    return {"seeds": seeds}


def _copy(target: Path, name: str) -> dict[str, Path]:
    """Write a template's graph and the inputs that it suggests; return the files of inputs."""
    from loki_core.errors import InputError, did_you_mean
    from loki_graph.templates import templates
    from loki_vfx.serialization.atomic_file import write_packed

    known = {one.name: one for one in templates()}
    if name not in known:
        hint = did_you_mean(name, [*STARTERS, *known]) or "; wtloki new --list shows all"
        raise InputError(f'there is no template "{name[:80]}"{hint}')
    stem = target.name.removesuffix(".json").removesuffix(".loki")
    streams = known[name].suggested_inputs()
    inputs = {one: target.with_name(f"{stem}_{one}.loki") for one in streams}
    _make_room(target, *inputs.values())
    target.write_bytes(known[name].path.read_bytes())
    for one, path in inputs.items():
        write_packed(path, streams[one])
    return inputs


def _make_room(*paths: Path) -> None:
    """Refuse to overwrite files, and make their folder."""
    from loki_core.errors import InputError

    for path in paths:
        if path.exists():
            raise InputError(f"{path} is there already; choose another name or remove it")
        path.parent.mkdir(parents=True, exist_ok=True)


def _build(template: str, name: str) -> SolverSetup:
    from loki_core.forces.fluid_drag import FluidDragForce
    from loki_core.forces.gravity import GravityForce
    from loki_core.objects.particles.particles import ParticleObject
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
