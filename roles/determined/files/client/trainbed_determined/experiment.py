"""One experiment from its configuration to its results, whatever happens on the way."""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from determined.common.api import bindings
from determined.experimental import Determined
from determined.experimental.client import Experiment, ExperimentState

from trainbed_determined.administration import slots_of_agents
from trainbed_determined.master import Gone, Master

POLL_S: Final = 1.0
CLEANED_WITHIN_S: Final = 60.0
CLEAN_UP_BEGINS_S: Final = 3.0  # after the end of an experiment, at the latest; 1 to 2 s were seen
SLOTS_WITHIN_S: Final = 90.0
OURS: Final = "trainbed"  # label of every experiment of a matrix
ENDED: Final = (
    ExperimentState.COMPLETED,
    ExperimentState.CANCELED,
    ExperimentState.ERROR,
    ExperimentState.DELETED,
)
WAITING: Final = (ExperimentState.QUEUED, ExperimentState.PAUSED)


class ExperimentError(Exception):
    """The experiment did not complete; the message is one sentence."""


@dataclass
class Followed:
    """What was observed of an experiment while it ran."""

    id: int
    states: list[tuple[float, str]] = field(default_factory=list)  # unix time when first seen, state
    waited_s: float = 0.0  # how long it was seen waiting for slots
    others: list[str] = field(default_factory=list)  # names of others' tasks when it was submitted


