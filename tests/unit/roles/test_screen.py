"""What a person sees when Ansible itself plays a made-up playbook: sentences, and where the details are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.roles.test_provisioning_record import SECRET, Checkout

SENTENCE = "one has 3 MB free on /: make room there."
# The real one's words depend on how busy a machine is, and two nodes may be told different ones.
# It reads what Ansible sends: one that ends before that makes Ansible say now this, now that.
STANDIN_SSH = """#!/bin/sh
[ -t 0 ] || cat > /dev/null
echo "ssh: connect to host nowhere port 22: Connection refused" >&2
exit 255
"""
NOWHERE = {
    "ansible_connection": "ssh",
    "ansible_host": "nowhere",
    "ansible_ssh_executable": "{{ playbook_dir }}/standin-ssh",
}
ROLES: dict[str, list[dict[str, Any]]] = {
    "worded": [
        {
            "name": "Stop if there are problems",
            "ansible.builtin.fail": {"msg": "{{ item }}"},
            "loop": [SENTENCE, "two cannot be reached."],
            "run_once": True,
        }
    ],
    "everywhere": [
        {
            "name": "Install",
            "ansible.builtin.command": "sh -c 'echo warning >&2; echo E: no such package >&2; exit 1'",
        }
    ],
    "long": [{"name": "Talk", "ansible.builtin.command": "sh -c 'seq -s, 2000 >&2; exit 1'"}],
    "undefined": [{"name": "Use", "ansible.builtin.debug": {"msg": "{{ nowhere.to_be_found }}"}}],
    "secret": [
        {
            "name": "Hide",
            "ansible.builtin.command": "sh -c 'echo {{ password }}; exit 1'",
            "no_log": True,
        }
    ],
    "lost": [{"name": "Reach", "ansible.builtin.ping": {}, "vars": NOWHERE}],
    "spared": [{"name": "Reach", "ansible.builtin.ping": {}, "ignore_unreachable": True, "vars": NOWHERE}],
}


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    made = Checkout(tmp_path / "checkout")
    for name, tasks in ROLES.items():
        (made.root / "roles" / name / "tasks").mkdir(parents=True)
        (made.root / "roles" / name / "tasks" / "main.yml").write_text(yaml.safe_dump(tasks))
    ssh = made.root / "playbooks" / "standin-ssh"
    ssh.write_text(STANDIN_SSH, encoding="utf-8")
    ssh.chmod(0o755)
    return made


def told(output: str) -> list[str]:
    """The lines below the recap that state problems."""
    _, *rest = re.split(r"^\d+ problems?:$", output.rsplit("PLAY RECAP", 1)[1], flags=re.MULTILINE)
    assert len(rest) == 1, output
    lines = [line.strip() for line in rest[0].splitlines() if line.strip()]
    return [line for line in lines if not line.startswith("All details are in")]


def test_sentences_are_shown_once_each_at_the_end_and_nothing_around_them(checkout: Checkout) -> None:
    output = checkout.play(roles=("inner", "worded"))
    assert told(output) == [f"- {SENTENCE}", "- two cannot be reached."]
    assert "\n2 problems:\n" in output
    assert output.count(SENTENCE) == 1 and not re.search(r"fatal|FAILED!|item=|ERROR|msg:", output)
    assert "Seconds by role" not in output
    (log,) = checkout.logs()
    assert SENTENCE in log


@pytest.mark.parametrize(
    ("role", "sentence"),
    [
        ("everywhere", "one and two failed at 'everywhere : Install': E: no such package"),
        ("undefined", r"one and two failed at 'undefined : Use': .*'nowhere' is undefined"),
        ("secret", "one and two failed at 'secret : Hide': what it said is hidden, .*"),
        ("lost", "one and two were not reached by 'lost : Reach': .*[Cc]onnect.*"),
        ("long", r"one and two failed at 'long : Talk': 1,2,3,[\d,]+ …"),
    ],
)
def test_any_other_fault_names_node_and_task(checkout: Checkout, role: str, sentence: str) -> None:
    output = checkout.play(roles=("inner", role))
    (line,) = told(output)
    assert re.fullmatch(rf"- {sentence}", re.sub("two and one", "one and two", line)), output
    assert "\n1 problem:\n" in output and "Traceback" not in output and "FAILED!" not in output
    (log,) = checkout.logs()
    assert f"TASK {role} : " in log and SECRET not in log + output
    assert role != "long" or "1999,2000" in log
    where = re.search(r"All details are in (results/provisioning/\d+T\d+Z\.log)\.", output)
    assert where and (checkout.root / where[1]).read_text() == log


def test_a_node_that_may_be_away_is_no_problem_by_itself(checkout: Checkout) -> None:
    output = checkout.play(roles=("spared",))
    assert "unreachable: [one]" in output and "problem" not in output


def test_where_there_is_no_log_the_details_are_on_the_screen(checkout: Checkout) -> None:
    output = checkout.play(roles=("everywhere",), name="other")
    assert "FAILED!" in output and "warning" in output and len(told(output)) == 1
    assert not (checkout.root / "results").exists()
    assert "fatal" not in checkout.play(roles=("worded",), name="other")


def test_the_log_has_what_changed_and_check_mode_has_one_too(checkout: Checkout) -> None:
    checkout.play("--check")
    checkout.play()
    first, second = checkout.logs()
    assert "check=True" in first and "changed: [one]" in second
    assert re.search(r"^\d\d:\d\d:\d\d TASK outer : Note$", second, re.MULTILINE)
    assert re.search(r"^    dest: .*made-one-outer$", second, re.MULTILINE)
    assert re.search(r"^\d\d:\d\d:\d\d one: ok=\d+ ", second, re.MULTILINE)


def test_ansibles_own_account_can_be_had(checkout: Checkout) -> None:
    assert "FAILED!" in checkout.play("-v", roles=("everywhere",))
