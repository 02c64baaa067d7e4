"""What the stand-in master knows of experiments: trials, the runs of these, and what a search gives them.

As in the real one, a trial's runs are counted (`trial_run_id`): it has one more whenever it is begun again.
`restarts` counts only those that followed an error of its own.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import InitVar, dataclass, field
from datetime import UTC, datetime
from typing import Any

LONG_AGO = -1e9
REQUEUED_S = 1.5  # from the end of a lost run until its trial may get slots again
CONCURRENT = 16  # trials of a search at a time, unless its configuration says otherwise
ENDED = ("STATE_COMPLETED", "STATE_ERROR", "STATE_CANCELED")
PLACED = ("STATE_STARTING", "STATE_RUNNING")
GONE = "RM failed to restore the allocation: container is gone on reattachment"
AGENT_LOST = "agent failed while container was running"
SEVERAL = ("random", "adaptive_asha", "async_halving")  # searchers that make `max_trials`


def now() -> str:
    """The current time, as the master writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@dataclass
class Trial:
    """One trial, and its newest run."""

    id: int
    experiment: int
    hparams: dict[str, Any]
    state: str = "STATE_QUEUED"
    run: int = 0  # number of its newest run; 0 before the first
    restarts: int = 0
    agents: list[str] = field(default_factory=list)  # of the run, once for each slot
    begun: list[str] = field(default_factory=list)  # agents that were told to start their container
    up: list[str] = field(default_factory=list)  # agents that have said that their container runs
    exits: dict[str, int] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    started: str = field(default_factory=now)
    ended: str | None = None
    not_before: float = 0.0  # monotonic time before which it gets no slots

    @property
    def key(self) -> str:
        """Names its newest run, and that run's containers."""
        return f"{self.id}.{self.run}"

    @property
    def name(self) -> str:
        """As its log and the list of tasks have it."""
        return f"Trial {self.id} (Experiment {self.experiment})"

    def tell(self, text: str, level: str = "INFO") -> None:
        """Add a line of the master to its log."""
        self.log.append(f"[{now()}]          || {level}: {text}\n")

    def begin(self, agents: list[str]) -> None:
        """Begin its next run, on these agents."""
        self.run += 1
        self.state, self.agents = "STATE_STARTING", agents
        self.begun, self.up, self.exits = [], [], {}
        self.tell(f"Scheduling {self.name} (id: {self.experiment}.{self.id}.{self.run})")
        self.tell(f"{self.name} was assigned to an agent")

    def runs_on(self, agent: str) -> None:
        """An agent says that its container runs."""
        if agent not in self.up:
            self.up.append(agent)
            self.tell(f"Resources for {self.name} have started")
        if set(self.up) == set(self.agents):
            self.state = "STATE_RUNNING"

    def lose(self, why: str) -> None:
        """Give up its run, which is not its own fault; it is begun again, and that is no restart."""
        self.tell(f"crashed: {why}", "ERROR")
        self.tell(f"forcibly killing allocation's remaining resources (reason: some resources failed: {why})")
        self.tell(f"{self.name} was terminated: allocation failed: {why}", "ERROR")
        self._queue()

    def finish(self, max_restarts: int) -> None:
        """All containers of its run have ended."""
        if all(code == 0 for code in self.exits.values()):
            self.end("STATE_COMPLETED")
        elif self.restarts < max_restarts:
            self.restarts += 1
            self._queue()
        else:
            self.end("STATE_ERROR")

    def end(self, state: str) -> None:
        """Mark it as ended in this state, unless it has ended."""
        if self.state not in ENDED:
            self.state, self.ended = state, now()

    def _queue(self) -> None:
        self.state, self.agents, self.exits = "STATE_QUEUED", [], {}
        self.not_before = time.monotonic() + REQUEUED_S


