"""Hosts as namespaces of Linux, joined by the switch: own network, processes, name and disk.

No namespace has a name, and each ends with its first process: there is nothing to clean up.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from anabranch.errors import InvalidArgument
from anabranch_bench.testbed import first_process
from anabranch_bench.testbed.hosts import DISK_BYTES, Host

SUBNET = "10.77.0."
MTU = 9000
"""Large frames: the switch is a Python program."""
TOOLS = ("ip", "mount", "nsenter", "unshare")


def why_not() -> str:
    """Why this machine cannot have namespaced hosts; empty if it can."""
    if sys.platform != "linux":
        return "Namespaced hosts need Linux."
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        return f"Namespaced hosts need {', '.join(missing)} (packages iproute2 and util-linux)."
    if os.geteuid() != 0:
        return "Namespaced hosts need root."
    if not os.path.exists("/dev/net/tun"):
        return "Namespaced hosts need /dev/net/tun: load the kernel module `tun`."
    trial = ("unshare", "--net", "--mount", "--pid", "--uts", "--fork", "--mount-proc", "true")
    done = subprocess.run(trial, capture_output=True, text=True, timeout=20, check=False)
    return f"Linux refuses namespaces: {done.stderr.strip()}" if done.returncode else ""


class NamespacedHost(Host):
    """Processes in namespaces of their own; on the machine they have numbers as all others."""

    def __init__(self, name: str, address: str, folder: Path, disk_bytes: int) -> None:
        super().__init__(name, address, folder)
        words = "unshare --net --mount --pid --uts --fork --mount-proc --kill-child=KILL"
        files = (str(folder / "hosts"), str(folder / "resolv.conf"))
        script = (sys.executable, "-I", first_process.__file__)
        with (folder / f"{name}.log").open("ab") as log:
            self._outer = subprocess.Popen(
                [*words.split(), *script, name, str(self.disk), str(disk_bytes), *files],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # Ctrl-C is for whoever made it
            )
        _expect_ok(self._outer, f"host {name} (see {folder / name}.log)")
        outer = self._outer.pid
        self.pid = int(Path(f"/proc/{outer}/task/{outer}/children").read_text().split()[0])
        self._namespace = os.readlink(f"/proc/{self.pid}/ns/pid")

    def plug_in(self, device: str) -> None:
        """Take a network device of the machine, and the host's address."""
        run("ip", "link", "set", device, "netns", str(self.pid))
        for words in (
            f"ip link set {device} name eth0",
            f"ip link set eth0 mtu {MTU}",
            f"ip addr add {self.address}/24 dev eth0",
            "ip link set eth0 up",
        ):
            run(*self._inside("--net"), *words.split())

    def seen_disk(self) -> Path:
        """Mounted in the host's namespace only."""
        return Path(f"/proc/{self.pid}/root{self.disk}")

    def limit_link(self, rate: str) -> None:
        """What leaves the host goes at this rate at most, such as `100mbit`."""
        shape = f"tc qdisc replace dev eth0 root tbf rate {rate} burst 256kb latency 100ms"
        run(*self._inside("--net"), *shape.split())

    def bytes_sent(self) -> int:
        """What has left its network card."""
        table = Path(f"/proc/{self.pid}/net/dev").read_text().splitlines()
        card = next(line for line in table if line.strip().startswith("eth0:"))
        return int(card.split(":")[1].split()[8])

    def _held(self, words: Sequence[str]) -> tuple[list[str], Sequence[int], Mapping[str, str]]:
        return [*self._inside("--net", "--mount", "--pid", "--uts"), *words], (), {}

    def lives_here(self, pid: int) -> bool:
        """Whether it is in the namespace; the first process is not counted."""
        try:
            return pid != self.pid and os.readlink(f"/proc/{pid}/ns/pid") == self._namespace
        except OSError:
            return False

    def _end(self) -> None:
        # The first process ends, and Linux kills all others.
        if self._outer.stdin is not None:
            self._outer.stdin.close()
        try:
            self._outer.wait(10)
        except subprocess.TimeoutExpired:
            self._outer.kill()
            self._outer.wait(10)
        if self._outer.stdout is not None:
            self._outer.stdout.close()

    def power_off(self) -> None:
        """All at once, as when somebody trips over the cable."""
        os.kill(self.pid, 9)

    def _inside(self, *namespaces: str) -> list[str]:
        return ["nsenter", "--target", str(self.pid), *namespaces, "--"]


