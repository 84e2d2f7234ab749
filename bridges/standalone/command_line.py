"""The `wtloki` command: the list of its sub-commands, and what every one of them has in common.

Sub-commands are imported when they are called, so that `wtloki --help` is quick. Whatever goes
wrong ends in one clear message and an exit code that means something:

    0  all is well                 4  input data that cannot be simulated
    1  any other failure           5  a file that is damaged, too new or too large
    2  wrong use of the command    6  Tasks that cannot be ordered
    3  a wrong setup or graph      7  a substep that stayed bad
    8  a disk that is full       130  stopped on request
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any

import click

#: Module and one line of help for each sub-command, in the order of `--help`. A module holds a
#: click command called `command`.
COMMANDS = {
    "new": ("new_command", "Write a starter Solver Setup or a template."),
    "check": ("check_command", "Report what would go wrong, without running."),
    "explain": ("explain_command", "Show the tree, the schedule, and the origin of values."),
    "run": ("run_command", "Run a Solver Setup or a Loki Graph into a frame cache."),
    "wedge": ("wedge_command", "Run a scene in many variants, and compare them."),
    "serve": ("serve_command", "Serve hosts: run their scenes, and keep them running."),
    "submit": ("submit_command", "Run as a batch job of Slurm, or of another batch system."),
    "top": ("top_command", "Show the runs of a server, and their time and memory."),
    "keys": ("keys_command", "Let users on other machines connect to a server."),
    "inspect": (
        "inspect_command",
        "Show the content of a cache, checkpoint, volume, mesh or setup.",
    ),
    "preview": ("preview_command", "Render a picture of a cached frame."),
    "export": ("export_command", "Write a cache as USD or VDB, for programs without Loki."),
    "warm": ("warm_command", "Compile kernels before they are needed."),
    "example": ("example_command", "Run a scene of the gallery."),
    "validate": ("validate_command", "Compare physics with measured and analytical results."),
    "bench": ("bench_command", "Measure speed and memory."),
    "reference": ("reference_command", "Write the reference pages of every declaration."),
}


class LazyGroup(click.Group):
    """A group that imports a sub-command when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a sub-command; None is an unknown one."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"loki_vfx.bridges.standalone.{COMMANDS[cmd_name][0]}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the nearest command when there is no such one."""
        if args and args[0] not in COMMANDS:
            from loki_core.errors import did_you_mean

            hint = did_you_mean(args[0], COMMANDS)
            raise click.UsageError(f'there is no command "{args[0]}"{hint}', ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table, so that none of them is imported."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


def _show_version(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from loki_vfx.bridges.standalone.versions import loki_version

        click.echo(f"wtloki {loki_version()}")
        ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
def wtloki() -> None:
    """Simulate with Loki from the command line.

    Start with `wtloki example fountain`, or write a setup of your own with `wtloki new`.
    Every command takes --json for machines and --debug for a traceback.
    """


def main(arguments: list[str] | None = None) -> None:
    """Run the command and exit with its code."""
    given = sys.argv[1:] if arguments is None else arguments
    sys.exit(run_command(given))


def run_command(arguments: list[str]) -> int:
    """Run the command with these arguments and return its exit code."""
    as_json = "--json" in arguments
    try:
        result = wtloki.main(arguments, prog_name="wtloki", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return 2
    except click.ClickException as error:
        if as_json:
            _print_json_error("UsageError", error.format_message(), 2)
        else:
            error.show()
        return 2
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (KeyboardInterrupt, click.exceptions.Abort):
        click.echo("stopped", err=True)
        return 130
    except Exception as error:  # the last place where a failure can become a message
        from loki_vfx.bridges.standalone.failures import describe_failure

        failure = describe_failure(error)
        if "--debug" in arguments or os.environ.get("LOKI_DEBUG") == "1":
            import traceback

            traceback.print_exception(error)
        if as_json:
            _print_json_error(failure.kind, failure.message, failure.exit_code)
        else:
            click.echo(f"error: {failure.message}", err=True)
        return failure.exit_code


def _print_json_error(kind: str, message: str, exit_code: int) -> None:
    event: dict[str, Any] = {"event": "error", "error": kind, "message": message}
    click.echo(json.dumps({**event, "exit_code": exit_code}))


if __name__ == "__main__":
    main()
