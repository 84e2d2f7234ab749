"""Who may talk to a server: owner-only folders and files, tokens, keys.

ipc://...              in a folder that only its owner can enter: nothing more
tcp://127.0.0.1:PORT   a token from an owner-only file, or keys
tcp://anything:PORT    keys: the server's own pair, and one pair for each user
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from loki_core.errors import InputError, did_you_mean
from loki_core.operating_system import (
    belongs_to_another,
    current_user,
    rights_of_others,
    short_folder,
)
from loki_vfx.bridges.live.sockets import (
    TOKEN_USER,
    Credentials,
    Guard,
    has_socket_files,
    new_key_pair,
    public_key_of,
)

TOKEN_BYTES = 32
RESERVED_USERS = ("owner", TOKEN_USER)  # who the system itself lets in
_KEY = re.compile(r"[0-9a-f]{64}")
_USER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")


def settings_folder() -> Path:
    """Return where keys and tokens are kept: LOKI_CONFIG_DIR, or the user's configuration."""
    given = os.environ.get("LOKI_CONFIG_DIR")
    if given:
        return Path(given)
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "loki"


def socket_folder(root: Path) -> Path:
    """Return the owner-only folder of the sockets of a server that serves `root`.

    Paths of sockets are limited to about 100 letters, so it does not lie in the root itself.
    """
    name = blake2b(str(root.resolve()).encode(), digest_size=8).hexdigest()
    owner = owner_only_folder(short_folder() / f"loki-{current_user()}")
    return owner_only_folder(owner / name)


def owner_only_folder(folder: Path) -> Path:
    """Make a folder that nobody else can enter, or check that an existing one is such.

    Raises:
        InputError: It belongs to somebody else, or is open to others.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_owner(folder, folder.lstat())
    if not folder.is_dir() or folder.is_symlink():
        raise InputError(f"{folder} is no folder")
    return folder


def folder_of_runs(folder: Path) -> Path:
    """Return the folder of a server's runs, made if need be; others may look, and not write.

    Raises:
        InputError: It belongs to somebody else, or others can write to it: who can change a run
            decides what the solver does in its owner's name.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat()
    if belongs_to_another(found):
        raise InputError(f"{folder} belongs to another user; choose another place")
    if rights_of_others(found) & 0o022:
        raise InputError(f"others can write to {folder}; run: chmod go-w {folder}")
    return folder


def read_secret(path: Path) -> str:
    """Return the text of a file that only its owner can read.

    Raises:
        InputError: It is not there, or is open to others.
    """
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    with os.fdopen(handle, encoding="ascii", errors="replace") as file:
        _check_owner(path, os.fstat(file.fileno()))
        return file.read(1 << 16).strip()