class Network:
    """Namespaced hosts by name, and the switch between them; a context manager.

    >>> with Network(["driver", "h1", "h2"], folder) as network:      # doctest: +SKIP
    ...     network.cut("h1")
    """

    def __init__(
        self, names: Iterable[str], folder: Path, disk_bytes: Mapping[str, int] | None = None
    ) -> None:
        """Of each host, how many bytes its disk has (256 MiB)."""
        if reason := why_not():
            raise InvalidArgument(reason)
        self._folder = folder
        self._closing = ExitStack()
        self._disks = disk_bytes or {}
        self._names = list(names)
        self.hosts: dict[str, NamespacedHost] = {}

    def __enter__(self) -> Network:
        with self._closing as closing:
            self._write_names()
            for name in self._names:
                size = self._disks.get(name, DISK_BYTES)
                host = NamespacedHost(name, self._address(name), self._folder, size)
                self.hosts[name] = host
                closing.callback(host.close)
            self._start_switch()
            self._closing = closing.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closing.close()

    # -- cables --

    def cut(self, host: str, direction: str = "") -> None:
        """Nothing comes in or out; or only one direction of `in` and `out` is cut."""
        self._order(f"cut {host} {direction}".strip())

    def wall(self, host: str, other: str, port: int) -> None:
        """A host does not reach a port of another one, as behind a firewall."""
        self._order(f"wall {host} {other} {port}")

    def walled(self) -> int:
        """How many frames walls have stopped."""
        return int(self._order("walled"))

    def heal(self, host: str) -> None:
        """As in the beginning."""
        self._order(f"heal {host}")

    def delay(self, host: str, seconds: float) -> None:
        """Whatever leaves the host takes so long."""
        self._order(f"delay {host} {seconds}")

    def lose(self, host: str, share: float) -> None:
        """Of what leaves the host, this share of frames does not arrive."""
        self._order(f"loss {host} {share}")

    # -- making it --

    def _address(self, name: str) -> str:
        return SUBNET + str(1 + self._names.index(name))

    def _write_names(self) -> None:
        """Every host knows the others' names, and no name server: a missing one slows starts."""
        lines = ["127.0.0.1 localhost", *(f"{self._address(n)} {n}" for n in self._names)]
        (self._folder / "hosts").write_text("\n".join(lines) + "\n")
        # Nobody listens there: the answer is "refused", at once.
        (self._folder / "resolv.conf").write_text("nameserver 127.0.0.1\n")

    def _start_switch(self) -> None:
        devices = {name: f"ab{os.getpid()}_{n}" for n, name in enumerate(self._names)}
        ports = [f"{name}={device}" for name, device in devices.items()]
        module = "anabranch_bench.testbed.switch"
        self._switch = subprocess.Popen(
            [sys.executable, "-m", module, *ports],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            start_new_session=True,
        )
        self._closing_switch()
        _expect_ok(self._switch, "the switch")
        for name, device in devices.items():
            self.hosts[name].plug_in(device)

    def _closing_switch(self) -> None:
        def end() -> None:
            self._switch.kill()
            self._switch.communicate(timeout=10)

        self._closing.callback(end)

    def _order(self, line: str) -> str:
        assert self._switch.stdin is not None
        self._switch.stdin.write(line + "\n")
        return _expect_ok(self._switch, f"`{line}`")


def run(*words: str) -> None:
    """A command of the system that must succeed."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")


def _expect_ok(process: subprocess.Popen[str], what: str) -> str:
    """What it says besides."""
    assert process.stdout is not None
    answer, _, more = process.stdout.readline().strip().partition(" ")
    if answer != "ok":
        raise RuntimeError(f"{what} does not work: {answer} {more}" if answer else f"{what} ended.")
    return more
