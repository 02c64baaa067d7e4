"""What a stack needs, counted from roles: small ones that are made up, and those that are shipped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments.cluster.installing import facts_of, installing, played_roles
from experiments.cluster.rendering import Unknown, holds, render, text
from experiments.cluster.tasks import Reader
from experiments.util.errors import UserError
from experiments.util.paths import REPOSITORY

DEBIAN = facts_of("Debian GNU/Linux 12 (bookworm)")
PLAYBOOK = """
- hosts: workers:!master
  roles: [store]
- hosts: master
  roles:
    - role: engine
      engine_state: held
  tasks:
    - ansible.builtin.import_role: {name: store, tasks_from: fetch.yml}
"""
STACK = """
- name: Look
  ansible.builtin.stat: {path: /etc/made}
- name: Only in check mode
  when: ansible_check_mode and not made_before.stat.exists
  block:
    - name: Pretend
      ansible.builtin.command: "true"
- name: Packages by distribution
  ansible.builtin.apt:
    name: "{{ made_packages[ansible_facts['distribution'] ~ '-' ~ made_major] + ['more'] }}"
- name: Switched off
  ansible.builtin.apt: {name: unwanted}
  when: made_extra | bool
- name: By a loop
  ansible.builtin.template: {src: "{{ item }}.j2", dest: "{{ made_dir }}/{{ item }}.conf"}
  loop: [one, two]
- name: Into a directory
  ansible.builtin.copy: {src: files/three.conf, dest: "{{ made_dir }}/"}
- name: Elsewhere
  ansible.builtin.copy: {content: x, dest: /opt/made}
- name: The master
  ansible.builtin.include_tasks: {file: unit.yml}
  vars: {made_kind: master}
  when: inventory_hostname in groups['master']
- name: The workers
  ansible.builtin.include_tasks: unit.yml
  vars: {made_kind: worker}
  when: inventory_hostname in groups['workers']
- name: The database
  ansible.builtin.include_role: {name: database}
  when: inventory_hostname in groups['master']
- name: A part of the store
  ansible.builtin.include_role: {name: store, tasks_from: fetch.yml}
  when: inventory_hostname in groups['workers']
"""
UNIT = """
- name: Start
  ansible.builtin.systemd_service:
    name: "made-{{ made_kind }}"
    enabled: true
    state: "{{ 'restarted' if made_changed is changed else 'started' }}"
- name: Keep another from starting
  ansible.builtin.systemd_service: {name: made.socket, enabled: false}
- name: Ask
  ansible.builtin.command: made --version
  changed_when: false
- name: Do
  ansible.builtin.command: made --do
  changed_when: made_done.rc == 0
