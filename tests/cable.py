"""A network cable in user space: while it is cut nothing comes through, and no socket notices.

What was sent meanwhile comes through after it is healed, as TCP would send it again.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

BYTES_A_TURN = 1 << 18


class Cable:
    """Listens at an address of its own and passes everything on to another one, and back."""

    def __init__(self, target: str, host: str = "127.0.0.1") -> None:
        target_host, _, port = target.rpartition(":")
        self._target = target_host, int(port)
        self._host = host
        self._lets_in, self._lets_out = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._forgotten: set[socket.socket] = set()
        self._fillers: list[socket.socket] = []
        self._is_closed = False
        self.passed_bytes = 0
        """In both directions."""
        self._listener = self._listen(0)
        self.address = f"{host}:{self._listener.getsockname()[1]}"
        self.heal()

    def cut(self, inward: bool = True, outward: bool = True) -> None:
        """Nothing gets to the target any more, or from it; nobody new is answered."""
        if inward:
            self._lets_in.clear()
        if outward:
            self._lets_out.clear()
        self._acceptor.join(10)  # else it would take in what is to fill the queue
        with self._lock:
            if not self._fillers:
                self._fill()

    def heal(self, forget: bool = False) -> None:
        """As in the beginning, or as a firewall does that has forgotten the open connections."""
        with self._lock:
            if forget:
                self._forgotten |= self._sockets
        self._lets_in.set()
        self._lets_out.set()
        with self._lock:
            for filler in self._fillers:
                filler.close()
            self._fillers = []
        self._acceptor = threading.Thread(target=self._accept, name="test-cable", daemon=True)
        self._acceptor.start()

    def close(self) -> None:
        """End everything."""
        with self._lock:
            self._is_closed = True
            sockets = [*self._sockets, *self._fillers, self._listener]
        for each in sockets:
            _end(each)

    def __enter__(self) -> Cable:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- connections --

    def _listen(self, port: int) -> socket.socket:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((self._host, port))
        listener.listen(0 if port else 64)
        return listener

    def _fill(self) -> None:
        """With a full queue the kernel drops whoever asks to be connected, as a cut cable does."""
        self._listener.listen(0)
        for _ in range(3):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(self._listener.getsockname())
            self._fillers.append(filler)

    def _accept(self) -> None:
        self._listener.listen(64)
        while not self._is_closed and self._lets_in.is_set() and self._lets_out.is_set():
            self._listener.settimeout(0.05)
            try:
                near, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            if not (self._lets_in.is_set() and self._lets_out.is_set()):
                near.setblocking(True)
                self._keep(near)  # it came with the cut, and hears nothing
                return
            try:
                far = socket.create_connection(self._target, 10)
            except OSError:
                near.close()
                continue
            near.settimeout(None)
            far.settimeout(None)
            self._keep(near, far)
            for source, sink, lets in (
                (near, far, self._lets_in),
                (far, near, self._lets_out),
            ):
                threading.Thread(
                    target=self._pass, args=(source, sink, lets), name="test-cable", daemon=True
                ).start()

    def _keep(self, *sockets: socket.socket) -> None:
        with self._lock:
            is_late = self._is_closed
            self._sockets.update(sockets)
        for each in sockets if is_late else ():
            _end(each)

    def _pass(self, source: socket.socket, sink: socket.socket, lets: threading.Event) -> None:
        """One direction of a connection."""
        while True:
            try:
                data = source.recv(BYTES_A_TURN)
            except OSError:
                data = b""
            while not lets.wait(0.5):
                if self._is_closed:
                    return
            if source in self._forgotten:
                if not data:
                    return  # an end that nobody hears of
                continue
            try:
                if not data:
                    sink.shutdown(socket.SHUT_WR)
                    return
                sink.sendall(data)
                self.passed_bytes += len(data)
            except OSError:
                with contextlib.suppress(OSError):
                    source.shutdown(socket.SHUT_RDWR)
                return


def _end(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()


@contextmanager
def cable_to(address: str) -> Iterator[Cable]:
    """A cable for the time of a block."""
    with Cable(address) as cable:
        yield cable
