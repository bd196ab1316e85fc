"""A registry of container images on loopback: manifests by tag, tokens that anybody may have, and faults."""

from __future__ import annotations

import hashlib
import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

INDEX = "application/vnd.oci.image.index.v1+json"
_TOKEN = "of-anybody"  # noqa: S105  # of a test


@dataclass
class ImageRegistry:
    """What a registry has and how it behaves, by name and tag; `port` is where it listens."""

    port: int = 0
    needs_token: bool = True
    names_digest: bool = True  # in a header, as it may
    status: int = 0  # that it answers everything with; 0: as it is
    redirects_to: str = ""  # the host that manifests are found at
    manifests: dict[tuple[str, str], bytes] = field(default_factory=dict)
    seen: list[tuple[str, str, str]] = field(default_factory=list)  # method, path, whose Authorization

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def push(self, name: str, tag: str, content: str) -> str:
        """Have a tag stand for an image, and return the image's digest."""
        body = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": [], "made": content}).encode()
        self.manifests[name, tag] = body
        return f"sha256:{hashlib.sha256(body).hexdigest()}"


@contextmanager
def running_registry() -> Iterator[ImageRegistry]:
    """Run one of one's own, and end it."""
    registry = ImageRegistry()

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(has_body=False)

        def do_GET(self) -> None:
            self._answer(has_body=True)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # its name in the library
            """Say nothing."""

        def _answer(self, *, has_body: bool) -> None:
            url = urlsplit(self.path)
            registry.seen.append((self.command, self.path, self.headers.get("Authorization", "")))
            status, headers, body = _reply(registry, url.path, parse_qs(url.query), self)
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if has_body:
                self.wfile.write(body)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        registry.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()


def _reply(
    registry: ImageRegistry, path: str, query: dict[str, list[str]], request: BaseHTTPRequestHandler
) -> tuple[int, dict[str, str], bytes]:
    if registry.status:
        return registry.status, {}, b""
    if path == "/token":
        return 200, {}, json.dumps({"token": f"{_TOKEN} {query['scope'][0]} {query['service'][0]}"}).encode()
    _, _, rest = path.partition("/v2/")
    name, _, tag = rest.partition("/manifests/")
    wanted = f"Bearer {_TOKEN} repository:{name}:pull tests"
    if registry.needs_token and request.headers.get("Authorization") != wanted:
        challenge = f'Bearer realm="http://{registry.host}/token",service="tests",scope="repository:{name}:pull"'
        return 401, {"WWW-Authenticate": challenge}, b""
    if registry.redirects_to:
        return 307, {"Location": f"http://{registry.redirects_to}{path}"}, b""
    body = registry.manifests.get((name, tag))
    if body is None or INDEX not in request.headers.get("Accept", ""):
        return 404, {}, b""
    named = {"Docker-Content-Digest": f"sha256:{hashlib.sha256(body).hexdigest()}"} if registry.names_digest else {}
    return 200, {"Content-Type": INDEX, **named}, body
