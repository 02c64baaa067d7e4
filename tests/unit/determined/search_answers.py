"""What a master answers about the trials of a search: the stand-in master itself has no searcher."""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.standins.determined import master as standin

BEGAN = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)


@dataclass
class Trial:
    """A trial as the API shows it."""

    id: int
    hparams: dict[str, Any]
    state: str = "STATE_QUEUED"
    batches: int = 0
    evaluations: list[tuple[float, int, dict[str, float]]] = field(default_factory=list)  # moment, steps
    ended: float | None = None  # seconds after the search began
    checkpoint: str | None = None
    log: list[str] = field(default_factory=list)

    def evaluate(self, moment: float, batches: int, **metrics: float) -> None:
        """Report an evaluation, this many seconds after the search began."""
        self.batches = batches
        self.evaluations.append((moment, batches, {"batches": batches, **metrics}))

    def end(self, state: str, moment: float) -> None:
        """End it."""
        self.state, self.ended = f"STATE_{state}", moment

    def shown(self, experiment: int) -> dict[str, Any]:
        """As the API shows it."""
        recorded = copy.deepcopy(standin.answer("trial-completed")[1]["trial"])
        latest = None
        if self.evaluations:
            moment, steps, metrics = self.evaluations[-1]
            latest = {**recorded["latestValidation"], "endTime": stamp(moment), "totalBatches": steps}
            latest["metrics"] = {"avgMetrics": metrics, "batchMetrics": []}
        kept = {**recorded["bestCheckpoint"], "uuid": self.checkpoint} if self.checkpoint else None
        return {
            **recorded,
            "id": self.id,
            "experimentId": experiment,
            "state": self.state,
            "hparams": self.hparams,
            "totalBatchesProcessed": self.batches,
            "latestValidation": latest,
            "bestValidation": latest,
            "bestCheckpoint": kept,
            "endTime": None if self.ended is None else stamp(self.ended),
        }

    def reports(self) -> dict[str, Any]:
        """Its evaluations, as the API streams them."""
        recorded = standin.answer("trial-completed-metrics-validation")[1]["result"]["metrics"][0]
        rows = [
            {
                **recorded,
                "trialId": self.id,
                "endTime": stamp(moment),
                "totalBatches": steps,
                "metrics": {"validation_metrics": metrics},
            }
            for moment, steps, metrics in self.evaluations
        ]
        return {"result": {"metrics": rows}}


class SearchHandler(standin.Handler):
    """The stand-in's API, with the trials of one experiment."""

    trials: dict[int, Trial]

    def _route(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> tuple[int, Any]:
        trials = list(self.trials.values())
        if re.fullmatch(r"/api/v1/experiments/1/trials", path):
            start = int(query.get("offset", ["0"])[0])
            page = trials[start : start + int(query.get("limit", ["0"])[0] or len(trials))]
            shown = [trial.shown(1) for trial in page]
            at = {"offset": start, "startIndex": start, "endIndex": start + len(page), "total": len(trials)}
            return 200, {"trials": shown, "pagination": {"limit": 0, **at}}
        if path == "/api/v1/trials/metrics/trial_metrics" and query["group"] == ["validation"]:
            return 200, self.trials[int(query["trialIds"][0])].reports()
        if found := re.fullmatch(r"/api/v1/trials/(\d+)(/logs)?", path):
            trial = self.trials[int(found[1])]
            if found[2] is None:
                return 200, {"trial": trial.shown(1)}
            recorded = standin.answer("trial-completed-logs")[1][0]["result"]
            return 200, [{"result": {**recorded, "message": line}} for line in trial.log]
        return super()._route(method, path, query, body)


def stamp(moment: float) -> str:
    """A moment after the search began, as the master writes it."""
    return (BEGAN + timedelta(seconds=moment)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
