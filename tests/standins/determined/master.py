#!/opt/trainbed/env/current/bin/python
"""A stand-in for Determined's master 0.38.1, for tests where the real one is not available.

Its answers have the shape of recorded ones (`answers/`), and are the recorded ones if they don't depend on
the call; only its branding is its own. It knows users, agents, experiments, trials and tasks, and finds them
in the database when it starts; it schedules trials on agents with free slots, and the stand-in agents
(`agent.py`) really run them. A trial whose container was lost is begun again, as by the real one.

It has no web page and no Core API: a trial is told its hyperparameters in its environment only
(`determined.get_cluster_info()` is None), and its metrics and checkpoints are recorded ones. So a search
makes all its trials, but stops none at a rung; and nothing can be paused.
"""

from __future__ import annotations

import copy
import ctypes
import functools
import hashlib
import json
import re
import secrets
import ssl
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from tests.standins.determined.trials import (
    AGENT_LOST,
    ENDED,
    GONE,
    PLACED,
    Experiment,
    Trial,
    hyperparameters,
    now,
)

__all__ = ["Cluster", "Experiment", "Handler", "answer", "hashed", "serve"]

ANSWERS = Path(__file__).resolve().parent / "answers"
SALT = "GubPEmmotfiK9TMD6Zdw"  # the SDK hashes passwords with it before sending them
AGENT_GONE_S = 6.0
AGENT_FORGOTTEN_S = 25.0
CLEAN_UP_S = 2.0
GAP_S = 0.4  # between an experiment's end and its clean-up, when it has no task
BCRYPT = "$2a$"  # how the real one's hashes begin
QUICK = f"{BCRYPT}04$"  # with the least work that there is
SALT_LETTERS = "./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
KEPT = "experiment-"  # how the names of experiments begin in the database
MAX_RESTARTS = 5  # the real one's default
BRANDING = "stand-in"  # the real one's is "determined": records of runs tell them apart by it


def answer(name: str) -> tuple[int, Any]:
    """Status and body of a recorded answer."""
    recorded = json.loads((ANSWERS / f"{name}.json").read_text(encoding="utf-8"))
    return recorded["status"], recorded["body"]


def hashed(password: str) -> str:
    """A password as the SDK sends it: hashed, or blank if it is blank."""
    return hashlib.sha512((SALT + password).encode()).hexdigest() if password else ""


def bcrypt(sent: str, setting: str) -> str:
    """The bcrypt hash of a password as the SDK sends it; a hash is a setting, too."""
    library = ctypes.CDLL("libcrypt.so.1")
    library.crypt.restype = ctypes.c_char_p
    return str(library.crypt(sent.encode(), setting.encode()).decode())


@functools.lru_cache
def matches(sent: str, kept: str) -> bool:
    """Whether a password as the SDK sends it is the one that is kept, as it was sent or as its hash."""
    return bcrypt(sent, kept) == kept if kept.startswith(BCRYPT) else sent == kept