def write_secret(path: Path, text: str) -> None:
    """Write a file that only its owner can read; an existing one is an error."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(text + "\n")


def _check_owner(path: Path, found: os.stat_result) -> None:
    if belongs_to_another(found):
        raise InputError(f"{path} belongs to another user; choose another place")
    if rights_of_others(found):
        raise InputError(
            f"{path} can be read by others; run: chmod go-rwx {path}, and make new keys if others "
            "may have seen it"
        )


# -- tokens ------------------------------------------------------------------------------------


def token_file() -> Path:
    """Return where the token of this user lies by default."""
    return settings_folder() / "token"


def read_token(path: Path, *, make: bool) -> str:
    """Return the token of a file; with `make` a missing one is written."""
    if make and not path.exists():
        write_secret(path, secrets.token_hex(TOKEN_BYTES))
    token = read_secret(path)
    if not re.fullmatch(r"[0-9a-f]{64}", token):
        raise InputError(f"{path} holds no token; remove it, and the server writes a new one")
    return token


# -- keys --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KeyFolder:
    """Keys of a user, or of a server and the users that it knows.

    folder/client.key        this user's secret key
    folder/server.key        the server's secret key
    folder/servers.json      public keys of servers, by endpoint, for clients
    folder/users/NAME.pub    public keys of users, for the server
    """

    folder: Path

    def own_key(self, name: str, *, make: bool = False) -> str:
        """Return the secret key "client" or "server"; with `make` a missing one is written."""
        path = self.folder / f"{name}.key"
        if make and not path.exists():
            write_secret(path, new_key_pair()[1])
        key = read_secret(path)
        if not _KEY.fullmatch(key):
            raise InputError(f"{path} holds no key of 64 hexadecimal digits")
        return key

    def public_key(self, name: str) -> str:
        """Return the public key that belongs to one of our own."""
        return public_key_of(self.own_key(name))

    def add_user(self, name: str, public_key: str) -> None:
        """Let a user in."""
        if not _USER.fullmatch(name) or name in RESERVED_USERS:
            raise InputError(f'user "{name[:80]}": expected letters, digits, . _ @ or -')
        if not _KEY.fullmatch(public_key):
            raise InputError("a public key has 64 hexadecimal digits; `wtloki keys show` prints it")
        folder = owner_only_folder(self.folder / "users")
        (folder / f"{name}.pub").write_text(public_key + "\n", encoding="ascii")

    def remove_user(self, name: str) -> None:
        """Shut a user out, from the next connection on."""
        path = self.folder / "users" / f"{name}.pub"
        if not _USER.fullmatch(name) or not path.exists():
            raise InputError(
                f'there is no user "{name[:80]}"{did_you_mean(name, self.users().values())}'
            )
        path.unlink()

    def users(self) -> Mapping[str, str]:
        """Return the names of known users by public key, as they are on the disk now."""
        found = {}
        for path in sorted((self.folder / "users").glob("*.pub")):
            key = path.read_text(encoding="ascii", errors="replace").strip()
            if _KEY.fullmatch(key):
                found[key] = path.stem
        return found

    def trust_server(self, endpoint: str, public_key: str) -> None:
        """Remember the public key of a server."""
        if not _KEY.fullmatch(public_key):
            raise InputError(
                "a public key has 64 hexadecimal digits; `wtloki keys show --server` prints it"
            )
        known = self._servers()
        known[endpoint] = public_key
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        text = json.dumps(known, indent=1, sort_keys=True)
        (self.folder / "servers.json").write_text(text, encoding="ascii")

    def server_key(self, endpoint: str) -> str | None:
        """Return the public key of a server that we trust; None for an unknown one."""
        return self._servers().get(endpoint)

    def _servers(self) -> dict[str, str]:
        path = self.folder / "servers.json"
        if not path.exists():
            return {}
        try:
            known = json.loads(path.read_text(encoding="ascii"))
            return {str(endpoint): str(key) for endpoint, key in known.items()}
        except (ValueError, AttributeError) as error:
            raise InputError(f"{path} is not readable: {error}") from error


# -- endpoints ---------------------------------------------------------------------------------


def is_loopback(endpoint: str) -> bool:
    """Whether an endpoint can only be reached from this machine over TCP."""
    host = endpoint.removeprefix("tcp://").rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_endpoint(endpoint: str) -> str:
    """Return "ipc" or "tcp".

    Raises:
        InputError: The endpoint is neither.
    """
    if endpoint.startswith("ipc://") and len(endpoint) > 6:
        return "ipc"
    if re.fullmatch(r"tcp://([A-Za-z0-9_.:-]+|\[[0-9A-Fa-f:]+\]|\*):(\d{1,5}|\*)", endpoint):
        return "tcp"
    raise InputError(f'"{endpoint[:200]}" is no endpoint; expected ipc://PATH or tcp://HOST:PORT')


def local_place(folder: Path, name: str) -> tuple[str, Guard | None]:
    """Return an endpoint for this user on this machine, and what guards it.

    It is a socket file in an owner-only folder; where the system has none, a port that asks for
    this user's token.
    """
    if has_socket_files():
        return f"ipc://{folder}/{name}.sock", None
    endpoint = "tcp://127.0.0.1:*"
    return endpoint, guard_for(endpoint, keys=None, token=None)


def guard_for(endpoint: str, *, keys: KeyFolder | None, token: Path | None) -> Guard | None:
    """Return what a server at an endpoint asks of its clients; None where the folder guards it.

    Raises:
        InputError: The endpoint needs keys, and there are none.
    """
    if check_endpoint(endpoint) == "ipc":
        owner_only_folder(Path(endpoint.removeprefix("ipc://")).parent)
        return None
    if keys is not None:
        secret = keys.own_key("server", make=True)
        return Guard(secret_key=secret, public_key=public_key_of(secret), users=keys.users)
    if not is_loopback(endpoint):
        raise InputError(
            f"{endpoint} can be reached from other machines, so it needs keys: `wtloki keys add "
            "NAME KEY` for each user, and --keys FOLDER"
        )
    return Guard(token=read_token(token or token_file(), make=True))


def credentials_for(
    endpoint: str, *, keys: KeyFolder | None, token: Path | None
) -> Credentials | None:
    """Return what a client shows at an endpoint; None where the folder is the key.

    Raises:
        InputError: A key or a token is missing.
    """
    if check_endpoint(endpoint) == "ipc":
        return None
    own = KeyFolder(settings_folder())
    if keys is None and (not is_loopback(endpoint) or own.server_key(endpoint) is not None):
        keys = own
    if keys is not None:
        server = keys.server_key(endpoint)
        if server is None:
            raise InputError(
                f"the key of the server at {endpoint} is not known; ask its owner for it, and "
                f"run: wtloki keys trust {endpoint} KEY"
            )
        secret = keys.own_key("client", make=True)
        return Credentials(public_key=public_key_of(secret), secret_key=secret, server_key=server)
    return Credentials(token=read_token(token or token_file(), make=False))