@dataclass
class Experiment:
    """One experiment; unless it is a search, it has one trial with the same number."""

    id: int
    config: dict[str, Any]
    context: list[dict[str, Any]]
    username: str
    state: str = "STATE_QUEUED"
    started: str = field(default_factory=now)
    ended: str | None = None
    agents: InitVar[Sequence[str]] = ()  # of the only trial, if it is placed already
    trials: list[Trial] = field(default_factory=list)
    to_come: list[dict[str, Any]] = field(default_factory=list)  # hyperparameters of trials not yet made
    closed: float = LONG_AGO  # monotonic time of its end

    def __post_init__(self, agents: Sequence[str]) -> None:
        """Make its trial, unless it has some."""
        if not self.trials and not self.to_come:
            (hparams,) = hyperparameters({**self.config, "searcher": {"name": "single"}}, self.id)
            run = 1 if agents else 0
            self.trials = [Trial(self.id, self.id, hparams, self.state, run, agents=list(agents))]

    @property
    def slots(self) -> int:
        """Slots that each of its trials asks for."""
        return int(self.config["resources"]["slots_per_trial"])

    @property
    def may_place(self) -> bool:
        """Whether one more of its trials may have slots."""
        most = self.config["resources"].get("max_slots")
        placed = sum(trial.state in PLACED for trial in self.trials)
        return most is None or (placed + 1) * self.slots <= int(most)

    @property
    def log(self) -> list[str]:
        """The logs of its trials, one after another."""
        return [line for trial in self.trials for line in trial.log]

    def tell(self, text: str) -> None:
        """Add a line to the first trial's log."""
        self.trials[0].tell(text)

    def end(self, state: str) -> None:
        """Mark it, and all its trials, as ended in this state."""
        for trial in self.trials:
            trial.end(state)
        self.state, self.ended = state, now()
        self.context, self.to_come = [], []
        self.closed = time.monotonic()

    def settle(self, next_id: Callable[[], int]) -> None:
        """Make the trials that may come next, and follow the state of those that are there."""
        most = int(self.config["searcher"].get("max_concurrent_trials") or CONCURRENT)
        while self.to_come and sum(trial.state not in ENDED for trial in self.trials) < most:
            self.trials.append(Trial(next_id(), self.id, self.to_come.pop(0)))
        found = {trial.state for trial in self.trials}
        if found <= set(ENDED):
            # As with the real one, a search fails only if all its trials do.
            self.end("STATE_ERROR" if found == {"STATE_ERROR"} else "STATE_COMPLETED")
        else:
            order = ("STATE_RUNNING", "STATE_STARTING", "STATE_QUEUED")
            self.state = next(state for state in order if state in found)

    def kept(self) -> str:
        """All of it as JSON, to be stored."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def restored(cls, row: dict[str, Any]) -> Experiment:
        """An experiment as it was stored, at another time of another machine perhaps."""
        trials = [Trial(**each | {"not_before": 0.0}) for each in row["trials"]]
        return cls(**row | {"trials": trials, "closed": LONG_AGO})


def hyperparameters(config: dict[str, Any], seed: int) -> list[dict[str, Any]]:
    """The hyperparameters of every trial that an experiment makes."""
    space, searcher = config.get("hyperparameters") or {}, config["searcher"]
    if searcher["name"] == "grid":
        return [dict(each) for each in _combined(space)]
    draw = random.Random(int(config.get("reproducibility", {}).get("experiment_seed", seed)))
    number = int(searcher["max_trials"]) if searcher["name"] in SEVERAL else 1
    return [_drawn(space, draw) for _ in range(number)]


def _drawn(space: Any, draw: random.Random) -> Any:
    """One point of a space: of a parameter, or of a group of them."""
    if not isinstance(space, dict):
        return space
    match space.get("type"):
        case "const":
            return space["val"]
        case "categorical":
            return draw.choice(space["vals"])
        case "int":
            return draw.randint(space["minval"], space["maxval"])
        case "double":
            return draw.uniform(space["minval"], space["maxval"])
        case "log":
            return space["base"] ** draw.uniform(space["minval"], space["maxval"])
    return {name: _drawn(each, draw) for name, each in space.items()}


def _combined(space: dict[str, Any]) -> Iterable[dict[str, Any]]:
    """Every point of a grid."""
    values = [list(_values(each)) for each in space.values()]
    return (dict(zip(space, point, strict=True)) for point in itertools.product(*values))


def _values(space: Any) -> Iterable[Any]:
    """The values of a parameter, or of a group of them, on a grid."""
    if not isinstance(space, dict):
        return [space]
    match space.get("type"):
        case "const":
            return [space["val"]]
        case "categorical":
            return list(space["vals"])
        case "int" | "double" | "log" as kind:
            low, high = space["minval"], space["maxval"]
            count = int(space.get("count") or high - low + 1)
            points = [low + (high - low) * at / max(1, count - 1) for at in range(count)]
            if kind == "int":
                return [round(point) for point in points]
            return [space["base"] ** point for point in points] if kind == "log" else points
    return _combined(space)