class Runner:
    """Submits, follows and ends the experiments of a matrix."""

    def __init__(self, master: Master, say: Callable[[str], None]) -> None:
        """Nothing is submitted yet."""
        self._master = master
        self._say = say

    def wait_for_slots(self, slots: int) -> None:
        """Wait until enough slots are there; a master refuses to queue for more than it has right now.

        Agents reconnect some seconds after their master or their node has come back.
        """
        since, told = time.monotonic(), False
        while True:
            offered = sum(self._master.ask("the agents", slots_of_agents).values())
            if offered >= slots or time.monotonic() - since > SLOTS_WITHIN_S:
                return  # if there are too few, the master itself refuses the experiment
            if not told:
                self._say(
                    f"{offered} of {slots} slots are there; waiting up to {SLOTS_WITHIN_S:.0f} s for more."
                )
                told = True
            time.sleep(POLL_S)

    def submit(self, config: dict[str, Any], code: Path, label: str, beside: Sequence[Path] = ()) -> int:
        """Find or create the experiment with `label`; return its id.

        Thus a lost answer or a killed client never leads to a second one. Its context has the folder `code`
        and the files `beside` it.

        Raises:
            Refused: the configuration can't work on this cluster.
        """

        def find_or_create(client: Determined) -> int:
            for known in client.list_experiments(labels=[label]):
                self._say(f"Experiment {known.id} is there already ({state_name(known)}): following it.")
                return known.id
            # The SDK draws its progress on stdout.
            with contextlib.redirect_stdout(io.StringIO()), tempfile.TemporaryDirectory() as nothing_else:
                return client.create_experiment(config, nothing_else, includes=[code, *beside]).id

        number = self._master.ask("the experiment", find_or_create, may_be_hopeless=True)
        self._say(f"Experiment {number}: {self._master.settings.master}/det/experiments/{number}")
        return number

    def follow(self, seen: Followed, slots: int, look: Callable[[], None] = lambda: None) -> None:
        """Wait until the experiment has ended, in whatever state; observations go into `seen`.

        Args:
            seen: the experiment.
            slots: how many it waits for.
            look: called after every poll.

        Raises:
            ExperimentError: it waited too long for slots and was killed.
            Gone: somebody deleted it.
            Away: the master did not come back.
        """
        number = seen.id
        waiting_since: float | None = None
        while True:
            try:
                state = self._master.ask(
                    f"the state of experiment {number}", lambda client: client.get_experiment(number).state
                )
            except Gone as error:
                raise Gone(f"Experiment {number} was deleted during its run.") from error
            assert state is not None
            now = time.monotonic()
            if not seen.states or seen.states[-1][1] != state.name:
                seen.states.append((time.time(), state.name))
                self._say(f"Experiment {number} is {state.name}.")
            look()
            if state in ENDED:
                return
            if state in WAITING:
                waiting_since = now if waiting_since is None else waiting_since
                seen.waited_s += POLL_S
                if now - waiting_since > self._master.settings.queue_limit_s:
                    self._give_up(number, slots, state)
            else:
                waiting_since = None
            time.sleep(POLL_S)

    def _give_up(self, number: int, slots: int, state: ExperimentState) -> None:
        limit = self._master.settings.queue_limit_s
        others = ", ".join(self.tasks()) or "nobody that can be seen"
        self.kill(number)
        why = "was paused" if state is ExperimentState.PAUSED else f"waited for {slots} slots"
        raise ExperimentError(
            f"Experiment {number} {why} for more than {limit:.0f} s and was killed. The slots are held by: "
            f"{others}. See `det slot list`; the limit is determined_queue_limit_s."
        )

    def kill(self, number: int) -> None:
        """Kill an experiment and all of its tasks."""
        self._master.ask(f"to kill experiment {number}", lambda client: client.get_experiment(number).kill())

    def stop_all(
        self, patience_s: float | None = None, *, foreign_too: bool = False
    ) -> tuple[list[int], list[int]]:
        """Kill every experiment of any matrix that has not ended.

        Args:
            patience_s: how long the master may be away; None = as in the settings.
            foreign_too: whether to kill also those of no matrix; paused ones of any kind then stay.

        Returns:
            Their ids, and those of experiments that ended so lately that their clean-up may still come.

        Raises:
            Away: the master was away for longer than that.
        """

        def ends(client: Determined) -> dict[int, float | None]:
            # States are filtered here: asked to do so, 0.38.1 answers with a database error.
            labels = None if foreign_too else [OURS]
            found = bindings.get_GetExperiments(client._session, labels=labels, limit=-1).experiments
            spared = ("PAUSED",) if foreign_too else ()
            return {each.id: end_of(each) for each in found if each.state.name not in spared}

        found = self._master.ask("the experiments", ends, patience_s)
        living = [number for number, end in found.items() if end is None]
        for number in living:
            self.kill(number)
            self._say(f"Experiment {number} was killed.")
        now = time.time()  # by the master's clock, beside which this runs
        lately = [number for number, end in found.items() if end and now - end < CLEANED_WITHIN_S]
        return living, lately

    def tasks(self) -> list[str]:
        """Names of all running or waiting tasks on the cluster, clean-up tasks included."""

        def names(client: Determined) -> list[str]:
            answer = bindings.get_GetTasks(client._session)
            found = (answer.allocationIdToSummary or {}).values()
            return sorted(task.name or task.taskId or "a task without a name" for task in found)

        return self._master.ask("the tasks", names)

    def wait_until_clean(self, numbers: list[int]) -> None:
        """Wait until these experiments have ended and no task of theirs is left.

        Determined deletes checkpoints in a container of its own once an experiment has ended, which would
        disturb the next run's measurement. Between an experiment's last task and that one there is a gap.

        Raises:
            ExperimentError: some task of them still runs after a minute.
        """
        marks = tuple(f"(Experiment {number})" for number in numbers)
        since = time.monotonic()
        while numbers:
            ends = self._ends(numbers)
            left = [name for name in self.tasks() if name.endswith(marks)]
            left += [f"Experiment {number}" for number, end in ends.items() if end is None]
            last = max((end for end in ends.values() if end is not None), default=0.0)
            if not left and time.time() - last >= CLEAN_UP_BEGINS_S:
                return
            if left and time.monotonic() - since > CLEANED_WITHIN_S:
                raise ExperimentError(
                    f"After {CLEANED_WITHIN_S:.0f} s these still run: {', '.join(left)}. See "
                    "`det task list` and the agents' logs."
                )
            time.sleep(POLL_S)

    def _ends(self, numbers: list[int]) -> dict[int, float | None]:
        """When experiments ended, Unix time by the master's clock; None for those that have not."""

        def ends(client: Determined) -> dict[int, float | None]:
            asked = [
                bindings.get_GetExperiment(client._session, experimentId=number).experiment
                for number in numbers
            ]
            return {each.id: end_of(each) for each in asked}

        return self._master.ask("the ends of experiments", ends)


def end_of(experiment: bindings.v1Experiment) -> float | None:
    """When it ended, Unix time by the master's clock; 0 if that is not known, None while it lives."""
    if experiment.endTime:
        return unix_time(experiment.endTime)
    return 0.0 if experiment.state.name in {each.name for each in ENDED} else None


def unix_time(text: str) -> float:
    """Unix time of the master's `2026-11-21T10:10:36.529505Z`, which is UTC; with or without the Z."""
    return datetime.fromisoformat(f"{text.rstrip('Z')[:26]}+00:00").timestamp()


def state_name(experiment: Experiment) -> str:
    """The state of an experiment, for messages."""
    return experiment.state.name if experiment.state else "in an unknown state"


def write(path: Path, content: object) -> None:
    """Write `content` as JSON to a temporary file, then rename it into place."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    part.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    part.rename(path)
