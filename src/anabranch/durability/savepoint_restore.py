"""Restore a savepoint into a new location: its state is what is there before the first epoch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from anabranch.durability import names
from anabranch.durability.copies import Folder, copy_files
from anabranch.durability.documents import seal, unseal
from anabranch.durability.manifest import MANIFEST_FORMAT, ROWS_WAIT, FileRef, Manifest
from anabranch.durability.manifest_content import Content
from anabranch.durability.savepoint import Savepoint
from anabranch.durability.store import RESTORED_FORMAT, StateStore
from anabranch.errors import InvalidArgument, StateMismatch
from anabranch.model.ids import BEFORE_FIRST
from anabranch.model.keyspace import KeySpace


def restore_savepoint(
    store: StateStore,
    path: str | None,
    keyspace: KeySpace,
    on_step: Callable[[str], None] = lambda step: None,
) -> None:
    """Bring a savepoint (None: none) into a location that was just opened; once, however often.

    A location that was made from the same savepoint stays as it is: the program may start again.
    """
    marker = _marker(store)
    if path is None:
        if marker is not None and not marker["done"]:
            raise StateMismatch(
                f"{store.blobs.location} was being made from savepoint {marker['path']} when the "
                "service ended. Start it with restore= that savepoint once more, or delete the "
                "location."
            )
        return
    found = Folder(store.blobs.beside(path))
    is_done = marker is not None and marker["done"]
    if is_done and marker["path"] == found.name:
        return  # it may be gone by now
    savepoint = Savepoint.open(found)
    # 1. Look before touching.
    if is_done and marker["id"] == savepoint.id:
        return
    _check(store, savepoint, marker, keyspace)
    savepoint.verify()
    # 2. Say so, in case that this ends midway; 3. files, then what lists them; 4. done.
    body = {"id": savepoint.id, "name": savepoint.name, "path": savepoint.path}
    store.blobs.write(names.RESTORE_FILE, seal({**body, "done": False}))
    store.blobs.write(names.FORMAT_FILE, seal({"anabranch_state_format": RESTORED_FORMAT}))
    on_step("restore-begun")
    for operator in savepoint.epochs:
        _restore_operator(store, savepoint, operator)
        on_step("restore-operator")
    store.check_fence()
    store.blobs.write(names.RESTORE_FILE, seal({**body, "done": True}))
    on_step("restore-after")


def _marker(store: StateStore) -> Any:
    if not store.blobs.exists(names.RESTORE_FILE):
        return None
    content = store.blobs.read(names.RESTORE_FILE).to_pybytes()
    return unseal(content, store.blobs.full_name(names.RESTORE_FILE))


def _check(store: StateStore, savepoint: Savepoint, marker: Any, keyspace: KeySpace) -> None:
    if savepoint.keyspace != keyspace:
        raise InvalidArgument(
            f"Savepoint {savepoint.path} has {savepoint.key_groups} key groups with "
            f"{savepoint.bins} bins, the service was asked for {keyspace.groups} with "
            f"{keyspace.bins}. They never change: say StateService(..., "
            f"key_groups={savepoint.key_groups}, bins={savepoint.bins}); the number of workers "
            "and lanes is free."
        )
    location = store.blobs.location
    if marker is not None and marker["id"] != savepoint.id:
        raise StateMismatch(
            f"{location} was made from another savepoint, {marker['path']}. Restore into a new "
            "location, or start without restore=."
        )
    if marker is None and (there := store.operators()):
        raise StateMismatch(
            f"{location} holds state already, of {', '.join(map(repr, there))}. Restore into a new "
            "location, or start without restore=."
        )


def _restore_operator(store: StateStore, savepoint: Savepoint, operator: str) -> None:
    manifest = savepoint.manifest(operator)
    copies: dict[str, str] = {}

    def moved(kind: str, refs: tuple[FileRef, ...]) -> tuple[FileRef, ...]:
        found = []
        for ref in refs:
            if ref.path not in copies:  # a pack has several
                number = len(copies)
                copies[ref.path] = names.restored_path(operator, kind, savepoint.id, number)
            path, epoch = copies[ref.path], ref.epoch - manifest.epoch - 1
            found.append(replace(ref, path=path, epoch=epoch))
        return tuple(found)

    origin: Manifest = replace(
        manifest,
        query_id=None,
        epoch=BEFORE_FIRST,
        format=MANIFEST_FORMAT,
        content=Content.of(
            snapshots=moved("snapshot", manifest.snapshots),
            changelogs=moved("changelog", manifest.changelogs),
        ),
    )
    copy_files(savepoint.folder, Folder(store.blobs), copies.items())
    store.blobs.write(names.origin_path(operator), origin.encode())
    saved = savepoint.record(operator)
    record = replace(
        saved,
        query_id=None,
        restored_query=saved.query_id,
        first_epoch=None,
        restored_epoch=savepoint.epochs[operator],
        continues=ROWS_WAIT in manifest.extra,
    )
    store.blobs.write(names.operator_path(operator), record.encode())
