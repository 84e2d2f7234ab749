"""`wtloki inspect`: show what is in a cache, checkpoint, volume, mesh or setup."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from loki_vfx.bridges.standalone.options import machine_options, print_json

EXIT_DAMAGED = 5
_SKIPPED = ("kind", "path", "objects", "channels", "problems", "tree", "counts", "bounds")


@click.command("inspect")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--frame", type=int, help="Show this frame of a cache; the last by default.")
@click.option("--verify", is_flag=True, help="Check every checksum; the exit code is 5 for damage.")
@machine_options
def command(path: Path, *, frame: int | None, verify: bool, as_json: bool) -> int:
    """Show what is in a frame cache, a checkpoint, a .vdb, a mesh or a setup file."""
    from loki_vfx.bridges.standalone.inspection import inspect_path

    found = inspect_path(path, frame=frame, verify=verify)
    if as_json:
        print_json(found)
    else:
        for line in _lines(found, verify=verify):
            click.echo(line)
    return EXIT_DAMAGED if found["problems"] else 0


def _lines(found: dict[str, Any], *, verify: bool) -> Iterator[str]:
    yield f"{found['path']}: {found['kind']}"
    for key, value in found.items():
        if key not in _SKIPPED and value not in (None, {}, []):
            yield f"  {key.replace('_', ' ')}: {_short(key, value)}"
    if "tree" in found:
        yield found["tree"]
    if found["kind"] == "stream":
        yield from _stream_lines(found, "  ")
    objects = found.get("objects", {})
    if isinstance(objects, dict):
        for path, stream in objects.items():
            yield f"  {path}"
            yield from _stream_lines(stream, "    ")
    elif objects:
        yield f"  objects: {', '.join(objects)}"
    statistics = found.get("statistics", {})
    yield from _conservation_table(statistics.get("exchanges", {}))
    yield from _volume_table(statistics.get("liquids", {}))
    for problem in found["problems"]:
        yield f"damaged: {problem}"
    if verify and not found["problems"]:
        yield "  every checksum is right"


def _conservation_table(exchanges: dict[str, dict[str, Any]]) -> Iterator[str]:
    """What couplings exchanged since the start, side by side, and what no side accounts for."""
    sides = ("to solids", "to fluid", "to walls", "unanswered")
    for path, one in exchanges.items():
        yield f"  {path}: exchanged in {one['steps']:,} substeps"
        yield f"    {'':<22}{'x':>14}{'y':>14}{'z':>14}"
        for side in sides:
            key = f"momentum_{side.replace(' ', '_')}"
            if key in one:  # caches of earlier versions have fewer
                yield _vector_line(f"momentum {side}", one[key], "N s")
        yield _vector_line("residual", one["momentum_residual"], "N s")
        energy = f"{one['energy_to_solids']:.6g} J to solids"
        if one["energy_to_fluid"] is not None:
            energy += f", {one['energy_to_fluid']:.6g} J to fluid"
        if one["heat"] is not None:
            energy += f", {one['heat']:.6g} J became heat"
        yield f"    energy: {energy}; mass: {one['mass']:g} kg"


def _volume_table(liquids: dict[str, dict[str, float]]) -> Iterator[str]:
    """Where the volume of liquids came from and went since the start, and what is there."""
    from loki_core.objects.liquid.liquid_account import NAMES

    for path, one in liquids.items():
        yield f"  {path}: volume that came and went"
        for name in (*NAMES, "volume", "missing"):
            yield f"    {name:<22}{one[name]:>14.6g} m^3"


def _vector_line(name: str, values: list[float] | None, unit: str) -> str:
    if values is None:
        return f"    {name:<22}{'not measured':>14}"
    return f"    {name:<22}" + "".join(f"{value:>14.6g}" for value in values) + f" {unit}"


def _stream_lines(stream: dict[str, Any], indent: str) -> Iterator[str]:
    from loki_core.wording import counted

    counts = ", ".join(counted(count, word) for word, count in stream["counts"].items() if count)
    yield f"{indent}{stream['type']}: {counts or 'empty'}"
    if "bytes" in stream:
        yield f"{indent}{_sizes(stream['bytes'], stream['plain_bytes'])}"
    if stream["bounds"] is not None:
        low, high = ([f"{x:.4g}" for x in corner] for corner in stream["bounds"])
        yield f"{indent}from ({', '.join(low)}) to ({', '.join(high)}) m"
    for channel in stream["channels"]:
        kind = channel["dtype"]
        if channel["components"] != 1:
            kind += f"[{channel['components']}]"
        spread = ""
        if channel["minimum"] is not None:
            spread = f"  {channel['minimum']:.6g} to {channel['maximum']:.6g}"
        if channel["not_finite"]:
            spread += f"  {channel['not_finite']} NOT FINITE"
        yield f"{indent}  {channel['location']:<10}{channel['name']:<18}{kind:<12}{spread}".rstrip()


def _sizes(stored: int, plain: int | None) -> str:
    """Return bytes on the disk, and what they were before; caches of earlier versions lack it."""
    if plain is None:
        return f"{stored:,} bytes"
    return f"{stored:,} bytes, {plain:,} uncompressed ({plain / max(stored, 1):.2g} : 1)"


def _short(key: str, value: Any) -> str:
    if key == "frames" and isinstance(value, list):
        return _ranges(value)
    if key == "checkpoints":
        return ", ".join(str(one) for one in value)
    if key == "bytes":
        return f"{value:,}"
    if isinstance(value, dict):
        tables = ("exchanges", "liquids")
        value = {name: one for name, one in value.items() if name not in tables}
        return ", ".join(f"{name} {_short(name, one)}" for name, one in value.items())
    return str(value)


def _ranges(frames: list[int]) -> str:
    """Return frames as `1-24, 30`."""
    parts: list[list[int]] = []
    for frame in frames:
        if parts and frame == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], frame]
        else:
            parts.append([frame])
    return ", ".join("-".join(str(one) for one in part) for part in parts)
