"""Where everything lives inside a state location: paths relative to its root."""

from __future__ import annotations

import hashlib
import re
from urllib.parse import quote

from anabranch.errors import InvalidArgument

FORMAT_FILE = "format.json"
FENCE_FILE = "fence.json"
LOCK_FILE = "lock"
ENDPOINT_FILE = "endpoint.json"
"""Where the service of this location listens; nothing secret."""
OPERATORS_FOLDER = "operators"
SAVEPOINTS_FOLDER = "savepoints"
AGENTS_FOLDER = "agents"
"""Files by which agents of hosts show that they see the location."""
JOURNAL_FOLDER = "journal"
"""What happened to the services of this location; nothing else needs it."""
SAVEPOINT_FILE = "savepoint.json"
"""Makes a savepoint exist: written last."""
RESTORE_FILE = "restore.json"
"""Which savepoint a location was made from."""
SITES_FILE = "sites.json"
"""Where sites were placed."""
TEMPORARY_SUFFIX = ".tmp"

_ESCAPED_LENGTH_MAX = 120
_EPOCH = re.compile(r"(\d{20})(?:\D.*)?\Z", re.DOTALL)


def escape(name: str, what: str = "An operator") -> str:
    """A name as one path component that every file system and object store takes."""
    if not name:
        raise InvalidArgument(f"{what} needs a name. Give one that is not empty.")
    escaped = quote(name, safe="", errors="surrogatepass")
    if escaped.startswith("."):  # "." and ".." are folders; a leading dot hides the rest
        escaped = "%2E" + escaped[1:]
    if len(escaped) <= _ESCAPED_LENGTH_MAX:
        return escaped
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{escaped[: _ESCAPED_LENGTH_MAX - 17]}~{digest}"


def operator_folder(operator: str) -> str:
    """Folder with all that belongs to one operator."""
    return f"{OPERATORS_FOLDER}/{escape(operator)}"


def operator_path(operator: str) -> str:
    """File with the operator's description, key space and query id."""
    return f"{operator_folder(operator)}/operator.json"


def manifest_folder(operator: str) -> str:
    """Folder of the manifests, one for each epoch."""
    return f"{operator_folder(operator)}/manifests"


def list_folder(operator: str) -> str:
    """Folder of the lists that manifests share."""
    return f"{operator_folder(operator)}/lists"


def changelog_folder(operator: str) -> str:
    """Folder of the changelog files."""
    return f"{operator_folder(operator)}/changelog"


def snapshot_folder(operator: str) -> str:
    """Folder of the snapshot files."""
    return f"{operator_folder(operator)}/snapshots"


def initial_folder(operator: str) -> str:
    """Folder of the initial state's files; garbage collection leaves them alone."""
    return f"{operator_folder(operator)}/initial"


def manifest_path(operator: str, epoch: int) -> str:
    """The manifest that makes an epoch exist."""
    return f"{manifest_folder(operator)}/{_digits(epoch)}.json"


def list_path(operator: str, epoch: int, writer: str, number: int) -> str:
    """A list that the manifest of `epoch` is the first to name; the name is used once."""
    return f"{list_folder(operator)}/{_digits(epoch)}-{escape(writer)}-{number}.json"


def changelog_path(
    operator: str, epoch: int, lane: int, worker: str, incarnation: str | int, attempt: int
) -> str:
    """A changelog file; the name is used once, so a late writer never overwrites another's file."""
    who = f"{escape(worker)}-{escape(str(incarnation))}"
    return f"{changelog_folder(operator)}/{_digits(epoch)}-{lane:05d}-{who}-{attempt}.changelog"


def snapshot_path(
    operator: str, epoch: int, worker: str, incarnation: str | int, sequence: int
) -> str:
    """A snapshot file with state as of `epoch`; `sequence` counts the writer's snapshot files."""
    who = f"{escape(worker)}-{escape(str(incarnation))}"
    return f"{snapshot_folder(operator)}/{_digits(epoch)}-{who}-{sequence}.snapshot"


def initial_path(operator: str, part: str | int) -> str:
    """A file of initial-state rows."""
    return f"{initial_folder(operator)}/{escape(str(part))}.initial"


def savepoint_folder(name: str) -> str:
    """Folder of a savepoint: a state location of its own, with SAVEPOINT_FILE."""
    return f"{SAVEPOINTS_FOLDER}/{escape(name, 'A savepoint')}"


def saved_checkpoint_folder(query_id: str) -> str:
    """Folder, in a savepoint, of a Spark checkpoint that goes on after it."""
    return f"checkpoints/{escape(query_id)}"


def origin_path(operator: str) -> str:
    """The manifest of what a savepoint brought: the state before the operator's first epoch."""
    return f"{manifest_folder(operator)}/origin.json"


def restored_path(operator: str, kind: str, savepoint: str, number: int) -> str:
    """A file that a savepoint brought; of epoch 0, so that it is garbage once no epoch needs it."""
    folder = snapshot_folder(operator) if kind == "snapshot" else changelog_folder(operator)
    return f"{folder}/{_digits(0)}-restored-{savepoint[:12]}-{number}.{kind}"


def epoch_of(path: str) -> int | None:
    """The epoch at the start of a file's name, also of a temporary one; None for a foreign file."""
    match = _EPOCH.match(path.rsplit("/", 1)[-1])
    return int(match.group(1)) if match else None


def manifest_epoch_of(path: str) -> int | None:
    """The epoch of a manifest's path; None for any other file."""
    name = path.rsplit("/", 1)[-1]
    return int(name[:20]) if re.fullmatch(r"\d{20}\.json", name, re.ASCII) else None


def _digits(epoch: int) -> str:
    assert 0 <= epoch < 10**20, f"not an epoch: {epoch}"
    return f"{epoch:020d}"
