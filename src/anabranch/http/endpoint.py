"""How callers find a service: a file in the location says where it listens, a private one how."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
from dataclasses import asdict, dataclass
from pathlib import Path

from anabranch.durability import names
from anabranch.durability.blobs import BlobStore
from anabranch.durability.documents import seal, unseal
from anabranch.errors import AnabranchError, InvalidArgument, ServiceUnavailable
from anabranch.http.tokens import Tokens

READER_VARIABLE = "ANABRANCH_READER_TOKEN_FILE"
"""Of the driver: a file with the token that may only read, for a Prometheus that stays."""
TOKEN_CHARACTERS_MIN = 32


@dataclass(frozen=True, slots=True)
class ServiceEndpoint:
    """Where a service listens; nothing secret."""

    id: str
    url: str
    pid: int
    host: str

    def write(self, blobs: BlobStore) -> None:
        """Tell it in the location."""
        blobs.write(names.ENDPOINT_FILE, seal(asdict(self)))

    def withdraw(self, blobs: BlobStore) -> None:
        """Unless another service has told its own meanwhile."""
        with contextlib.suppress(AnabranchError, OSError):
            if ServiceEndpoint.read(blobs) == self:
                blobs.delete(names.ENDPOINT_FILE)

    @classmethod
    def read(cls, blobs: BlobStore) -> ServiceEndpoint | None:
        """What the location tells; None: no service listens, or it cannot be read."""
        if not blobs.exists(names.ENDPOINT_FILE):
            return None
        name = blobs.full_name(names.ENDPOINT_FILE)
        try:
            body = unseal(blobs.read(names.ENDPOINT_FILE).to_pybytes(), name)
            return cls(body["id"], body["url"], body["pid"], body["host"])
        except (AnabranchError, KeyError, TypeError):
            return None


def runtime_folder() -> Path:
    """The user's folder for tokens, made if it is missing; refused if others could change it."""
    given = os.environ.get("XDG_RUNTIME_DIR")
    parent = Path(given) if given else Path.home() / ".local" / "state"
    folder = parent / "anabranch"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    about = folder.lstat()
    is_mine = stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid()
    if not is_mine or about.st_mode & 0o077:
        raise InvalidArgument(
            f"{folder} must be a folder of yours that nobody else can open, to keep tokens in. Run "
            f"`chmod 700 {folder}`, or set XDG_RUNTIME_DIR to a folder of yours."
        )
    return folder


class TokenFile:
    """The tokens of a service, for commands of the same user on the same machine."""

    def __init__(self, endpoint: ServiceEndpoint, folder: Path | None = None) -> None:
        self._folder = folder or runtime_folder()
        self.path = self._folder / f"{endpoint.id}.json"
        self._endpoint = endpoint

    def write(self, tokens: Tokens) -> None:
        """Only its owner may read it, from the first moment on."""
        self._sweep()
        content = {
            "pid": self._endpoint.pid,
            "operator": tokens.operator,
            "reader": tokens.reader,
        }
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0)
        with os.fdopen(os.open(self.path, flags, 0o600), "w") as file:
            json.dump(content, file)

    def read(self) -> str:
        """The operator's token."""
        try:
            return str(json.loads(self.path.read_text())["operator"])
        except FileNotFoundError:
            raise ServiceUnavailable(
                f"The tokens of the service at {self._endpoint.url} are not on this machine for "
                f"this user ({self.path}). Run the command as the user of its driver, on "
                f"{self._endpoint.host}, or set ANABRANCH_TOKEN."
            ) from None

    def delete(self) -> None:
        """The service ends."""
        self.path.unlink(missing_ok=True)

    def _sweep(self) -> None:
        """Files of services that had no time to delete them."""
        for path in self._folder.glob("*.json"):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                if not _lives(int(json.loads(path.read_text())["pid"])):
                    path.unlink()


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def tokens_of_user() -> Tokens:
    """New ones; the reader's may be in a file that Prometheus reads too, the same for each run."""
    given = os.environ.get(READER_VARIABLE)
    if not given:
        return Tokens()
    try:
        about, token = os.stat(given), Path(given).read_text("utf-8").strip()
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"{READER_VARIABLE}: cannot read {given}: {error}.") from None
    if about.st_mode & 0o007 or len(token) < TOKEN_CHARACTERS_MIN:
        raise InvalidArgument(
            f"{READER_VARIABLE}: {given} must have at least {TOKEN_CHARACTERS_MIN} characters, and "
            f"others may not open it. Run `openssl rand -hex 32 > {given}; chmod 640 {given}`."
        )
    return Tokens(reader=token)


def this_host() -> str:
    """The name that endpoints and owners have."""
    return socket.gethostname()
