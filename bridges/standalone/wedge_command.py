"""`wtloki wedge`: run a scene in many variants, with a contact sheet and a table of costs."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from loki_vfx.bridges.standalone.options import (
    file_argument,
    machine_options,
    print_json,
    scene_options,
)

if TYPE_CHECKING:
    from loki_vfx.bridges.standalone.run_request import RunRequest
    from loki_vfx.bridges.standalone.wedge import Variant
    from loki_vfx.bridges.standalone.wedge_costs import Result
    from loki_vfx.bridges.standalone.wedge_folder import Plan, WedgeScene
    from loki_vfx.bridges.standalone.wedge_runs import Outcome

Function = TypeVar("Function", bound=Callable[..., Any])
EXIT_FAILED = 1


def wedge_options(function: Function) -> Function:
    """Add what is varied and which variants are meant."""
    for option in (
        click.option(
            "--collect",
            is_flag=True,
            help="Run nothing; write the table and the contact sheet of the frames on disk.",
        ),
        click.option(
            "--only", type=click.IntRange(1), metavar="INDEX", help="Run this variant alone."
        ),
        click.option(
            "--list",
            "--dry-run",
            "only_list",
            is_flag=True,
            help="List the variants and their commands; write and run nothing.",
        ),
        click.option(
            "--seed",
            type=int,
            default=0,
            show_default=True,
            help="Draw other variants with another seed.",
        ),
        click.option(
            "--random",
            "random_count",
            type=click.IntRange(1),
            metavar="N",
            help="Draw N variants from the lists and ranges.",
        ),
        click.option(
            "--together",
            is_flag=True,
            help="Pair first values with first, second with second, instead of all with all.",
        ),
        click.option(
            "--vary",
            "varied",
            multiple=True,
            metavar='"Group/Behavior.parameter=a,b,c"',
            help="Vary a parameter, a setting or an exposed name: over values a,b,c, or over a "
            "range a..b with --random; may be repeated.",
        ),
    ):
        function = option(function)
    return function


def variant_run_options(function: Function) -> Function:
    """Add how each variant is run and where to."""
    for option in (
        click.option(
            "--keep-checkpoints",
            type=click.IntRange(1, 10_000),
            default=3,
            show_default=True,
            help="Keep this many of the last checkpoints of each variant.",
        ),
        click.option(
            "--checkpoint-every",
            type=click.IntRange(0, 1_000_000),
            help="Write a checkpoint every so many frames, as wtloki run does.",
        ),
        click.option(
            "--overwrite",
            is_flag=True,
            help="Replace other simulations in the folders of variants.",
        ),
        click.option(
            "--threads",
            type=click.IntRange(1, 4096),
            help="Use this many threads on each rank; by default jobs share all cores.",
        ),
        click.option(
            "--ranks",
            type=click.IntRange(1, 65_536),
            default=1,
            show_default=True,
            help="Run each variant on this many processes.",
        ),
        click.option(
            "--jobs",
            type=click.IntRange(1, 1024),
            default=1,
            show_default=True,
            help="Run this many variants at a time.",
        ),
        click.option(
            "--output",
            type=click.Path(),
            help="Write variants into this folder; SCENE_wedge by default.",
        ),
        click.option(
            "--frames",
            metavar="N|A-B",
            help="Write N frames, the start state included, or frames A to B.",
        ),
    ):
        function = option(function)
    return function


def sheet_options(function: Function) -> Function:
    """Add how the contact sheet looks."""
    for option in (
        click.option("--sheet/--no-sheet", default=True, help="Write the contact sheet."),
        click.option(
            "--tile",
            metavar="WxH",
            default="480x360",
            show_default=True,
            help="Draw pictures of this size on the contact sheet [pixels].",
        ),
        click.option(
            "--color", metavar="CHANNEL", help="Colour by a channel, as wtloki preview does."
        ),
        click.option(
            "--frame", type=int, help="Show this frame on the contact sheet; the last by default."
        ),
    ):
        function = option(function)
    return function


@click.command("wedge")
@file_argument
@wedge_options
@scene_options
@variant_run_options
@sheet_options
@machine_options
def command(
    file: Path,
    *,
    varied: tuple[str, ...],
    together: bool,
    random_count: int | None,
    seed: int,
    only_list: bool,
    only: int | None,
    collect: bool,
    output: str | None,
    jobs: int,
    ranks: int,
    overwrite: bool,
    threads: int | None,
    frame: int | None,
    color: str | None,
    tile: str,
    sheet: bool,
    as_json: bool,
    **values: Any,
) -> int:
    """Run a scene once for every combination of some values.

    Each variant runs in a process and a folder of its own, wedge_0001 and so on; the failure of
    one stops no other. A second call skips complete variants and continues the rest. A table of
    costs and a contact sheet come at the end. The exit code is 1 if a variant failed.
    """
    from loki_core.operating_system import core_count
    from loki_vfx.bridges.standalone.job_folder import absolute_request
    from loki_vfx.bridges.standalone.run_request import RunRequest
    from loki_vfx.bridges.standalone.wedge_folder import WedgeScene, check_root, refuse_changed
    from loki_vfx.bridges.standalone.wedge_summary import write_summary

    size = _tile_size(tile)
    if only is not None and collect:
        raise click.UsageError("--only runs a variant and --collect runs none; choose one")
    root = Path.cwd() / (output or f"{_stem(file)}_wedge")
    given_threads = threads
    if threads is None and jobs > 1:
        threads = max(1, core_count() // (jobs * ranks))
    request = absolute_request(
        RunRequest(output=str(root), file=str(file), threads=threads, **values), Path.cwd()
    )
    _check_apart(varied, request.changes)
    check_root(root)
    scene = WedgeScene(request)
    variants = _variants(scene, varied, together=together, random_count=random_count, seed=seed)
    chosen = variants if only is None else [_chosen(variants, only)]
    scene.check(chosen)
    plans = [scene.plan(variant, root) for variant in chosen]
    if only_list:
        words = _own_words(
            replace(request, threads=given_threads),
            root,
            varied=varied,
            together=together,
            random_count=random_count,
            seed=seed,
            ranks=ranks,
            overwrite=overwrite,
        )
        pictures = ["--tile", tile, *([] if sheet else ["--no-sheet"])]
        pictures += [] if frame is None else ["--frame", str(frame)]
        pictures += [] if color is None else ["--color", color]
        _print_list(request, plans, words, pictures, ranks=ranks, as_json=as_json)
        return 0
    if not overwrite:
        refuse_changed(plans)
    outcomes: list[Outcome] = []
    if not collect:
        outcomes = _run(request, plans, ranks=ranks, jobs=jobs, as_json=as_json)
    plans = [scene.plan(variant, root) for variant in chosen]
    was_stopped = any(one.was_stopped for one in outcomes)
    results = _results(plans, outcomes)
    told: dict[str, Any] = {
        "event": "wedge",
        "scene": request.file,
        "output": str(root),
        "variants": [result.to_document() for result in results],
        "contact_sheet": None,
        "problems": [],
    }
    if only is None:
        picture = sheet and not was_stopped
        options: dict[str, Any] = {"frame": frame, "color": color, "size": size}
        write_summary(root, results, told, sheet=options if picture else None)
    if as_json:
        print_json(told)
    else:
        _print_results(results, told)
    if was_stopped:
        return 130
    return EXIT_FAILED if any(result.failure is not None for result in results) else 0


# -- what is varied ----------------------------------------------------------------------------


def _variants(
    scene: WedgeScene,
    varied: Sequence[str],
    *,
    together: bool,
    random_count: int | None,
    seed: int,
) -> list[Variant]:
    from loki_vfx.bridges.standalone.wedge import (
        all_combinations,
        paired_values,
        random_values,
        read_variations,
    )

    variations = read_variations(varied)
    if together and random_count is not None:
        raise click.UsageError("--together pairs values and --random draws them; choose one")
    if together:
        return paired_values(variations)
    if random_count is None:
        return all_combinations(variations)
    whole = [
        one.target
        for one in variations
        if one.span is not None
        and one.span.has_whole_ends
        # a parameter that is a whole number refuses a broken one
        and not scene.takes(f"{one.target}={one.span.text(_between(one.span))}")
    ]
    return random_values(variations, random_count, seed=seed, whole=whole)


def _between(span: Any) -> str:
    """A number in a range that is not whole."""
    low, high = float(span.low), float(span.high)
    inside = low + 0.381966 * (high - low)
    return repr(inside if inside != round(inside) else inside + 1e-6 * (high - low))


def _check_apart(varied: Sequence[str], changes: Sequence[str]) -> None:
    from loki_vfx.bridges.standalone.failures import UsageError

    set_already = {text.partition("=")[0].strip() for text in changes}
    for text in varied:
        target = text.partition("=")[0].strip()
        if target in set_already:
            raise UsageError(f"{target} is in --set and in --vary; leave one of them out")


def _chosen(variants: Sequence[Variant], index: int) -> Variant:
    from loki_vfx.bridges.standalone.failures import UsageError

    if index > len(variants):
        raise UsageError(f"--only {index}: the variants are 1 to {len(variants)}")
    return variants[index - 1]


def _stem(file: Path) -> str:
    return file.name.removesuffix(".json").removesuffix(".loki")


def _tile_size(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{2,4})x(\d{2,4})", text)
    if match is None or not all(16 <= int(one) <= 4096 for one in match.groups()):
        raise click.BadParameter(f'"{text}" is not WxH, such as 480x360', param_hint="--tile")
    return int(match[1]), int(match[2])


# -- the list ----------------------------------------------------------------------------------


def _own_words(
    request: RunRequest,
    root: Path,
    *,
    varied: Sequence[str],
    together: bool,
    random_count: int | None,
    seed: int,
    ranks: int,
    overwrite: bool,
) -> list[str]:
    """Return this command line, from anywhere, without what says which variants to run."""
    from loki_vfx.bridges.live.local_server import wtloki_command
    from loki_vfx.bridges.standalone.wedge_folder import request_words

    words = [*wtloki_command(), "wedge", *request_words(request)]
    for text in varied:
        words += ["--vary", text]
    words += ["--together"] if together else []
    if random_count is not None:
        words += ["--random", str(random_count), "--seed", str(seed)]
    words += ["--ranks", str(ranks)] if ranks > 1 else []
    words += ["--overwrite"] if overwrite else []
    return [*words, "--output", str(root)]


def _print_list(
    request: RunRequest,
    plans: Sequence[Plan],
    words: list[str],
    pictures: list[str],
    *,
    ranks: int,
    as_json: bool,
) -> None:
    """Print the variants and how each is run, and what shows them all, with its pictures."""
    from loki_vfx.bridges.standalone.wedge import short_names
    from loki_vfx.bridges.standalone.wedge_folder import plan_document
    from loki_vfx.bridges.standalone.wedge_runs import run_command_words

    listed = [
        {
            **plan_document(plan),
            "command": [*words, "--only", str(plan.variant.index)],
            "run": run_command_words(request, plan, ranks=ranks),
        }
        for plan in plans
    ]
    if as_json:
        print_json(
            {
                "event": "variants",
                "scene": request.file,
                "output": request.output,
                "variants": listed,
                "collect": [*words, *pictures, "--collect"],
            }
        )
        return
    names = short_names(plans[0].variant.values).values()
    heads = ["variant", *names, "state"]
    rows = [[p.variant.name, *p.variant.values.values(), p.state] for p in plans]
    _print_table(heads, rows)
    click.echo(f"\none of them:     {shlex.join([*words, '--only', 'INDEX'])}")
    click.echo(f"the table only:  {shlex.join([*words, *pictures, '--collect'])}")


# -- the runs ----------------------------------------------------------------------------------


def _run(
    request: RunRequest, plans: Sequence[Plan], *, ranks: int, jobs: int, as_json: bool
) -> list[Outcome]:
    """Run what is not complete; tell of each variant when it begins and ends."""
    from loki_vfx.bridges.standalone.run_command import stop_on_signals
    from loki_vfx.bridges.standalone.wedge_runs import WedgeRuns

    def tell(plan: Plan, state: str, message: str = "") -> None:
        one = plan.variant
        if as_json:
            event = {"event": "variant", "index": one.index, "name": one.name}
            print_json({**event, "values": one.values, "state": state, "message": message})
        else:
            click.echo(f"{one.name} ({one}): {state}{f': {message}' if message else ''}")

    def begin(plan: Plan) -> None:
        tell(plan, "goes on" if plan.state == "partial" else "begins")

    def end(outcome: Outcome) -> None:
        if outcome.failure is None:
            tell(outcome.plan, "complete")
        else:
            word = "stopped" if outcome.was_stopped else "failed"
            tell(outcome.plan, word, outcome.failure.message)

    for plan in plans:
        if plan.state == "complete":
            tell(plan, "complete already")
    waiting = [plan for plan in plans if plan.state != "complete"]
    runs = WedgeRuns(request, ranks=ranks, jobs=jobs, begin=begin, end=end)
    with stop_on_signals(runs.stop):
        return runs.run(waiting)


def _results(plans: Sequence[Plan], outcomes: Sequence[Outcome]) -> list[Result]:
    """Return what became of each variant, in this call or before it."""
    from loki_vfx.bridges.standalone.wedge_costs import Cost, Result, read_cost
    from loki_vfx.bridges.standalone.wedge_folder import failure_there

    ended = {one.plan.variant.index: one for one in outcomes if not one.was_stopped}
    results = []
    for plan in plans:
        outcome = ended.get(plan.variant.index)
        failure = None if outcome is None else outcome.failure
        if outcome is None and plan.state in ("new", "partial"):
            failure = failure_there(plan.folder)
        cost = Cost() if plan.state == "changed" else read_cost(plan.folder)
        results.append(Result(plan, cost, failure))
    return results


# -- the summary -------------------------------------------------------------------------------


def _print_results(results: Sequence[Result], told: dict[str, Any]) -> None:
    from loki_vfx.bridges.standalone.wedge_costs import columns, row
    from loki_vfx.bridges.standalone.wedge_folder import SHEET, TABLE

    _print_table(columns(results), [row(result) for result in results])
    failed = [result for result in results if result.failure is not None]
    if failed:
        click.echo(f"\n{len(failed)} of {len(results)} failed:")
        _print_table(
            ["variant", "exit code", "why"],
            [
                [one.plan.variant.name, str(one.failure.exit_code), one.failure.message]
                for one in failed
                if one.failure is not None
            ],
        )
    for problem in told["problems"]:
        click.echo(f"warning: {problem}", err=True)
    if told["contact_sheet"]:
        click.echo(f"\n{told['output']}: {TABLE}, {SHEET}")


def _print_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from loki_vfx.bridges.standalone.wedge_costs import plain_table, rich_table

    if sys.stdout.isatty():
        from rich.console import Console

        Console().print(rich_table(heads, rows))
    else:
        click.echo(plain_table(heads, rows))
