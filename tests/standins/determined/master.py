#!/opt/trainbed/env/current/bin/python
"""A stand-in for Determined's master 0.38.1, for tests where the real one is not available.

Its answers have the shape of recorded ones (`answers/`), and are the recorded ones if they don't depend on
the call. It knows users, agents, experiments and tasks; it schedules an experiment on agents with free slots,
and the stand-in agents (`agent.py`) really run it. It has no searcher, no web page and no Core API for tasks.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
import secrets
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

ANSWERS = Path(__file__).resolve().parent / "answers"
SALT = "GubPEmmotfiK9TMD6Zdw"  # the SDK hashes passwords with it before sending them
AGENT_GONE_S = 6.0
AGENT_FORGOTTEN_S = 25.0
CLEAN_UP_S = 2.0
GAP_S = 0.4  # between an experiment's end and its clean-up, when it has no task
BRANDING = "stand-in"  # the real one's is "determined": records of runs tell them apart by it
ENDED = ("STATE_COMPLETED", "STATE_ERROR", "STATE_CANCELED")


def answer(name: str) -> tuple[int, Any]:
    """Status and body of a recorded answer."""
    recorded = json.loads((ANSWERS / f"{name}.json").read_text(encoding="utf-8"))
    return recorded["status"], recorded["body"]


def hashed(password: str) -> str:
    """A password as the SDK sends it: hashed, or blank if it is blank."""
    return hashlib.sha512((SALT + password).encode()).hexdigest() if password else ""


def now() -> str:
    """The current time, as the master writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@dataclass
class Experiment:
    """One experiment, which has one trial with the same number."""

    id: int
    config: dict[str, Any]
    context: list[dict[str, Any]]
    username: str
    state: str = "STATE_QUEUED"
    started: str = field(default_factory=now)
    ended: str | None = None
    log: list[str] = field(default_factory=list)
    agents: list[str] = field(default_factory=list)
    exits: dict[str, int] = field(default_factory=dict)
    cleaned: float = 0.0  # monotonic time at which its clean-up ends

    @property
    def slots(self) -> int:
        """Slots that it asks for."""
        return int(self.config["resources"]["slots_per_trial"])

    def tell(self, text: str) -> None:
        """Add a line to the trial's log."""
        self.log.append(f"[{now()}]          || INFO: {text}\n")

    def end(self, state: str) -> None:
        """Mark it as ended in this state."""
        self.state, self.ended = state, now()
        self.cleaned = time.monotonic() + CLEAN_UP_S


