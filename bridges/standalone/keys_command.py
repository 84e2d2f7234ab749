"""`wtloki keys`: who may connect to a server from another machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from loki_vfx.bridges.standalone.options import machine_options, print_json

if TYPE_CHECKING:
    from loki_vfx.bridges.live.security import KeyFolder


@click.group("keys")
@click.option(
    "--folder",
    type=click.Path(),
    help="Keep keys in this folder; by default that of the user's settings.",
)
@click.pass_context
def command(ctx: click.Context, folder: str | None) -> None:
    """Make and exchange keys: a server knows its users, and users know their server.

    Every sub-command takes --json.

    \b
    On the server's machine:   wtloki keys show --server        give this key to the users
                               wtloki keys add anna KEY         let anna in
                               wtloki serve --listen tcp://*:5800 --keys FOLDER
    On anna's machine:         wtloki keys show                 give this key to the server's owner
                               wtloki keys trust tcp://host:5800 KEY
    """
    from loki_vfx.bridges.live.security import KeyFolder, settings_folder

    ctx.obj = KeyFolder(Path(folder) if folder else settings_folder())


@command.command("show")
@click.option("--server", is_flag=True, help="Print the key of the server on this machine.")
@machine_options
@click.pass_obj
def show(keys: KeyFolder, *, server: bool, as_json: bool) -> None:
    """Print the public key of this user, or of the server here."""
    name = "server" if server else "client"
    keys.own_key(name, make=True)
    public = keys.public_key(name)
    if as_json:
        print_json({"key": public, "folder": str(keys.folder)})
    else:
        click.echo(public)


@command.command("add")
@click.argument("name")
@click.argument("key")
@machine_options
@click.pass_obj
def add(keys: KeyFolder, name: str, key: str, *, as_json: bool) -> None:
    """Let a user in, by the public key of `wtloki keys show`."""
    keys.add_user(name, key)
    _tell({"added": name}, f"{name} may connect from now on", as_json=as_json)


@command.command("remove")
@click.argument("name")
@machine_options
@click.pass_obj
def remove(keys: KeyFolder, name: str, *, as_json: bool) -> None:
    """Shut a user out, from the next connection on."""
    keys.remove_user(name)
    text = f"{name} cannot connect any more; connections that are open stay until they end"
    _tell({"removed": name}, text, as_json=as_json)


@command.command("list")
@machine_options
@click.pass_obj
def show_list(keys: KeyFolder, *, as_json: bool) -> None:
    """List the users of a server here."""
    users = {name: key for key, name in keys.users().items()}
    if as_json:
        print_json({"users": users, "folder": str(keys.folder)})
        return
    for name, key in users.items():
        click.echo(f"{name}  {key}")


@command.command("trust")
@click.argument("endpoint")
@click.argument("key")
@machine_options
@click.pass_obj
def trust(keys: KeyFolder, endpoint: str, key: str, *, as_json: bool) -> None:
    """Remember the public key of a server, against impostors."""
    from loki_vfx.bridges.live.security import check_endpoint

    check_endpoint(endpoint)
    keys.trust_server(endpoint, key)
    text = f"connections to {endpoint} need that key from now on"
    _tell({"trusted": endpoint}, text, as_json=as_json)


def _tell(document: dict[str, str], text: str, *, as_json: bool) -> None:
    if as_json:
        print_json(document)
    else:
        click.echo(text)
