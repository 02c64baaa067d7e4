"""Why a run failed, in one sentence, from what it left."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any, Final

from experiments.cluster.playbooks import failure_message, last_lines
from training.util.masking import without_secrets

LONGEST: Final = 400  # characters of a reason; the logs have the rest

# When one rank fails, the others lose their connection to it: an echo, not the cause.
ECHO: Final = re.compile(
    r"connection (closed|reset|refused)|connection was|broken pipe|gloo|socket|told to stop|timed? ?out"
    r"|PeerError",
    re.IGNORECASE,
)
# How roles/runs/library/run_job.py says so.
STOPPED: Final = "somebody stopped it during the run"
DEAD: Final = " (killed, or the node went away)"  # what it means if no log says more
# The end of torchrun's report of a failed rank; in a log that a stack keeps, its lines may have prefixes.
KILLED: Final = re.compile(
    r"\bhost {6}: (?P<host>\S+)\n.*\brank {6}: (?P<rank>\d+) .*\n.*\bexitcode {2}: -(?P<signal>\d+) "
)
ERROR_LINE: Final = re.compile(r"^\S*(Error|Exception|Failure)\b\s*:")
RULE: Final = re.compile(r"[\W_]*")  # an empty line or a separator


def cause_of_failure(outputs: Path, ansible_log: Path, exit_code: int | None) -> str:
    """One sentence: what a rank said or which was killed, else the stack's log, else Ansible.

    If `exit_code`, that of the stack's command, is 0 or None, the stack did not fail, and Ansible comes
    before its log. If somebody stopped the command, Ansible comes before what ranks said of each other.
    """
    told, of_ansible = _from_ranks(outputs), failure_message(ansible_log)
    stopped = of_ansible is not None and STOPPED in of_ansible
    if not stopped and (not told or ECHO.search(told)) and (killed := _killed(outputs)):
        told = killed
    elif not told:
        told = of_ansible if stopped or not exit_code else None
    elif stopped and ECHO.search(told):
        told = of_ansible
    return sentence(told or _from_logs(outputs, exit_code) or _from_ansible(ansible_log))


def sentence(text: str) -> str:
    """`text` on one line, without secrets, not too long, with a full stop."""
    line = without_secrets(" ".join(text.split()))
    if len(line) > LONGEST:
        line = line[: LONGEST - 1] + "…"
    return line if line.endswith((".", "!", "?", "…")) else f"{line}."


def _rank_errors(outputs: Path) -> list[dict[str, Any]]:
    """What ranks said of their failure, those first whose own it was."""
    errors = [
        error for path in sorted(outputs.glob("error-*.json")) if (error := _rank_error(path)) is not None
    ]
    return sorted(
        errors, key=lambda error: (bool(ECHO.search(f"{error['type']}: {error['message']}")), error["rank"])
    )


def _from_ranks(outputs: Path) -> str | None:
    errors = _rank_errors(outputs)
    if not errors:
        return None
    first = errors[0]
    silent = _silent(outputs) if ECHO.search(f"{first['type']}: {first['message']}") else []
    says_who = first["type"] == "PeerError" and first["message"].startswith("Rank ")
    if silent and not says_who:
        told = f"Rank {' and rank '.join(map(str, silent))} ended without a word"
        noticed = _noticed(first)
        log = _log_of_rank(outputs, silent[0])
        lines = _lines(log) if log else []
        why = f", and the log on {log.stem} ends with: {lines[-1]}" if log and lines else DEAD
        return f"{told}{why}; {noticed}"
    more = f" ({len(errors)} ranks reported an error)" if len(errors) > 1 else ""
    return f"Rank {first['rank']} on {first['host']}: {first['type']}: {first['message']}{more}"


def _noticed(error: dict[str, Any]) -> str:
    return f"rank {error['rank']} on {error['host']} noticed: {error['type']}: {error['message']}"


def _killed(outputs: Path) -> str | None:
    """Which rank a signal ended, by what torchrun says in the logs, and who noticed it; None if none did."""
    found = [
        match
        for path in sorted((outputs / "logs").glob("*.log"))
        for match in KILLED.finditer("\n".join(_tail(path)))
        # Not SIGTERM: with that, torchrun itself ends the ranks beside one that failed.
        if int(match["signal"]) != signal.SIGTERM
    ]
    if not found:
        return None
    rank, host, number = found[0]["rank"], found[0]["host"], int(found[0]["signal"])
    name = f" ({signal.Signals(number).name})" if number in set(signal.Signals) else ""
    others = [error for error in _rank_errors(outputs) if error["rank"] != int(rank)]
    noticed = f"; {_noticed(others[0])}" if others else ""
    return f"Rank {rank} on {host} was killed by signal {number}{name}{noticed}"


def _silent(outputs: Path) -> list[int]:
    """Ranks that left neither their file nor an error."""
    try:
        work = _work(outputs)
        ranks = range(int(work["workers"]) * int(work["slots_per_worker"]))
    except (OSError, ValueError, TypeError, KeyError):
        return []  # the run did not get that far
    return [
        rank
        for rank in ranks
        if not any((outputs / f"{name}-{rank}.json").exists() for name in ("rank", "error"))
    ]


def _log_of_rank(outputs: Path, rank: int) -> Path | None:
    """Log of the rank's node; None if the stack does not keep one for each node, or did not get that far."""
    try:
        nodes = json.loads((outputs / "launch.json").read_bytes())["nodes"]
        path = outputs / "logs" / f"{nodes[rank // int(_work(outputs)['slots_per_worker'])]}.log"
    except (OSError, ValueError, TypeError, KeyError, IndexError):
        return None
    return path if path.exists() else None


def _work(outputs: Path) -> dict[str, Any]:
    work: dict[str, Any] = json.loads((outputs / "spec.json").read_bytes())["work"]
    return work


def _rank_error(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_bytes())
        return {
            "rank": int(content["rank"]),
            "host": str(content.get("host", "?")),
            "type": str(content.get("type", "Error")),
            "message": str(content["message"]).rstrip("."),
        }
    except (OSError, ValueError, TypeError, KeyError):
        return None  # damaged: the log says more


def _from_logs(outputs: Path, exit_code: int | None) -> str | None:
    told = []
    for path in sorted((outputs / "logs").glob("*.log")):
        lines = _lines(path)
        if lines:
            errors = [line for line in lines if ERROR_LINE.match(line)]
            told.append((not errors, path.stem, (errors or lines)[-1]))
    if not told:
        return None
    # A log that names an error, if there is one.
    _, node, line = min(told, key=lambda each: each[0])
    ended = f"The stack's command ended with {exit_code}; " if exit_code else ""
    return f"{ended}{'its' if ended else 'The'} log on {node} ends with: {line}"


def _lines(log: Path) -> list[str]:
    """Its last lines, without separators."""
    return [line.strip() for line in _tail(log) if not RULE.fullmatch(line.strip())]


def _tail(path: Path, size: int = 65536) -> list[str]:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - size))
            return file.read().decode(errors="replace").splitlines()
    except OSError:
        return []


def _from_ansible(log: Path) -> str:
    message = failure_message(log)
    if message:
        return message
    lines = last_lines(log, count=1)
    return (
        f"playbooks/run.yml failed; its output ends with: {lines[0].strip()}"
        if lines
        else "playbooks/run.yml failed"
    )
