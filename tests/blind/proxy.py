"""A proxy on loopback that holds whatever passes for a while."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

CHUNK: Final = 65536  # bytes


@contextmanager
def proxy_to(port: int, hold_s: float) -> Iterator[int]:
    """The port of a proxy to a port of this machine, which holds each message for `hold_s` seconds."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_serve, args=(server, port, hold_s), daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)  # ends the thread's wait


def _serve(server: socket.socket, port: int, hold_s: float) -> None:
    while True:
        try:
            near, _ = server.accept()
        except OSError:  # the context has ended
            return
        try:
            far = socket.create_connection(("127.0.0.1", port))
        except OSError:  # nobody listens yet: whoever asked tries again
            near.close()
            continue
        for pair in ((near, far), (far, near)):
            threading.Thread(target=_pass_on, args=(*pair, hold_s), daemon=True).start()


def _pass_on(source: socket.socket, target: socket.socket, hold_s: float) -> None:
    with suppress(OSError):  # either side may leave at any time
        while content := source.recv(CHUNK):
            time.sleep(hold_s)
            target.sendall(content)
        target.shutdown(socket.SHUT_WR)
