"""A stand-in for the hub: one data set of Parquet files, and models, for those who have its token."""

from __future__ import annotations

import hashlib
import io
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow import parquet

NAME: Final = "lab/mine"
COMMIT: Final = "0123456789" * 4


class StandInHub(ThreadingHTTPServer):
    """It answers what the hub's libraries ask for a data set or a model, on a port of loopback."""

    def __init__(self, splits: Mapping[str, Mapping[str, list[Any]]], token: str, name: str = NAME) -> None:
        """One with these columns of these splits, in a data set of this name."""
        super().__init__(("127.0.0.1", 0), _Answer)
        self.token = token
        self.commit = COMMIT  # what every branch is at
        self.taken: list[str] = []  # files of which some bytes were read
        files: dict[str, bytes] = {}
        self.repositories = {f"datasets/{name}": files}  # and models/name of each model
        for split, columns in splits.items():
            content = io.BytesIO()
            parquet.write_table(pa.table(dict(columns)), content)
            files[f"data/{split}-00000-of-00001.parquet"] = content.getvalue()

    @property
    def endpoint(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server_port}"

    def holding(self, path: str) -> tuple[dict[str, bytes], str]:
        """The files of the data set or model that a path is in, and what follows its name there."""
        place = path.removeprefix("/api").strip("/")
        place = place if place.startswith(("datasets/", "models/")) else f"models/{place}"
        for name, files in self.repositories.items():
            if f"{place}/".startswith(f"{name}/"):
                return files, place.removeprefix(name).strip("/")
        raise KeyError(path)

    @staticmethod
    def entries(files: Mapping[str, bytes], folder: str) -> list[dict[str, Any]]:
        """What is in a folder."""
        folders = {name.rpartition("/")[0] for name in files} - {""}
        every = [{"type": "directory", "path": name, "size": 0, "oid": "0" * 40} for name in folders]
        for name, content in files.items():
            oid = hashlib.sha1(content, usedforsecurity=False).hexdigest()
            every.append({"type": "file", "path": name, "size": len(content), "oid": oid})
        return [entry for entry in every if str(entry["path"]).rpartition("/")[0] == folder]


@contextmanager
def stand_in_hub(
    splits: Mapping[str, Mapping[str, list[Any]]], token: str, name: str = NAME
) -> Iterator[StandInHub]:
    """One that answers as long as the context is open."""
    hub = StandInHub(splits, token, name)
    thread = threading.Thread(target=hub.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        thread.join()
        hub.server_close()


class _Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: StandInHub

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def _answer(self) -> None:
        hub, path = self.server, unquote(urlsplit(self.path).path)
        if path == "/":
            self._send(200)
            return
        if self.headers.get("Authorization") != f"Bearer {hub.token}":
            self._send(401, b"{}", X_Error_Code="RepoNotFound")
            return
        try:
            files, rest = hub.holding(path)
        except KeyError:
            self._send(404, b"{}", X_Error_Code="RepoNotFound")
            return
        what, _, rest = rest.partition("/")
        commit, _, name = rest.partition("/")
        if path.startswith("/api/") and what in ("", "revision"):
            about = {"id": "it", "sha": hub.commit, "siblings": [{"rfilename": each} for each in files]}
            self._send(200, json.dumps(about | {"private": True, "downloads": 0, "tags": []}).encode())
        elif path.startswith("/api/") and what == "tree":
            self._send(200, json.dumps(hub.entries(files, name)).encode())
        elif what == "resolve" and name in files:
            self._send_part(files[name], name, commit)
        else:
            self._send(404, b"{}", X_Error_Code="EntryNotFound", X_Repo_Commit=hub.commit)

    def _send_part(self, content: bytes, name: str, commit: str) -> None:
        etag = hashlib.sha1(content, usedforsecurity=False).hexdigest()
        named = {"ETag": f'"{etag}"', "X_Repo_Commit": commit, "Accept_Ranges": "bytes"}
        asked = self.headers.get("Range")
        if self.command == "GET":
            self.server.taken.append(name)
        if asked is None or self.command == "HEAD":
            self._send(200, content, **named)
            return
        start, _, end = asked.removeprefix("bytes=").partition("-")
        part = content[int(start) : int(end or len(content)) + 1]
        last = int(start) + len(part) - 1
        self._send(206, part, Content_Range=f"bytes {start}-{last}/{len(content)}", **named)

    def _send(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content_Type": "application/json", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
