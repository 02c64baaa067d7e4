"""Determined's administrator gets a password anew: the role's tasks, and its SQL on a real PostgreSQL."""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import jinja2
import pytest
import yaml

from tests.standins.determined import master as standin
from tests.unit.roles.loading import ROOT
from tests.unit.roles.test_preflight import playbook

ROLE = ROOT / "roles" / "determined"
SERVER = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
PASSWORD = "Tb1anew"
#: The tables of 0.38.1, as far as a password concerns them, with a trigger that notes as whom it runs.
TABLES = """
CREATE TABLE users (id serial PRIMARY KEY, username text UNIQUE NOT NULL, password_hash text,
    admin boolean DEFAULT false, active boolean DEFAULT false, remote boolean NOT NULL DEFAULT false);
CREATE TYPE token_type AS ENUM ('USER_SESSION', 'ACCESS_TOKEN');
CREATE TABLE user_sessions (id serial PRIMARY KEY, user_id integer REFERENCES users (id),
    token_type token_type NOT NULL DEFAULT 'USER_SESSION');
CREATE TABLE ran_as (who text);
CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN INSERT INTO ran_as VALUES (current_user); RETURN NEW; END $$;
CREATE TRIGGER noted BEFORE UPDATE ON users FOR EACH ROW EXECUTE FUNCTION noted();
INSERT INTO users (username, password_hash, admin, active) VALUES ('admin', 'old', true, true),
    ('trainbed', 'kept', false, true);
INSERT INTO user_sessions (user_id, token_type) VALUES (1, 'USER_SESSION'), (1, 'ACCESS_TOKEN'),
    (2, 'USER_SESSION');
"""
LEFT = """
SELECT extname FROM pg_extension WHERE extname <> 'plpgsql'
UNION SELECT nspname FROM pg_namespace WHERE nspname NOT IN ('public', 'information_schema')
    AND nspname NOT LIKE 'pg\\_%'
"""


@dataclass
class Server:
    """A PostgreSQL server of this test's own."""

    port: int
    log: Path

    def psql(
        self, sql: str, database: str = "determined", user: str = "postgres"
    ) -> subprocess.CompletedProcess[str]:
        """Call psql as the role does, over the network."""
        command = ["psql", "--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1"]
        command += [f"--port={self.port}", "--host=127.0.0.1", f"--username={user}", f"--dbname={database}"]
        return subprocess.run(command, input=sql, capture_output=True, text=True, check=False)

    def rows(self, sql: str, user: str = "postgres") -> list[str]:
        """What a statement returns, row by row."""
        done = self.psql(sql, user=user)
        assert done.returncode == 0, done.stderr
        return list(done.stdout.split())

    def fresh(self) -> None:
        """An empty database, owned as the role has it."""
        for sql in ("DROP DATABASE IF EXISTS determined", "CREATE DATABASE determined OWNER determined"):
            assert self.psql(sql, "postgres").returncode == 0


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    if not SERVER:
        pytest.skip("no PostgreSQL server is installed on this machine")
    folder = Path(tempfile.mkdtemp(prefix="trainbed-pg-"))
    user = None
    if os.geteuid() == 0:  # PostgreSQL refuses root
        user = "postgres" if "postgres" in {each.pw_name for each in pwd.getpwall()} else "nobody"
        shutil.chown(folder, user)

    def call(program: str, *arguments: str) -> None:
        command = [str(SERVER[-1].parent / program), *arguments]
        subprocess.run(command, user=user, cwd="/", check=True, stdout=subprocess.DEVNULL)

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    data, log = str(folder / "data"), folder / "log"
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off"
    # The worst case: a server that logs every statement.
    options += " -c log_statement=all -c log_min_duration_statement=0"
    try:
        call("initdb", "--auth=trust", "--username=postgres", "--pgdata", data)
        call("pg_ctl", "start", "--wait", "--pgdata", data, "--log", str(log), "--options", options)
        try:
            found = Server(port, log)
            assert found.psql("CREATE ROLE determined LOGIN", "postgres").returncode == 0
            yield found
        finally:
            call("pg_ctl", "stop", "--wait", "--mode=immediate", "--pgdata", data)
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def server(running: Server) -> Server:
    running.fresh()
    return running