class Cluster:
    """Everything that the master knows."""

    def __init__(self, initial_password: str = "", keep: Callable[[str, str], None] | None = None) -> None:
        """Make the two users that a fresh master has.

        Args:
            initial_password: their password.
            keep: stores a JSON text under a name, in a database.
        """
        self.lock = threading.RLock()
        self.users: dict[str, dict[str, Any]] = {}
        self.tokens: dict[str, str] = {}
        self.agents: dict[str, dict[str, Any]] = {}
        self.experiments: dict[int, Experiment] = {}
        self.foreign: dict[str, dict[str, Any]] = {}  # tasks of others
        self.faults: list[Callable[[], tuple[int, Any] | None]] = []
        self._keep = keep
        for name in ("admin", "determined"):
            self.add_user(name, hashed(initial_password), admin=name == "admin")

    def add_user(self, name: str, password: str, admin: bool) -> dict[str, Any]:
        """Add a user; `password` is as the SDK sends it."""
        _, recorded = answer("users")
        user: dict[str, Any] = copy.deepcopy(recorded["users"][1]) | {
            "id": len(self.users) + 1,
            "username": name,
            "admin": admin,
        }
        self.users[name] = {"password": password, "user": user}
        self.save()
        return user

    def save(self) -> None:
        """Store users and experiments."""
        if self._keep:
            self._keep("users", json.dumps(self.users))
            rows = [
                {"id": each.id, "config": each.config, "username": each.username, "state": each.state}
                for each in self.experiments.values()
            ]
            self._keep("experiments", json.dumps(rows))

    def restore(self, users: str | None, experiments: str | None) -> None:
        """Load what was stored."""
        if users:
            self.users = json.loads(users)
        for row in json.loads(experiments or "[]"):
            self.experiments[row["id"]] = Experiment(
                row["id"], row["config"], [], row["username"], row["state"], ended=now()
            )

    def agents_within(self, seconds: float) -> dict[str, dict[str, Any]]:
        """Agents by name that have reported within these seconds."""
        return {
            name: agent
            for name, agent in sorted(self.agents.items())
            if time.monotonic() - agent["seen"] <= seconds
        }

    def listed_agents(self) -> dict[str, dict[str, Any]]:
        """Agents by name, without those that have not come back in time (agent_reconnect_wait)."""
        return self.agents_within(AGENT_FORGOTTEN_S)

    def free_slots(self) -> dict[str, int]:
        """How many slots are free on each live agent."""
        free = {}
        for name, agent in self.agents_within(AGENT_GONE_S).items():
            used = sum(
                each.agents.count(name)
                for each in self.experiments.values()
                if each.state in ("STATE_STARTING", "STATE_RUNNING")
            )
            free[name] = agent["slots"] - used
        return free

    def place(self, slots: int) -> list[str]:
        """The agents of a trial, once for each of its slots; empty if it must wait.

        As the real one: the agent that it fits best, or else whole agents.
        """
        free = self.free_slots()
        fitting = [name for name, count in free.items() if count >= slots]
        if fitting:
            return [min(fitting, key=lambda name: free[name])] * slots
        placed: list[str] = []
        for name, count in free.items():
            if 0 < count == self.agents[name]["slots"] <= slots - len(placed):
                placed += [name] * count
        return placed if len(placed) == slots else []

    def schedule(self) -> None:
        """Give slots to queued experiments, and end those whose agents all report an exit."""
        with self.lock:
            for each in self.experiments.values():
                if each.state == "STATE_QUEUED" and (placed := self.place(each.slots)):
                    each.agents = placed
                    each.state = "STATE_STARTING"
                    each.tell(f"Scheduling Trial {each.id} (Experiment {each.id})")
                    each.tell(f"Trial {each.id} (Experiment {each.id}) was assigned to an agent")
                elif each.state in ("STATE_STARTING", "STATE_RUNNING") and len(each.exits) == len(
                    set(each.agents)
                ):
                    good = all(code == 0 for code in each.exits.values())
                    each.end("STATE_COMPLETED" if good else "STATE_ERROR")
                    self.save()

    def tasks(self) -> dict[str, dict[str, Any]]:
        """Tasks as the API shows them."""
        running = next(iter(answer("tasks")[1]["allocationIdToSummary"].values()))
        cleaning = next(iter(answer("tasks-after")[1]["allocationIdToSummary"].values()))
        found = dict(self.foreign)
        for each in self.experiments.values():
            if each.state not in ENDED:
                name = f"Trial {each.id} (Experiment {each.id})"
                found[f"{each.id}.trial.1"] = {**running, "name": name, "slotsNeeded": each.slots}
            elif each.cleaned - CLEAN_UP_S + GAP_S <= time.monotonic() < each.cleaned:
                found[f"{each.id}.gc.1"] = {**cleaning, "name": f"Checkpoint GC (Experiment {each.id})"}
        return found


