"""A host as tests see it: it runs processes, and one can look at them, stop them and kill them."""

from __future__ import annotations

import os
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

DISK_BYTES = 256 << 20
END_SECONDS = 20.0
FILL = """
import sys
with open(sys.argv[1], 'wb', buffering=0) as file:
    while True:
        file.write(bytes(1 << 20))
"""
FREE = "import os, sys\nos.remove(sys.argv[1])"


class Host(ABC):
    """A machine of a cluster; `disk` is its own folder, `address` its only one."""

    def __init__(self, name: str, address: str, folder: Path) -> None:
        self.name, self.address = name, address
        self.disk = folder / f"disk-{name}"
        self.disk.mkdir()
        self._started: list[subprocess.Popen[str]] = []

    @property
    def known_as(self) -> str:
        """What the other hosts, and Spark, call it."""
        return self.name

    def start(
        self,
        words: Sequence[str],
        log: Path,
        environment: Mapping[str, str] | None = None,
        talks: bool = False,
    ) -> subprocess.Popen[str]:
        """Start a process here; its standard error, and its output unless it talks, go to a log.

        What this returns holds it: the process itself is its only child.
        """
        own = {"SPARK_LOCAL_IP": self.address, "TMPDIR": str(self.disk), **(environment or {})}
        held, files, more = self._held(words)
        with log.open("ab") as file:
            process = subprocess.Popen(
                held,
                stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
                stdout=subprocess.PIPE if talks else file,
                stderr=file,
                env={**os.environ, **own, **more},
                text=True,
                bufsize=1,
                pass_fds=files,
                start_new_session=True,  # Ctrl-C is for whoever made the host
            )
        self._started.append(process)
        return process

    def close(self) -> None:
        """End all that runs here."""
        self._end()
        self.go_on()
        for process in self._started:
            process.wait(END_SECONDS)
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(BrokenPipeError):
                        pipe.close()

    @abstractmethod
    def _held(self, words: Sequence[str]) -> tuple[list[str], Sequence[int], Mapping[str, str]]:
        """Words that run these words here, the files that they need, and their environment."""

    @abstractmethod
    def _end(self) -> None:
        """Kill all that runs here."""

    @abstractmethod
    def lives_here(self, pid: int) -> bool:
        """Whether a process of this machine runs on this host."""

    def processes(self) -> dict[int, str]:
        """Command lines, by the number that the machine knows a process by."""
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            pid = int(entry.name)
            if self.lives_here(pid) and (line := _command_line(entry)):
                found[pid] = line
        return found

    def find(self, *parts: str) -> list[int]:
        """Processes whose command lines have all of these parts."""
        found = self.processes().items()
        return [pid for pid, line in found if all(part in line for part in parts)]

    def signal(self, number: signal.Signals, *parts: str) -> list[int]:
        """Send a signal to the processes that `find` finds; which these were."""
        found = self.find(*parts)
        for pid in found:
            try:
                os.kill(pid, number)
            except ProcessLookupError:  # it was faster
                continue
        return found

    def parents(self, *parts: str) -> list[int]:
        """Of the processes that `find` finds."""
        stats = (Path(f"/proc/{pid}/stat") for pid in self.find(*parts))
        return [int(stat.read_text().rpartition(")")[2].split()[1]) for stat in stats]

    def kill(self, *parts: str) -> list[int]:
        """kill -9."""
        return self.signal(signal.SIGKILL, *parts)

    def hang(self) -> None:
        """All processes stop, as on a machine that swaps itself to death."""
        self.signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """After `hang`."""
        self.signal(signal.SIGCONT)
        for process in self._started:  # nsenter stops itself with the process that it waits for
            process.send_signal(signal.SIGCONT)

    def seen_disk(self) -> Path:
        """The host's own disk, as the machine sees it."""
        return self.disk

    def fill_disk(self) -> None:
        """No byte is left on the host's own disk."""
        self._on_disk(FILL)

    def free_bytes(self) -> int:
        """Of its own disk."""
        found = os.statvfs(self.seen_disk())
        return found.f_bavail * found.f_frsize

    def free_disk(self) -> None:
        """After `fill_disk`."""
        self._on_disk(FREE)

    def _on_disk(self, program: str) -> None:
        words = ["python3", "-c", program, str(self.disk / "ballast")]
        self.start(words, Path(os.devnull)).wait(60)


def _command_line(entry: Path) -> str:
    try:
        words = (entry / "cmdline").read_bytes().split(b"\0")
    except OSError:  # it has ended
        return ""
    return " ".join(word.decode(errors="replace") for word in words if word)