def statements(password: str = PASSWORD) -> str:
    """What the role gives to psql."""
    template = (ROLE / "templates" / "reset_password.sql.j2").read_text(encoding="utf-8")
    rendered = jinja2.Template(template, undefined=jinja2.StrictUndefined).render(
        determined_reset_password_hash=standin.hashed(password),
        determined_database="determined",
        determined_bcrypt_cost=4,
    )
    return str(rendered)


def test_only_the_administrator_gets_the_password_and_nothing_else_is_left(server: Server) -> None:
    server.rows(TABLES, user="determined")
    before = server.rows(LEFT)

    done = server.psql(statements())

    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    admin, other = server.rows("SELECT password_hash FROM users ORDER BY id")
    # Hashed by PostgreSQL, checked by another implementation.
    assert admin.startswith("$2a$04$") and other == "kept"
    assert standin.matches(standin.hashed(PASSWORD), admin)
    assert not standin.matches(standin.hashed("Tb1other"), admin)
    left = server.rows("SELECT user_id || token_type::text FROM user_sessions ORDER BY id")
    assert left == ["1ACCESS_TOKEN", "2USER_SESSION"]
    assert server.rows("SELECT who FROM ran_as") == ["determined"]
    assert server.rows(LEFT) == before == []
    log = server.log.read_text(encoding="utf-8")
    assert "CREATE TABLE ran_as" in log and standin.hashed(PASSWORD) not in log and admin not in log


def test_an_extension_that_was_there_stays(server: Server) -> None:
    server.rows(TABLES, user="determined")
    server.rows('CREATE SCHEMA "its own"; CREATE EXTENSION pgcrypto SCHEMA "its own"', user="determined")
    before = server.rows(LEFT)

    done = server.psql(statements())

    assert done.returncode == 0, done.stderr
    (admin,) = server.rows("SELECT password_hash FROM users WHERE username = 'admin'")
    assert standin.matches(standin.hashed(PASSWORD), admin)
    assert server.rows(LEFT) == before and "pgcrypto" in before


@pytest.mark.parametrize("change", ["active = false", "remote = true", "username = 'gone'"])
def test_without_an_administrator_who_may_log_in_nothing_is_changed(server: Server, change: str) -> None:
    server.rows(TABLES, user="determined")
    server.rows(f"UPDATE users SET {change} WHERE id = 1")

    done = server.psql(statements())

    assert done.returncode == 3
    assert "ERROR:  Determined has no active user admin with a password" in done.stderr
    assert standin.hashed(PASSWORD) not in done.stderr
    assert server.rows("SELECT password_hash FROM users ORDER BY id") == ["old", "kept"]
    assert len(server.rows("SELECT id FROM user_sessions")) == 3
    assert server.rows(LEFT) == []


def test_the_stand_in_goes_by_what_the_database_says(server: Server) -> None:
    db = {"user": "determined", "password": "any", "host": "127.0.0.1", "name": "determined"}
    database = standin.Database({**db, "port": str(server.port)})
    cluster = standin.Cluster("Tb1first", database.keep, database)
    first, anew = standin.hashed("Tb1first"), standin.hashed(PASSWORD)
    assert cluster.admits("admin", first) and not cluster.admits("admin", anew)
    assert all(each.startswith("$2a$") for each in server.rows("SELECT password_hash FROM users"))

    assert server.psql(statements()).returncode == 0

    assert cluster.admits("admin", anew) and not cluster.admits("admin", first)
    assert cluster.admits("determined", first) and not cluster.admits("nobody", first)
    cluster.set_password("determined", "")
    assert cluster.admits("determined", "") and not cluster.admits("determined", first)
    cluster.save()
    again = standin.Cluster(passwords=None)
    again.restore(database.kept("users"), database.kept("experiments"))
    again._passwords = database
    assert again.admits("admin", anew) and not again.admits("admin", first)


