"""How to reach the master, as written by the role."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TOKEN: Final = re.compile(r"[!-~]+")


class SettingsError(Exception):
    """The settings or a password can't be read; the message is one sentence."""


@dataclass(frozen=True)
class Settings:
    """client.json or admin.json, which the role writes."""

    master: str  # its address, with scheme and port
    certificate: Path | None  # what its certificate is checked against; None = no TLS
    user: str
    password_file: Path
    patience_s: float  # for a master that does not answer
    queue_limit_s: float  # for slots
    token_file: Path | None = None  # where the token of the last login is kept; None = it is not

    @property
    def password(self) -> str:
        """The user's password.

        Raises:
            SettingsError: its file can't be read.
        """
        try:
            return self.password_file.read_text(encoding="ascii").strip()
        except OSError as error:
            raise SettingsError(
                f"The password of {self.user} in {self.password_file} can't be read ({error.strerror}): run "
                "this as the user that owns the file; `make provision` writes it."
            ) from error

    def kept_token(self) -> str | None:
        """The token of an earlier login of the same user, if there is one.

        Raises:
            SettingsError: its file can't be read.
        """
        if self.token_file is None or not self.token_file.exists():
            return None
        with _said(self.token_file, "read"):
            user, _, token = self.token_file.read_text(encoding="utf-8", errors="replace").partition(" ")
        # The training user can write the file; a header can hold no more than this.
        return token.strip() if user == self.user and TOKEN.fullmatch(token.strip()) else None

    def keep_token(self, token: str) -> None:
        """Keep a token for the next command, where there is a file for it.

        Raises:
            SettingsError: it can't be written.
        """
        if self.token_file is not None and self.token_file.exists():
            # Not by renaming: the directory is root's.
            with _said(self.token_file, "written"):
                self.token_file.write_text(f"{self.user} {token}\n", encoding="ascii")


@contextmanager
def _said(path: Path, done: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SettingsError(
            f"{path} can't be {done} ({error.strerror}): `make provision` gives it to the training user."
        ) from error


def read_settings(path: Path) -> Settings:
    """The settings in `path`.

    Raises:
        SettingsError: they can't be read.
    """
    try:
        content = json.loads(path.read_bytes())
        return Settings(
            master=content["master"],
            certificate=Path(content["certificate"]) if content["certificate"] else None,
            user=content["user"],
            password_file=Path(content["password_file"]),
            patience_s=float(content["patience_s"]),
            queue_limit_s=float(content["queue_limit_s"]),
            token_file=Path(content["token_file"]) if content.get("token_file") else None,
        )
    except OSError as error:
        raise SettingsError(
            f"{path} can't be read ({error.strerror}): `make provision` writes it."
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise SettingsError(f"{path} is damaged ({error}): `make provision` rewrites it.") from error