class Cluster:
    """Everything that the master knows."""

    def __init__(
        self,
        initial_password: str = "",
        keep: Callable[[str, str], None] | None = None,
        passwords: Database | None = None,
    ) -> None:
        """Make the two users that a fresh master has.

        Args:
            initial_password: their password.
            keep: stores a JSON text under a name, in a database.
            passwords: where the users' passwords are; whoever changes one there changes it.
        """
        self.lock = threading.RLock()
        self.users: dict[str, dict[str, Any]] = {}
        self.tokens: dict[str, str] = {}
        self.agents: dict[str, dict[str, Any]] = {}
        self.experiments: dict[int, Experiment] = {}
        self.awaited: dict[str, float] = {}  # when it began to wait for agents that runs are on
        self.stored: dict[int, tuple[str, str]] = {}  # each experiment's state and text when last stored
        self.foreign: dict[str, dict[str, Any]] = {}  # tasks of others
        self.faults: list[Callable[[], tuple[int, Any] | None]] = []
        self._keep = keep
        self._passwords = passwords
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
        self.users[name] = {"user": user}
        self.set_password(name, password)
        self.save()
        return user

    def set_password(self, name: str, password: str) -> None:
        """Give a user this password, which is as the SDK sends it."""
        self.users[name]["password"] = password
        if self._passwords:
            self._passwords.set_password(name, password)

    def admits(self, name: str, password: str) -> bool:
        """Whether there is such a user with this password, which is as the SDK sends it."""
        if name not in self.users:
            return False
        if self._passwords:
            self.users[name]["password"] = self._passwords.password_of(name)
        return matches(password, self.users[name]["password"])

    def save(self) -> None:
        """Store users."""
        if self._keep:
            self._keep("users", json.dumps(self.users))

    def store(self) -> None:
        """Store every experiment that has changed."""
        if self._keep is None:
            return
        for each in self.experiments.values():
            state, text = self.stored.get(each.id, ("", ""))
            if state not in ENDED and (now_text := each.kept()) != text:
                self._keep(f"{KEPT}{each.id:06d}", now_text)
                self.stored[each.id] = each.state, now_text

    def restore(self, users: str | None, experiments: str | None) -> None:
        """Load what was stored."""
        if users:
            self.users = json.loads(users)
        for row in json.loads(experiments or "[]"):
            self.experiments[row["id"]] = each = Experiment.restored(row)
            self.stored[each.id] = each.state, each.kept()
        for trial in self.placed():
            trial.tell(f"Restoring {trial.name}")
            self.awaited |= dict.fromkeys(trial.agents, time.monotonic())

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

    def placed(self) -> Iterator[Trial]:
        """The trials that have slots."""
        for each in self.experiments.values():
            if each.state not in ENDED:
                yield from (trial for trial in each.trials if trial.state in PLACED)

    def trial(self, number: int) -> tuple[Experiment, Trial] | None:
        """A trial by its number, with its experiment."""
        found = ((each, trial) for each in self.experiments.values() for trial in each.trials)
        return next((pair for pair in found if pair[1].id == number), None)

    def next_trial(self) -> int:
        """The number of the next trial."""
        return 1 + max((trial.id for each in self.experiments.values() for trial in each.trials), default=0)

    def is_lost(self, agent: str) -> bool:
        """Whether an agent that a run is on was away for too long (agent_reconnect_wait)."""
        seen = self.agents[agent]["seen"] if agent in self.agents else self.awaited.get(agent)
        return seen is not None and time.monotonic() - seen > AGENT_FORGOTTEN_S

    def free_slots(self) -> dict[str, int]:
        """How many slots are free on each live agent."""
        free = {}
        for name, agent in self.agents_within(AGENT_GONE_S).items():
            free[name] = agent["slots"] - sum(trial.agents.count(name) for trial in self.placed())
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
        """Give slots to queued trials, end those whose containers have ended, and begin lost ones again."""
        with self.lock:
            for each in self.experiments.values():
                if each.state in (*ENDED, "STATE_PAUSED"):
                    continue
                for trial in each.trials:
                    self._see_to(each, trial)
                each.settle(self.next_trial)
            try:
                self.store()
            except subprocess.CalledProcessError as error:  # the database is away; it is tried again
                print(f"can't store experiments: {error.stderr}", file=sys.stderr)

    def _see_to(self, each: Experiment, trial: Trial) -> None:
        if trial.state == "STATE_QUEUED":
            ready = each.may_place and time.monotonic() >= trial.not_before
            if ready and (placed := self.place(each.slots)):
                trial.begin(placed)
        elif trial.state in PLACED:
            if trial.agents and len(trial.exits) == len(set(trial.agents)):
                trial.finish(int(each.config.get("max_restarts", MAX_RESTARTS)))
            elif any(self.is_lost(agent) for agent in trial.agents if agent not in trial.exits):
                trial.lose(AGENT_LOST)

    def hear(self, agent: str, told: dict[str, Any]) -> None:
        """Take what an agent says of its containers: which run, have ended, or were gone when it started."""
        for key, ended in told["ended"].items():
            if found := self.trial(int(key.split(".")[0])):
                trial = found[1]
                trial.log += [f"[{now()}] {agent[:8]} || {line}\n" for line in ended["log"]]
                if trial.key == key and agent in trial.agents:
                    trial.runs_on(agent)
                    trial.exits.setdefault(agent, ended["status"])
        for key, lines in told["gone"].items():
            if found := self.trial(int(key.split(".")[0])):
                found[1].log += [f"[{now()}] {agent[:8]} || {line}\n" for line in lines]
        for trial in list(self.placed()):
            if agent not in trial.agents or agent in trial.exits:
                continue
            if trial.key in told["running"]:
                trial.runs_on(agent)
            elif told["fresh"] and agent in trial.begun:
                trial.lose(GONE)

    def work_of(self, agent: str, running: list[str]) -> dict[str, Any]:
        """What an agent is to run, by key; None for what it runs already."""
        wanted: dict[str, Any] = {}
        for trial in self.placed():
            agents = list(dict.fromkeys(trial.agents))
            if agent not in agents or agent in trial.exits:
                continue
            if trial.key in running:
                wanted[trial.key] = None
            elif set(agents) <= set(self.agents):  # or else not all have come back to this master
                wanted[trial.key] = self._work(trial, agents, agent)
            if trial.key in wanted and agent not in trial.begun:
                trial.begun.append(agent)
        return wanted

    def _work(self, trial: Trial, agents: list[str], agent: str) -> dict[str, Any]:
        """What an agent must know to start its container."""
        each = self.experiments[trial.experiment]
        return {
            "config": each.config,
            "context": each.context,
            "nodes": [self.agents[name]["address"] for name in agents],
            "rank": agents.index(agent),
            "slots": trial.agents.count(agent),
            "environment": {
                "DET_EXPERIMENT_ID": str(each.id),
                "DET_TRIAL_ID": str(trial.id),
                "DET_TRIAL_RUN_ID": str(trial.run),
                "DET_HPARAMS": json.dumps(trial.hparams),
            },
        }

    def tasks(self) -> dict[str, dict[str, Any]]:
        """Tasks as the API shows them."""
        running = next(iter(answer("tasks")[1]["allocationIdToSummary"].values()))
        cleaning = next(iter(answer("tasks-after")[1]["allocationIdToSummary"].values()))
        found = dict(self.foreign)
        for each in self.experiments.values():
            if each.state not in ENDED:
                for trial in (trial for trial in each.trials if trial.state not in ENDED):
                    task = {**running, "name": trial.name, "slotsNeeded": each.slots}
                    found[f"{each.id}.trial.{trial.key}"] = task
            elif GAP_S <= time.monotonic() - each.closed < CLEAN_UP_S:
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
            known = cluster.trial(int(query["trialIds"][0]))
            return metrics_of(known[1], query["group"][0]) if known else answer("missing-experiment")
        found = re.fullmatch(r"/api/v1/(experiments|trials)/(\d+)(/\w+)?", path)
        number, what = (int(found[2]), (found[3] or "").lstrip("/")) if found else (0, "")
        if found and found[1] == "trials" and (known := cluster.trial(number)):
            return self._of_trial(*known, what)
        if found and found[1] == "experiments" and number in cluster.experiments:
            return self._of(cluster.experiments[number], what)
        return answer("missing-experiment")

    def _login(self, body: dict[str, Any]) -> tuple[int, Any]:
        name = body["username"]
        if not self.cluster.admits(name, body["password"]):
            return answer("login-refused")
        token = secrets.token_hex(8)
        self.cluster.tokens[token] = name
        return 200, {"token": token, "user": self.cluster.users[name]["user"]}

    def _agent(self, body: dict[str, Any]) -> tuple[int, Any]:
        """Take a stand-in agent's report of its slots and containers; answer with what it is to run."""
        cluster = self.cluster
        cluster.agents[body["id"]] = {
            "slots": body["slots"],
            "seen": time.monotonic(),
            "address": body["address"],
        }
        cluster.hear(body["id"], body)
        cluster.schedule()
        return 200, {"run": cluster.work_of(body["id"], body["running"])}

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
                    if body.get("password"):
                        cluster.set_password(each["user"]["username"], body["password"])
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
        points = hyperparameters(config, number)
        each = Experiment(number, config, body.get("modelDefinition") or [], username, to_come=points)
        self.cluster.experiments[number] = each
        each.settle(self.cluster.next_trial)
        try:
            self.cluster.store()
        except subprocess.CalledProcessError:
            del self.cluster.experiments[number]
            return answer("database-down")
        return 200, {"experiment": shown(each), "config": config, "warnings": []}

    def _of(self, each: Experiment, what: str) -> tuple[int, Any]:
        if what == "":
            return 200, {"experiment": shown(each), "config": each.config, "jobSummary": None}
        if what == "kill":
            if each.state not in ENDED:
                each.end("STATE_CANCELED")
            return answer("kill")
        if what == "trials":
            shown_trials = [trial_shown(trial) for trial in each.trials]
            return 200, {"trials": shown_trials, "pagination": pages(len(shown_trials))}
        return answer("missing-experiment")

    def _of_trial(self, each: Experiment, trial: Trial, what: str) -> tuple[int, Any]:
        if what == "":
            return 200, {"trial": trial_shown(trial)}
        if what == "checkpoints":
            return checkpoints_of(each, trial)
        if what == "logs":
            recorded = answer("trial-completed-logs")[1][0]["result"] | {"trialId": trial.id}
            return 200, [{"result": {**recorded, "message": line}} for line in trial.log]
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
        "trialIds": [trial.id for trial in each.trials],
        "numTrials": len(each.trials),
        "searcherType": json.dumps(each.config["searcher"]["name"]),
        "progress": int(each.state == "STATE_COMPLETED"),
    }


