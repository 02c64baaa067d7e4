"""Signs of life: every rank tells the others how far it is, and hears when one of them is gone."""

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
from torch.distributed import Store  # type: ignore[attr-defined]  # it is there, where mypy can't see

from training.errors import PeerError
from training.session import RankStatus, Session

BEAT_EVERY: Final = 1.0  # s
SILENT_AFTER: Final = 20.0
"""Seconds without a sign of life after which a rank counts as gone, and every other one ends."""
GRACE_AFTER_FAILURE: Final = 5.0  # s that a rank has to fail by itself once another one has failed
PATIENCE: Final = 3.0  # s to wait for a sign of the others when something failed between the ranks
STORE_PATIENCE: Final = timedelta(seconds=10)


@dataclass
class _Peer:
    """What is known of a rank."""

    beat: str = ""
    changed: float = 0.0  # when `beat` was last another one, by this rank's monotonic clock

    def last_said(self, key: str) -> str:
        """One of the things that the rank last said of itself."""
        return str(json.loads(self.beat).get(key, "")) if self.beat else ""


class Heartbeat:
    """Beats for this rank and listens to the others, beside the training, until it is stopped.

    A rank that is killed takes its connections with it, and with gloo the others notice at once; one whose
    node stands still, or that stops inside a step, does not. This says which rank it was in either case.
    """

    def __init__(
        self,
        store: Store,
        rank: int,
        world_size: int,
        status: RankStatus,
        give_up: Callable[[PeerError], None],
    ) -> None:
        """Begin.

        Args:
            store: the one that the ranks met in.
            rank: this one.
            world_size: number of ranks.
            status: how far this rank is.
            give_up: ends the process; called beside the main thread, which may be stuck.
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
        """This rank's work is done: the others must not miss it."""
        self._done = True
        self._ended.set()
        self._thread.join(2 * STORE_PATIENCE.total_seconds())
        self._exchange()

    def announce_failure(self, fault: str) -> None:
        """Tell the others why this rank is about to end, and give them time to hear it.

        Where this process holds the store, it takes the store with it.
        """
        self._fault = fault
        self._exchange()
        time.sleep(1.5 * BEAT_EVERY)

    def statuses(self) -> list[dict[str, Any]]:
        """What every rank last said of itself, and for how many seconds it has been silent since."""
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
            patience: seconds to wait for a sign of each of them.
        """
        asked = time.monotonic()
        self._exchange()
        # What a rank said before may only be heard now: only what it says from now on shows that it lives.
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
                return self._describe_silent(patience) or "The ranks can't hear one another any more."
            time.sleep(BEAT_EVERY / 4)

    def _describe_silent(self, limit: float) -> str | None:
        """Who has been silent for longer than `limit` seconds, in a sentence each."""
        if time.monotonic() - self._answered > limit:
            return (
                f"The process that the ranks met at (rank 0's, or its torchrun) has not answered for "
                f"{time.monotonic() - self._answered:.0f} s."
            )
        silent = [
            self._sentence(rank, peer) for rank, peer in self._peers.items() if self._silent(peer) > limit
        ]
        return " ".join(silent) or None

    def _silent(self, peer: _Peer) -> float:
        """Seconds without a sign of a rank that is not done, as far as the store could have told."""
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
        """Tell and listen; while the store does not answer, nobody is heard."""
        if self._cut_off:
            return
        if not self._lock.acquire(timeout=STORE_PATIENCE.total_seconds()):
            return  # the other thread waits for the store
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
    """Watches the other ranks, for a process that may have none yet, or no others."""

    def __init__(self, give_up: Callable[[PeerError], None]) -> None:
        """Nobody is listened to yet.

        Args:
            give_up: ends the process; called beside the main thread.
        """
        self.status = RankStatus()
        self._give_up = give_up
        self._heartbeat: Heartbeat | None = None

    def start(self, store: Store | None, session: Session) -> None:
        """Begin to tell the others how far this rank is, and to listen to them; no store, no others."""
        if store is not None:
            self._heartbeat = Heartbeat(store, session.rank, session.world_size, self.status, self._give_up)
            self.status.of_all = self._heartbeat.statuses

    def stop(self) -> None:
        """This rank's work is done."""
        if self._heartbeat:
            self._heartbeat.stop()

    def announce_failure(self, fault: str) -> None:
        """Tell the others why this rank is about to end."""
        if self._heartbeat:
            self._heartbeat.announce_failure(fault)

    def describe_lost(self) -> str | None:
        """Which of the others are gone, in a sentence; None if all live."""
        return self._heartbeat.describe_lost(PATIENCE) if self._heartbeat else None
