"""Signs of life: every rank tells the others how far it is, and notices when one of them is gone."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import torch.distributed as dist
from torch.distributed import Store  # type: ignore[attr-defined]  # exists, but mypy can't see it

from training.errors import PeerError
from training.session import RankStatus, Session

BEAT_EVERY: Final = 1.0  # s
SILENT_AFTER: Final = 20.0
"""Seconds without a sign of life after which a rank counts as gone, and all others exit."""
GRACE_AFTER_FAILURE: Final = 5.0  # s that a rank has to fail by itself once another one has failed
PATIENCE: Final = 3.0  # s to wait for a sign of life from the others when communication failed
STORE_PATIENCE: Final = timedelta(seconds=10)


@dataclass
class _Peer:
    """What is known of a rank."""

    beat: str = ""
    changed: float = 0.0  # when `beat` last changed, by this rank's monotonic clock

    def last_said(self, key: str) -> str:
        """One entry of the rank's last heartbeat."""
        return str(json.loads(self.beat).get(key, "")) if self.beat else ""


class Heartbeat:
    """Beats for this rank and listens to the others, in a thread beside the training, until it is stopped.

    When a rank is killed its connections break, and with gloo the others notice immediately; when its node
    freezes, or it hangs inside a step, they don't. This says which rank it was in either case.
    """

    def __init__(
        self,
        store: Store,
        rank: int,
        world_size: int,
        status: RankStatus,
        give_up: Callable[[PeerError], None],
    ) -> None:
        """Start beating.

        Args:
            store: the rendezvous store.
            rank: this rank's number.
            world_size: number of ranks.
            status: this rank's progress.
            give_up: ends the process; not called in the main thread, which may be stuck.
        """
        self._store = store.clone()  # type: ignore[attr-defined]
        self._store.set_timeout(STORE_PATIENCE)
        self._rank = rank
        self._status = status
        self._give_up = give_up
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._count = 0
        self._beat = ""
        self._fault = ""
        self._done = False
        self._cut_off = False  # from the store, for good
        self._answered = time.monotonic()  # when the store last answered
        self._peers = {other: _Peer(changed=self._answered) for other in range(world_size) if other != rank}
        self._publish()
        self._thread = threading.Thread(target=self._watch, name="liveness", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Tell the others that this rank is done, so that they don't miss it."""
        self._done = True
        self._ended.set()
        self._thread.join(2 * STORE_PATIENCE.total_seconds())
        self._exchange()

    def announce_failure(self, fault: str) -> None:
        """Tell the others why this rank is about to exit, and give them time to hear it.

        If this process hosts the store, the store goes with it.
        """
        self._fault = fault
        self._exchange()
        time.sleep(1.5 * BEAT_EVERY)

    def statuses(self) -> list[dict[str, Any]]:
        """Every rank's last report of itself, and for how many seconds it has been silent since."""
        beats = {rank: (peer.beat, self._silent(peer)) for rank, peer in self._peers.items() if peer.beat}
        beats[self._rank] = (self._beat, 0.0)
        return [
            {"rank": rank, "host": status["host"], "phase": status["phase"], "silent_s": round(silent, 1)}
            | status["figures"]
            for rank, (beat, silent) in sorted(beats.items())
            for status in [json.loads(beat)]
        ]

    def describe_lost(self, patience: float) -> str | None:
        """Which ranks have failed or gone silent, in one sentence; None if all seem alive.

        Args:
            patience: seconds to wait for a sign of life from each of them.
        """
        asked = time.monotonic()
        self._exchange()
        # The heartbeats read just now may be old: only newer ones show that a rank is alive.
        before = {rank: peer.beat for rank, peer in self._peers.items()}
        while True:
            self._exchange()
            failed = [
                f"Rank {rank} on {peer.last_said('host')} failed: {fault}"
                for rank, peer in self._peers.items()
                if (fault := peer.last_said("fault"))
            ]
            if failed:
                return " ".join(failed)
            missing = [
                rank
                for rank, peer in self._peers.items()
                if not peer.last_said("done") and peer.beat == before[rank]
            ]
            if not missing:
                return None
            if time.monotonic() - asked >= patience:
                return self._describe_silent(patience) or "The ranks can no longer hear one another."
            time.sleep(BEAT_EVERY / 4)

    def _describe_silent(self, limit: float) -> str | None:
        """Who has been silent for longer than `limit` seconds, one sentence each; None if nobody."""
        if time.monotonic() - self._answered > limit:
            return (
                f"The rendezvous store (held by rank 0, or by its torchrun) has not answered for "
                f"{time.monotonic() - self._answered:.0f} s."
            )
        silent = [
            self._sentence(rank, peer) for rank, peer in self._peers.items() if self._silent(peer) > limit
        ]
        return " ".join(silent) or None

    def _silent(self, peer: _Peer) -> float:
        """Seconds from a rank's last sign of life to the store's last answer; 0 for a rank that is done."""
        return 0.0 if peer.last_said("done") else self._answered - peer.changed

    def _sentence(self, rank: int, peer: _Peer) -> str:
        host, silent = peer.last_said("host"), self._silent(peer)
        return (
            f"Rank {rank} on {host} is gone: no sign of life for {silent:.0f} s; "
            f"its last one came from {peer.last_said('where')}."
        )

    def _watch(self) -> None:
        while not self._ended.wait(BEAT_EVERY):
            self._exchange()
            if silence := self._describe_silent(SILENT_AFTER):
                self._give_up(PeerError(silence))
                return
            if any(peer.last_said("fault") for peer in self._peers.values()) and not self._ended.wait(
                GRACE_AFTER_FAILURE
            ):
                self._give_up(PeerError(self.describe_lost(0) or "Another rank failed."))
                return

    def _exchange(self) -> None:
        """Publish this rank's heartbeat and read the others', if the store answers."""
        if self._cut_off:
            return
        if not self._lock.acquire(timeout=STORE_PATIENCE.total_seconds()):
            return  # the other thread is waiting for the store
        try:
            self._publish()
            keys = [f"life/{rank}" for rank in self._peers]
            if not self._store.check(keys):
                return
            beats = [value.decode() for value in self._store.multi_get(keys)]
        except dist.DistNetworkError:
            self._cut_off = True
            return
        except dist.DistError:
            return
        finally:
            self._lock.release()
        self._answered = time.monotonic()
        for peer, beat in zip(self._peers.values(), beats, strict=True):
            if beat != peer.beat:
                peer.beat, peer.changed = beat, self._answered

    def _publish(self) -> None:
        self._count += 1
        beat = {
            "count": self._count,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "where": str(self._status),
            "phase": self._status.phase(),
            "figures": self._status.figures,
        }
        if self._fault:
            beat["fault"] = self._fault
        if self._done:
            beat["done"] = "yes"
        self._beat = json.dumps(beat)
        self._store.set(f"life/{self._rank}", self._beat)


class PeerMonitor:
    """Watches the other ranks, for a process that may not have met them yet, or has none."""

    def __init__(self, give_up: Callable[[PeerError], None]) -> None:
        """Not listening yet.

        Args:
            give_up: ends the process; not called in the main thread.
        """
        self.status = RankStatus()
        self._give_up = give_up
        self._heartbeat: Heartbeat | None = None

    def start(self, store: Store | None, session: Session) -> None:
        """Start telling the others how far this rank is, and listening to them; no store means no others."""
        if store is not None:
            self._heartbeat = Heartbeat(store, session.rank, session.world_size, self.status, self._give_up)
            self.status.of_all = self._heartbeat.statuses

    def stop(self) -> None:
        """Tell the others that this rank is done."""
        if self._heartbeat:
            self._heartbeat.stop()

    def announce_failure(self, fault: str) -> None:
        """Tell the others why this rank is about to exit."""
        if self._heartbeat:
            self._heartbeat.announce_failure(fault)

    def describe_lost(self) -> str | None:
        """Which of the others are gone, in one sentence; None if all are alive."""
        return self._heartbeat.describe_lost(PATIENCE) if self._heartbeat else None