def trial_shown(trial: Trial) -> dict[str, Any]:
    """A trial as the API shows it."""
    recorded = copy.deepcopy(answer("trial-completed")[1]["trial"])
    return {
        **recorded,
        "id": trial.id,
        "experimentId": trial.experiment,
        "state": {"STATE_QUEUED": "STATE_ACTIVE"}.get(trial.state, trial.state),
        "restarts": trial.restarts,
        "hparams": trial.hparams,
        "startTime": trial.started,
        "endTime": trial.ended,
    }


def metrics_of(trial: Trial, group: str) -> tuple[int, Any]:
    """The recorded metrics, as those of a trial's newest run; none before its first."""
    status, body = answer("metrics-training" if group == "training" else "trial-completed-metrics-validation")
    found = body["result"]["metrics"] if trial.run else []
    own = {"trialId": trial.id, "trialRunId": trial.run}
    return status, {"result": {"metrics": [each | own for each in found]}}


def checkpoints_of(each: Experiment, trial: Trial) -> tuple[int, Any]:
    """The recorded checkpoints, as those of a trial; none before its first run."""
    status, body = answer("trial-completed-checkpoints")
    found = body["checkpoints"] if trial.run else []
    own = {"trialId": trial.id, "experimentId": each.id, "hparams": trial.hparams}
    checkpoints = [
        checkpoint
        | {
            "uuid": str(uuid.uuid5(uuid.UUID(checkpoint["uuid"]), str(trial.id))),
            "allocationId": f"{each.id}.{trial.key}",
            "training": checkpoint["training"] | own,
        }
        for checkpoint in found
    ]
    return status, body | {"checkpoints": checkpoints}


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