"""
ROLES: dict[str, dict[str, str]] = {
    "made": {
        "tasks/main.yml": STACK,
        "tasks/unit.yml": UNIT,
        "defaults/main.yml": "{made_dir: /etc/made, made_extra: false, made_late_port: '{{ elsewhere }}',"
        " made_tls: no, made_port: \"{{ 8443 if made_tls | bool else 8080 }}\", made_report: 1}",
        "vars/main.yml": "{made_packages: {Debian-12: [old], Debian-13: [new]},"
        " made_major: \"{{ ansible_facts['distribution_major_version'] }}\"}",
        "meta/main.yml": "{dependencies: [{role: ground}]}",
    },
    "ground": {"tasks/main.yml": "- ansible.builtin.apt: {name: ground}"},
    "database": {
        "tasks/main.yml": "- ansible.builtin.apt: {deb: '/var/cache/database_1.0_amd64.deb'}\n"
        "- {community.postgresql.postgresql_db: {name: x}, become: true}\n"
        "- ansible.builtin.apt: {name: old-database, state: absent}",
        "defaults/main.yml": "{database_port: 5432, database_peer_port: '{{ database_port }}'}",
    },
    "store": {
        "tasks/main.yml": "- ansible.builtin.service: {name: [store, cache], enabled: true}",
        "tasks/fetch.yml": "- ansible.builtin.get_url: {url: x, dest: /etc/store/list}",
        "defaults/main.yml": "{store_port: 8070}",
    },
    "engine": {"tasks/main.yml": "- ansible.builtin.apt: {name: engine}"},
}  # fmt: skip


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for role, files in ROLES.items():
        for name, content in files.items():
            path = tmp_path / "roles" / role / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
    (tmp_path / "playbooks").mkdir()
    (tmp_path / "playbooks" / "provision.yml").write_text(PLAYBOOK)
    return tmp_path


def test_what_a_stack_needs_is_counted_node_by_node(checkout: Path) -> None:
    own = installing(checkout, "made", [], DEBIAN).own
    assert own.roles == ["made", "ground", "database", "store"]
    master, workers = own.nodes["master"], own.nodes["workers"]
    assert master.packages == ["database", "ground", "more", "old"]
    assert workers.packages == ["ground", "more", "old"]
    assert master.services == ["made-master"] and workers.services == ["made-worker"]
    files = ["/etc/made/one.conf", "/etc/made/three.conf", "/etc/made/two.conf"]
    assert master.configuration == files and workers.configuration == [*files, "/etc/store/list"]
    # Packages: ground, by distribution, the database's file and its predecessor; services: of unit.yml.
    assert master.steps == {"packages": 4, "files": 3, "services": 2, "commands": 1, "other": 1}
    assert workers.steps == {"packages": 2, "files": 4, "services": 2, "commands": 1}
    assert own.all_of("services") == ["made-master", "made-worker"] and own.not_followed == []


def test_ports_are_those_that_the_variables_of_whole_roles_name(checkout: Path) -> None:
    own = installing(checkout, "made", [], DEBIAN).own
    assert [(port.number, port.variables) for port in own.ports] == [
        (5432, ["database_port", "database_peer_port"]),
        (8080, ["made_port"]),
    ]


def test_what_it_stands_on_is_counted_where_the_playbook_plays_it(checkout: Path) -> None:
    before = installing(checkout, "made", ["store", "engine"], DEBIAN).before
    assert before.nodes["master"].packages == ["engine"] and before.nodes["master"].services == []
    assert before.nodes["workers"].packages == [] and before.nodes["workers"].services == ["cache", "store"]
    assert [port.number for port in before.ports] == [8070]
    assert played_roles(checkout / "playbooks" / "provision.yml") == {
        "store": ["workers"],
        "engine": ["master"],
    }


def test_another_distribution_has_other_packages(checkout: Path) -> None:
    assert facts_of("Ubuntu 24.04.1 LTS") == {"distribution": "Ubuntu", "distribution_major_version": "24"}
    assert facts_of("unheard of") == {}
    trixie = installing(checkout, "made", [], facts_of("Debian GNU/Linux 13 (trixie)")).own
    assert "new" in trixie.all_of("packages") and "old" not in trixie.all_of("packages")
    # What is not known stays as it is written, and is never left out.
    assert any(name.startswith("<") for name in installing(checkout, "made", [], {}).own.all_of("packages"))


def test_a_file_that_only_a_node_knows_is_said(checkout: Path) -> None:
    path = checkout / "roles" / "engine" / "tasks" / "main.yml"
    path.write_text("- ansible.builtin.include_tasks: '{{ found_out }}.yml'")
    reader = Reader(checkout / "roles", "master", {})
    assert list(reader.tasks_of("engine")) == []
    assert reader.reading.not_followed == ["include_tasks <found_out>.yml in roles/engine"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (
            "- ansible.builtin.include_role: {name: engine}",
            "call one another in a circle: engine/main.yml > ",
        ),
        ("- ansible.builtin.include_tasks: gone.yml", "gone.yml is missing or holds no list of tasks"),
        ("- {name: Short, copy: {dest: /x}}", "names no module by its full name"),
        ("- [", "is not YAML"),
    ],
)
def test_what_is_wrong_with_a_role_is_said(checkout: Path, content: str, sentence: str) -> None:
    (checkout / "roles" / "engine" / "tasks" / "main.yml").write_text(content)
    with pytest.raises(UserError, match=sentence):
        list(Reader(checkout / "roles", "master", {}).tasks_of("engine"))


@pytest.mark.parametrize(
    ("condition", "may_hold"),
    [
        (True, True),
        ("known == 1", True),
        ("known == 2", False),
        ("unknown == 1", True),
        ("known == 2 and unknown", False),
        ("unknown is changed", True),
        (["unknown", "known == 2"], False),
        ("not ansible_check_mode", True),
    ],
)
def test_a_condition_counts_unless_it_certainly_fails(condition: Any, may_hold: bool) -> None:
    assert holds(condition, {"known": 1}) is may_hold


def test_templates_are_rendered_as_far_as_they_are_known() -> None:
    variables = {"a": "{{ b }}/x", "b": "/etc", "kinds": ["one"], "c": "{{ c }}"}
    assert render("{{ a | dirname }}", variables) == "/etc"
    assert render("{{ kinds | map('regex_replace', '^(.*)$', 'made-\\1') | list }}", variables) == [
        "made-one"
    ]
    assert text("{{ a }}/{{ unknown.name }}", variables) == "/etc/x/<unknown.name>"
    for template in ("{{ unknown }}", "{{ c }}", "{{ a | no_such_filter }}"):
        with pytest.raises(Unknown):
            render(template, variables)


def stacks() -> list[str]:
    """The stacks that are shipped: roles that launch runs."""
    return sorted(path.parts[-3] for path in (REPOSITORY / "roles").glob("*/tasks/run.yml"))


@pytest.mark.parametrize("stack", stacks())
def test_every_stack_that_is_shipped_can_be_counted(stack: str) -> None:
    own = installing(REPOSITORY, stack, [], DEBIAN).own
    assert own.roles[0] == stack and own.not_followed == [] and own.ports
    assert own.nodes["workers"].steps
    for needs in own.nodes.values():
        written = [*needs.packages, *needs.services, *needs.configuration]
        assert not [each for each in written if "<" in each or "{" in each]
    text_of_units = "".join(
        path.read_text()
        for role in own.roles
        for path in (REPOSITORY / "roles" / role / "tasks").glob("*.yml")
    )
    assert bool(own.all_of("services")) == ("enabled: true" in text_of_units)
