"""The model store: a folder of models, which of them are current, and who has used which."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import json
import os
import pickle
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anabranch.errors import InvalidArgument
from anabranch.state.scratch import Scratch
from anabranch_bench.workloads.riotbench.models import KINDS, Trained, parse_name


@dataclass(frozen=True)
class ModelStore:
    """Uploads, downloads and, for each data set, the current model of each kind.

    Models are pickles: open only folders that you trust.
    """

    path: str

    def upload(self, trained: Trained) -> None:
        """Keep a model under its name. It is not current yet."""
        _write(Path(self._made(), trained.name), pickle.dumps(trained.model))

    def upload_next(
        self, dataset: str, train: Callable[[int], Sequence[Trained]]
    ) -> Sequence[Trained]:
        """Train and keep models with a number above those of all that the data set has here.

        Whatever the others were numbered by, these can become current.
        """
        with self._locked():
            made = train(self._newest(dataset) + 1)
            for trained in made:
                self.upload(trained)
        return made

    def load(self, name: str) -> Any:
        """A model by its name."""
        parse_name(name)
        return _loaded(str(Path(self.path, name)))

    def activate(self, name: str) -> None:
        """Make a model current, unless one with a higher number is: announcements may overtake."""
        dataset, kind, number = parse_name(name)
        if not Path(self.path, name).exists():
            raise InvalidArgument(f"There is no model {name} in {self.path}. Upload it first.")
        with self._locked():
            current = self.current(dataset).get(kind)
            if current is None or parse_name(current)[2] < number:
                _write(self._current(dataset, kind), name.encode())

    def current(self, dataset: str) -> dict[str, str]:
        """Names of the current models of a data set, by kind."""
        found = {}
        for kind in KINDS:
            with contextlib.suppress(FileNotFoundError):
                found[kind] = self._current(dataset, kind).read_text(encoding="utf-8")
        return found

    def _current(self, dataset: str, kind: str) -> Path:
        return Path(self.path, f"current-{dataset}-{kind}")

    def _newest(self, dataset: str) -> int:
        found = -1
        for file in Path(self._made()).glob(f"{dataset}-*.model"):
            with contextlib.suppress(InvalidArgument):  # not one of ours
                found = max(found, parse_name(file.name)[2])
        return found

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with open(Path(self._made(), "lock"), "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _made(self) -> str:
        os.makedirs(self.path, exist_ok=True)
        return self.path


@dataclass(frozen=True)
class Pins:
    """Which models a block of messages uses: decided once, by whoever needs it first.

    So all tasks of a batch agree, a batch that runs again predicts the same, and it can be told
    afterwards. A new model is used from the next block on that nobody has touched.
    """

    store: ModelStore
    dataset: str
    path: str
    block: int = 1000
    """Messages."""

    def models_of(self, block: int) -> dict[str, str]:
        """Names of the models of a block, by kind."""
        file = Path(self.path, str(block))
        with contextlib.suppress(FileNotFoundError):
            return _read(file)
        current = self.store.current(self.dataset)
        missing = [kind for kind in KINDS if kind not in current]
        if missing:
            raise InvalidArgument(
                f"There is no current model {' and '.join(missing)} of {self.dataset} in "
                f"{self.store.path}. Run `anabranch run riotbench --app train --dataset "
                f"{self.dataset}` with the same --models first."
            )
        os.makedirs(self.path, exist_ok=True)
        scratch = file.with_name(f"{block}.{uuid.uuid4().hex}")
        scratch.write_text(json.dumps(current), encoding="utf-8")
        # A link, other than a rename, fails if somebody else was first.
        with contextlib.suppress(FileExistsError):
            os.link(scratch, file)
        scratch.unlink()
        return _read(file)


def temporary_folder() -> str:
    """A new folder that is gone when this process is."""
    scratch = Scratch()
    atexit.register(scratch.close)
    return str(scratch.path)


def _read(file: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))
    return found


def _write(file: Path, content: bytes) -> None:
    scratch = file.with_name(f"{file.name}.{uuid.uuid4().hex}")
    scratch.write_bytes(content)
    scratch.replace(file)


@functools.lru_cache(maxsize=16)
def _loaded(file: str) -> Any:
    try:
        return pickle.loads(Path(file).read_bytes())
    except FileNotFoundError:
        raise InvalidArgument(f"There is no model {file}.") from None
