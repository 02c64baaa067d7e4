"""A training job that puts links into its directories does not make root write, or pack, where they lead."""

from __future__ import annotations

import os
import pwd
import tarfile
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.unit.roles.loading import call, load

OTHER = "nobody"
root_only = pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user too")


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that every user can reach, with one of the training user's."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "runs").mkdir()
        os.chown(folder / "runs", *ids())
        (folder / "secret").write_text("root's")
        (folder / "secret").chmod(0o600)
        yield folder


def ids() -> tuple[int, int]:
    """Uid and gid of the training user."""
    account = pwd.getpwnam(OTHER)
    return account.pw_uid, account.pw_gid


@root_only
def test_a_marker_that_is_a_link_leads_nowhere(place: Path) -> None:
    script = load("roles/runs/library/run_job.py")
    marker, target = place / "runs" / "failed", place / "made"
    marker.symlink_to(target)
    with pytest.raises(script.JobError, match=r"can't be told that this one has failed: .*Permission denied"):
        script.mark_failed(marker, OTHER)
    assert not target.exists()

    marker.unlink()
    script.mark_failed(marker, str(ids()[0]))
    found = marker.stat()
    assert (found.st_uid, found.st_gid) == ids()


@root_only
@pytest.mark.parametrize("mode", [0o755, 0o777])
def test_root_writes_only_where_nobody_else_does(place: Path, mode: int) -> None:
    places = load("roles/runs/module_utils/run_places.py")
    (place / "runs").chmod(mode)
    with pytest.raises(PermissionError, match=f"others may change {place}/runs: use .* run_launch_dir"):
        places.roots_directory(place / "runs" / "some-run" / "logs")
    assert not (place / "runs" / "some-run").exists()

    (place / "runs" / "logs").symlink_to(place)
    with pytest.raises(PermissionError):
        places.roots_directory(place / "runs" / "logs" / "new")
    assert not (place / "new").exists()

    made = places.roots_directory(place / "launches" / "some-run" / "logs")
    assert made.stat().st_mode & 0o777 == 0o755
    assert places.roots_directory(made) == made


@root_only
def test_a_log_among_a_jobs_own_files_is_refused(place: Path) -> None:
    module = load("roles/runs/library/run_job.py")
    (place / "runs" / "node.log").symlink_to(place / "secret")
    result = call(module, argv=["true"], unit="trainbed-test", log=str(place / "runs" / "node.log"))
    assert result["failed"] and "root must not write" in result["msg"]
    assert (place / "secret").read_text() == "root's"


@root_only
def test_a_run_is_staged_by_its_user(place: Path) -> None:
    script = load("roles/runs/library/stage_run.py")
    run_dir = place / "runs" / "some-run" / "01"
    script.stage(run_dir, OTHER, '{"some": "Überprüfung"}\n')
    made = [run_dir.parent, run_dir, run_dir / "logs", run_dir / "spec.json"]
    assert {(path.stat().st_uid, path.stat().st_gid) for path in made} == {ids()}
    assert [path.stat().st_mode & 0o777 for path in made] == [0o755, 0o755, 0o755, 0o644]
    assert (run_dir / "spec.json").read_text(encoding="utf-8") == '{"some": "Überprüfung"}\n'


@root_only
def test_a_run_is_not_staged_where_a_link_leads(place: Path) -> None:
    module = load("roles/runs/library/stage_run.py")
    (place / "elsewhere").mkdir()
    (place / "runs" / "some-run").symlink_to(place / "elsewhere")
    run_dir = place / "runs" / "some-run" / "01"
    asked: dict[str, Any] = {"run_dir": str(run_dir), "specification": "{}", "code": str(place / "code")}
    result = call(module, user=OTHER, **asked)
    assert result["failed"] and "Permission denied" in result["msg"]
    assert not list((place / "elsewhere").iterdir())
    assert "has no user no-such-user" in call(module, user="no-such-user", **asked)["msg"]


@root_only
def test_a_run_is_packed_by_its_user(place: Path) -> None:
    script = load("roles/runs/library/pull_run.py")
    (place / "roots").mkdir(mode=0o700)
    (place / "roots" / "key").write_text("root's")
    run_dir, launch_dir = place / "runs" / "01", place / "launches" / "some-run" / "01"
    run_dir.symlink_to(place / "roots")
    with pytest.raises(script.subprocess.CalledProcessError) as denied:
        script.pack(run_dir, launch_dir, OTHER)
    assert "Permission denied" in denied.value.stderr
    assert not list(launch_dir.parent.iterdir())

    run_dir.unlink()
    run_dir.mkdir()
    os.chown(run_dir, *ids())
    (run_dir / "tokens").symlink_to(place / "roots")
    (run_dir / "launch.json").write_text("made up")
    (run_dir / "link").symlink_to(place / "secret")
    (launch_dir / "logs").mkdir(parents=True)
    package, pulled = script.pack(run_dir, launch_dir, OTHER)
    assert package is not None and pulled == ["run", "launch"]
    with tarfile.open(package, ignore_zeros=True) as archive:
        assert sorted(archive.getnames()) == ["launch", "launch/logs", "run", "run/link"]
        assert archive.getmember("run/link").issym()
    with pytest.raises(script.subprocess.CalledProcessError):
        (run_dir / "tokens").unlink()
        (run_dir / "tokens").mkdir()
        (run_dir / "tokens" / "roots").touch()
        script.remove_tokens(run_dir, OTHER)
    assert (place / "roots" / "key").read_text() == "root's"