CLIENT = """#!/bin/sh
# Knows admin's password once psql was called.
case "$*" in
*" users "*)
    [ -s {place}/sql ] || {{ echo 'Another password: say so.' >&2; exit 4; }}
    echo '{{"changed": true}}' ;;
*" agents"*) echo agents >> {place}/called ;;
esac
"""
PSQL = """#!/bin/sh
echo "$@" > {place}/arguments
cat > {place}/sql
if [ -e {place}/broken ]; then : > {place}/sql; echo 'psql: error: no server' >&2; exit 2; fi
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Programs in the place of psql and the client, a password, and a play that sets up users."""
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "admin-password").write_text(f"{PASSWORD}\n", encoding="ascii")
    for name, text in (("client", CLIENT), ("psql", PSQL)):
        (tmp_path / name).write_text(text.format(place=tmp_path), encoding="ascii")
        (tmp_path / name).chmod(0o755)
    task = {"name": "Set up", "ansible.builtin.include_role": {"name": "determined", "tasks_from": "ready"}}
    play = {
        "hosts": "localhost",
        "gather_facts": False,
        "environment": {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        "tasks": [task],
    }
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]), encoding="utf-8")
    given = {
        "ansible_become": False,
        "ansible_connection": "local",
        "ansible_python_interpreter": sys.executable,
        "determined_call": [str(tmp_path / "client")],
        "determined_secrets": str(secrets),
    }
    (tmp_path / "given.json").write_text(json.dumps(given), encoding="utf-8")
    hosts = "all: {children: {workers: {hosts: {localhost: {}}}}}\n"
    (tmp_path / "hosts.yml").write_text(hosts, encoding="utf-8")
    return tmp_path


def played(place: Path, *arguments: str) -> tuple[int, str]:
    """The play's exit code, and what it says on one line."""
    given = ["-e", f"@{place}/given.json", *arguments]
    done = playbook(str(place / "play.yml"), *given, inventory=str(place / "hosts.yml"))
    return done.returncode, re.sub(r"\s+", " ", done.stdout + done.stderr)


def test_without_the_variable_it_ends_with_the_clients_sentence(place: Path) -> None:
    code, said = played(place)
    assert code != 0
    assert "1 problem: - Another password: say so." in said
    assert not (place / "sql").exists() and not (place / "called").exists()


def test_with_the_variable_the_password_is_set_said_and_shown_nowhere(place: Path) -> None:
    code, said = played(place, "-vvv", "-e", "determined_reset_password=true")
    assert code == 0, said
    assert "The password of Determined's user admin was set anew in the database" in said
    sql, arguments = (place / "sql").read_text(), (place / "arguments").read_text()
    assert standin.hashed(PASSWORD) in sql and 'SET LOCAL ROLE "determined"' in sql
    assert "--dbname=determined" in arguments and "--port=5432" in arguments
    for secret in (PASSWORD, standin.hashed(PASSWORD)):
        assert secret not in arguments and secret not in said
    assert (place / "called").read_text() == "agents\n"
    # The password is right now: nothing is done.
    (place / "arguments").unlink()
    code, said = played(place, "-e", "determined_reset_password=true")
    assert code == 0 and not (place / "arguments").exists() and "set anew" not in said


def test_a_database_that_does_not_take_it_is_one_sentence(place: Path) -> None:
    (place / "broken").touch()
    code, said = played(place, "-e", "determined_reset_password=true")
    assert code != 0 and not (place / "called").exists()
    assert (
        "1 problem: - The password of Determined's user admin could not be set in the database determined on "
        "localhost, and nothing was changed: psql: error: no server" in said
    )
