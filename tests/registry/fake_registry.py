"""A registry with the documented REST API, for tests: subjects, versions, ids, references, Protobuf as descriptors."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


class FakeRegistry(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}
        self.descriptors: dict[int, str] = {}
        self.asked: list[str] = []
        self.auth: str | None = None
        self._thread = threading.Thread(target=self.serve_forever)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def add(self, subject: str, body: dict[str, Any]) -> int:
        if body not in self.schemas:
            self.schemas.append(body)
        number = self.schemas.index(body) + 1
        versions = self.subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def close(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    server: FakeRegistry

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        self.server.asked.append(self.path)
        match [unquote(part) for part in url.path.strip("/").split("/")]:
            case ["schemas", "ids", number] if int(number) <= len(self.server.schemas):
                body = dict(self.server.schemas[int(number) - 1])
                if parse_qs(url.query).get("format") == ["serialized"]:
                    body["schema"] = self.server.descriptors.get(int(number), body["schema"])
                self._answer(200, body)
            case ["subjects", subject, "versions", version] if subject in self.server.subjects:
                versions = self.server.subjects[subject]
                number = versions[-1] if version == "latest" else versions[int(version) - 1]
                self._answer(200, {"subject": subject, "id": number, **self.server.schemas[number - 1]})
            case _:
                self._answer(404, {"error_code": 40401, "message": "not found"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        subject = unquote(self.path.split("/")[2])
        self._answer(200, {"id": self.server.add(subject, body)})

    def _answer(self, code: int, body: Any) -> None:
        if self.server.auth is not None and self.headers.get("Authorization") != self.server.auth:
            code, body = 401, {"error_code": 40101, "message": "who are you?"}
        self.send_response(code)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, format: str, *args: object) -> None:
        pass