#: A table of JSON texts by name, and of the real one's tables what a password is changed by.
TABLES = """\
CREATE TABLE IF NOT EXISTS standin (name text PRIMARY KEY, content text);
CREATE TABLE IF NOT EXISTS users (
    id serial PRIMARY KEY,
    username text UNIQUE NOT NULL,
    password_hash text,
    active boolean DEFAULT true,
    remote boolean DEFAULT false
);
CREATE TABLE IF NOT EXISTS user_sessions (
    id serial PRIMARY KEY,
    user_id integer REFERENCES users (id),
    token_type text
);
"""


class Database:
    """The real database, through psql."""

    def __init__(self, db: dict[str, str]) -> None:
        """Make the tables where they are missing, as the owner of the configured database."""
        login = f"{db['user']}:{db['password']}"
        self._url = (
            f"postgresql://{login}@{db['host']}:{db['port']}/{db['name']}"  # unescaped, like the real one
        )
        self.run(TABLES)

    def run(self, sql: str, **variables: str) -> str:
        """Run a statement; its output, without decoration."""
        command = ["psql", "--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1"]
        command += [f"--set={name}={value}" for name, value in variables.items()]
        done = subprocess.run([*command, self._url], input=sql, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def keep(self, name: str, content: str) -> None:
        """Store a text under a name."""
        # Too long for an argument of psql. Within JSON a dollar sign only occurs in texts.
        quoted = "$json$" + content.replace("$", "\\u0024") + "$json$"
        sql = (
            f"INSERT INTO standin VALUES (:'name', {quoted}) "
            "ON CONFLICT (name) DO UPDATE SET content = EXCLUDED.content"
        )
        self.run(sql, name=name)

    def kept(self, name: str) -> str | None:
        """The text under a name."""
        return self.run("SELECT content FROM standin WHERE name = :'name'", name=name) or None

    def set_password(self, name: str, sent: str) -> None:
        """Store the hash of a user's password, or nothing if it is blank."""
        salt = "".join(secrets.choice(SALT_LETTERS) for _ in range(21))
        self.run(
            "INSERT INTO users (username, password_hash) VALUES (:'name', NULLIF(:'hash', '')) "
            "ON CONFLICT (username) DO UPDATE SET password_hash = EXCLUDED.password_hash",
            name=name,
            hash=bcrypt(sent, f"{QUICK}{salt}.") if sent else "",
        )

    def password_of(self, name: str) -> str:
        """The hash of a user's password; empty if it is blank."""
        return self.run("SELECT password_hash FROM users WHERE username = :'name'", name=name)

    def kept_all(self, prefix: str) -> str | None:
        """The texts under all names that begin so, in the names' order, as one JSON list."""
        sql = (
            "SELECT '[' || string_agg(content, ',' ORDER BY name) || ']' FROM standin "
            "WHERE starts_with(name, :'prefix')"
        )
        return self.run(sql, prefix=prefix) or None


def main() -> None:
    """Entry point, as the unit starts it."""
    config = yaml.safe_load(Path("/etc/determined/master.yaml").read_text(encoding="utf-8"))
    database = Database(config["db"])
    users, experiments = database.kept("users"), database.kept_all(KEPT)
    initial = config["security"]["initial_user_password"]
    if not users and not initial:
        sys.exit("a password is needed: security.initial_user_password")
    cluster = Cluster(initial, *((None, None) if users else (database.keep, database)))
    cluster.restore(users, experiments)
    cluster._keep, cluster._passwords = database.keep, database
    tls = config["security"]["tls"]
    serve(cluster, "0.0.0.0", config["port"], tls["cert"], tls["key"])
    while True:
        cluster.schedule()
        time.sleep(0.2)


if __name__ == "__main__":
    main()