class Handler(BaseHTTPRequestHandler):
    """The API."""

    cluster: Cluster
    version = "0.38.1"
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        """Answer."""
        self._answer("GET")

    def do_POST(self) -> None:
        """Answer."""
        self._answer("POST")

    def do_PATCH(self) -> None:
        """Answer."""
        self._answer("PATCH")

    def _answer(self, method: str) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length) or b"null")
        parts = urlsplit(self.path)
        with self.cluster.lock:
            fault = self.cluster.faults.pop(0)() if self.cluster.faults else None
            if fault is not None:
                status, content = fault
            else:
                status, content = self._route(method, parts.path, parse_qs(parts.query), body)
        if status == 0:  # the connection breaks
            self.close_connection = True
            self.connection.close()
            return
        lines = content if isinstance(content, list) else [content]
        data = "".join(json.dumps(line) + "\n" for line in lines).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _route(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> tuple[int, Any]:
        cluster = self.cluster
        if path == "/info":
            return 200, answer("info")[1] | {"version": self.version}
        if path == "/api/v1/master":
            return 200, answer("master")[1] | {"version": self.version, "branding": BRANDING}
        if path == "/api/v1/auth/login":
            return self._login(body)
        if path == "/standin/agents":
            return self._agent(body)
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if token not in cluster.tokens:
            return answer("no-token")
        cluster.schedule()
        user = cluster.tokens[token]
        if path.startswith("/api/v1/users"):
            return self._users(method, path, body)
        if path == "/api/v1/agents":
            return 200, {
                "agents": [agent_shown(name, each) for name, each in cluster.listed_agents().items()]
            }
        if path == "/api/v1/tasks":
            return 200, {"allocationIdToSummary": cluster.tasks()}
        if path == "/api/v1/experiments":
            return self._create(user, body) if method == "POST" else self._list(query)
        if path == "/api/v1/trials/metrics/trial_metrics":
            group = query["group"][0]
            return answer("metrics-training" if group == "training" else "trial-completed-metrics-validation")
        found = re.fullmatch(r"/api/v1/(experiments|trials)/(\d+)(/\w+)?", path)
        each = cluster.experiments.get(int(found[2])) if found else None
        if found is None or each is None:
            return answer("missing-experiment")
        return self._of(each, found[1], (found[3] or "").lstrip("/"))

    def _login(self, body: dict[str, Any]) -> tuple[int, Any]:
        known = self.cluster.users.get(body["username"])
        if known is None or known["password"] != body["password"]:
            return answer("login-refused")
        token = secrets.token_hex(8)
        self.cluster.tokens[token] = body["username"]
        return 200, {"token": token, "user": known["user"]}

    def _agent(self, body: dict[str, Any]) -> tuple[int, Any]:
        """Take a stand-in agent's report of its slots and ended containers; answer with what it is to run."""
        cluster = self.cluster
        cluster.agents[body["id"]] = {
            "slots": body["slots"],
            "seen": time.monotonic(),
            "address": body["address"],
        }
        for number, code in body["ended"].items():
            each = cluster.experiments[int(number)]
            each.exits[body["id"]] = code["status"]
            each.log += [f"[{now()}] {body['id'][:8]} || {line}\n" for line in code["log"]]
        cluster.schedule()
        wanted = {}
        for each in cluster.experiments.values():
            if body["id"] in each.agents and each.state in ("STATE_STARTING", "STATE_RUNNING"):
                if each.state == "STATE_STARTING":
                    each.state = "STATE_RUNNING"
                    each.tell(f"Resources for Trial {each.id} (Experiment {each.id}) have started")
                if body["id"] not in each.exits:
                    agents = list(dict.fromkeys(each.agents))
                    wanted[each.id] = {
                        "config": each.config,
                        "context": each.context,
                        "nodes": [cluster.agents[name]["address"] for name in agents],
                        "rank": agents.index(body["id"]),
                        "slots": each.agents.count(body["id"]),
                    }
        return 200, {"run": wanted}

    def _users(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        cluster = self.cluster
        by_name = re.fullmatch(r"/api/v1/users/([^/]+)/by-username", path)
        if by_name and by_name[1] in cluster.users:
            return 200, {"user": cluster.users[by_name[1]]["user"]}
        if path == "/api/v1/users" and method == "GET":
            shown = [each["user"] for each in cluster.users.values()]
            return 200, {"users": shown, "pagination": pages(len(shown))}
        if path == "/api/v1/users" and method == "POST":
            wanted = body["user"]
            return 200, {"user": cluster.add_user(wanted["username"], body["password"], wanted["admin"])}
        by_id = re.fullmatch(r"/api/v1/users/(\d+)", path)
        for each in cluster.users.values():
            if by_id and each["user"]["id"] == int(by_id[1]):
                if method == "PATCH":
                    each["password"] = body.get("password") or each["password"]
                    each["user"]["agentUserGroup"] = (
                        body.get("agentUserGroup") or each["user"]["agentUserGroup"]
                    )
                    cluster.save()
                return 200, {"user": each["user"]}
        return answer("missing-experiment")

    def _list(self, query: dict[str, list[str]]) -> tuple[int, Any]:
        if "states" in query:
            return answer("experiments-by-state")
        labels = set(query.get("labels", []))
        found = [
            shown(each)
            for each in self.cluster.experiments.values()
            if not labels or labels & set(each.config.get("labels", []))
        ]
        return 200, {"experiments": found, "pagination": pages(len(found))}

    def _create(self, username: str, body: dict[str, Any]) -> tuple[int, Any]:
        config = yaml.safe_load(body["config"])
        known = {*answer("create")[1]["config"], "entrypoint", "hyperparameters"}
        unknown = sorted(set(config) - known)
        if unknown:
            status, content = answer("validate-unknown-key")
            content["error"]["error"] = content["error"]["error"].replace("max_lenght", unknown[0])
            return status, content
        if not config.get("entrypoint"):
            return answer("validate-no-entrypoint")
        if config["searcher"]["name"] == "adaptive_asha" and not {"max_time", "time_metric"} <= set(
            config["searcher"]
        ):
            return answer("validate-asha-missing")
        if config["resources"].get("resource_pool", "default") not in ("", "default"):
            return answer("validate-bad-pool")
        if config["resources"]["slots_per_trial"] > sum(
            each["slots"] for each in self.cluster.listed_agents().values()
        ):
            return answer("create-too-many-slots")
        number = len(self.cluster.experiments) + 1
        each = Experiment(number, config, body.get("modelDefinition") or [], username)
        self.cluster.experiments[number] = each
        self.cluster.save()
        return 200, {"experiment": shown(each), "config": config, "warnings": []}

    def _of(self, each: Experiment, kind: str, what: str) -> tuple[int, Any]:
        if kind == "experiments" and what == "":
            return 200, {"experiment": shown(each), "config": each.config, "jobSummary": None}
        if kind == "experiments" and what == "kill":
            if each.state not in ENDED:
                each.end("STATE_CANCELED")
            return answer("kill")
        if kind == "experiments" and what == "trials":
            return 200, {"trials": [trial_shown(each)] if each.agents else [], "pagination": pages(1)}
        if what == "":
            return 200, {"trial": trial_shown(each)}
        if what == "checkpoints":
            return answer("trial-completed-checkpoints")
        if what == "logs":
            recorded = answer("trial-completed-logs")[1][0]["result"]
            return 200, [{"result": {**recorded, "message": line}} for line in each.log]
        return answer("missing-experiment")


def shown(each: Experiment) -> dict[str, Any]:
    """An experiment as the API shows it."""
    experiment = copy.deepcopy(answer("experiment-state_running")[1]["experiment"])
    return {
        **experiment,
        "id": each.id,
        "state": each.state,
        "startTime": each.started,
        "endTime": each.ended,
        "labels": each.config.get("labels", []),
        "name": each.config.get("name", ""),
        "username": each.username,
        "config": each.config,
        "trialIds": [each.id],
    }


def trial_shown(each: Experiment) -> dict[str, Any]:
    """Its trial as the API shows it."""
    trial = copy.deepcopy(answer("trial-completed")[1]["trial"])
    state = {"STATE_QUEUED": "STATE_ACTIVE"}.get(each.state, each.state)
    return {
        **trial,
        "id": each.id,
        "experimentId": each.id,
        "state": state,
        "startTime": each.started,
        "endTime": each.ended,
    }


def agent_shown(name: str, agent: dict[str, Any]) -> dict[str, Any]:
    """An agent as the API shows it."""
    recorded = copy.deepcopy(answer("agents")[1]["agents"][0])
    slot = next(iter(recorded["slots"].values()))
    slots = {f"/agents/{name}/slots/{at}": {**slot, "id": str(at)} for at in range(agent["slots"])}
    return {**recorded, "id": name, "slots": slots, "addresses": [agent["address"]]}


def pages(total: int) -> dict[str, int]:
    """The pagination of one page that holds everything."""
    return {"offset": 0, "limit": 0, "startIndex": 0, "endIndex": total, "total": total}


def serve(
    cluster: Cluster, address: str, port: int, certificate: str = "", key: str = ""
) -> ThreadingHTTPServer:
    """Start answering, in threads of its own."""
    handler = type("OneClustersHandler", (Handler,), {"cluster": cluster})
    server = ThreadingHTTPServer((address, port), handler)
    server.daemon_threads = True
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


class Database:
    """The real database, through psql: a table of JSON texts by name."""

    def __init__(self, db: dict[str, str]) -> None:
        """Make the table where it is missing, as the owner of the database that the configuration names."""
        login = f"{db['user']}:{db['password']}"
        self._url = (
            f"postgresql://{login}@{db['host']}:{db['port']}/{db['name']}"  # unescaped, like the real one
        )
        self.run("CREATE TABLE IF NOT EXISTS standin (name text PRIMARY KEY, content text)")

    def run(self, sql: str, **variables: str) -> str:
        """Run a statement; its output, without decoration."""
        command = ["psql", "--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1"]
        command += [f"--set={name}={value}" for name, value in variables.items()]
        done = subprocess.run([*command, self._url], input=sql, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def keep(self, name: str, content: str) -> None:
        """Store a text under a name."""
        sql = (
            "INSERT INTO standin VALUES (:'name', :'content') "
            "ON CONFLICT (name) DO UPDATE SET content = :'content'"
        )
        self.run(sql, name=name, content=content)

    def kept(self, name: str) -> str | None:
        """The text under a name."""
        return self.run("SELECT content FROM standin WHERE name = :'name'", name=name) or None


def main() -> None:
    """Entry point, as the unit starts it."""
    config = yaml.safe_load(Path("/etc/determined/master.yaml").read_text(encoding="utf-8"))
    database = Database(config["db"])
    users, experiments = database.kept("users"), database.kept("experiments")
    initial = config["security"]["initial_user_password"]
    if not users and not initial:
        sys.exit("a password is needed: security.initial_user_password")
    cluster = Cluster(initial, None if users else database.keep)
    cluster.restore(users, experiments)
    cluster._keep = database.keep
    tls = config["security"]["tls"]
    serve(cluster, "0.0.0.0", config["port"], tls["cert"], tls["key"])
    while True:
        cluster.schedule()
        time.sleep(0.2)


if __name__ == "__main__":
    main()
