"""How an image's tag becomes its digest: its registry's HTTP API (OCI distribution specification 1.1), asked by nobody's name."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from fleetctl.errors import ConfigError, UnavailableError

if TYPE_CHECKING:
    import httpx

# Indexes first: one digest for machines of every architecture, as a pull by tag has it.
_ACCEPT = (
    "application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.list.v2+json, "
    "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"
)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_DIGEST_HEADER = "docker-content-digest"
# https://github.com/distribution/reference: lower case, separated by one of . _ - /, which no registry's path takes otherwise.
_REPOSITORY = re.compile(r"[a-z0-9]+(?:(?:\.|_{1,2}|-+|/)[a-z0-9]+)*")
_TAG = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
_PARAMETER = re.compile(r'(\w+)="([^"]*)"')
_DOCKER_NAMES, _DOCKER_HOST = frozenset({"docker.io", "index.docker.io"}), "registry-1.docker.io"
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
# A person waits for it, and what is not known by then goes by its tag.
DEADLINE_S = 5.0
_REDIRECTS_MAX = 5
_BODY_BYTES_MAX = 4 * 2**20  # what registries take of a manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageName:
    """The parts of an image's name: `vllm/vllm-openai:v0.32.0` is Docker Hub's."""

    name: str  # as it is written, without its tag
    registry: str  # the host that is asked, with its port
    repository: str
    tag: str

    @classmethod
    def parse(cls, image: str) -> ImageName:
        """Read a name as docker does. Raises ConfigError for what is none, or has a digest already."""
        path, colon, tag = image.rpartition(":")
        name, tag = (path, tag) if colon and "/" not in tag else (image, "latest")
        first, slash, rest = name.partition("/")
        is_host = bool(slash) and (any(sign in first for sign in ".:[") or first == "localhost")
        registry, repository = (first, rest) if is_host else ("docker.io", name)
        if registry in _DOCKER_NAMES:
            registry = _DOCKER_HOST
            repository = repository if "/" in repository else f"library/{repository}"
        if not (_REPOSITORY.fullmatch(repository) and _TAG.fullmatch(tag)):
            raise ConfigError(f"{image} is no image's name with a tag", hint="such as registry.example.com/vllm:0.32.0")
        return cls(name=name, registry=registry, repository=repository, tag=tag)

    @property
    def manifest_url(self) -> str:
        """Where its manifest is; in clear on this machine alone, as docker has it."""
        is_here = urlsplit(f"//{self.registry}").hostname in _LOOPBACK
        return f"{'http' if is_here else 'https'}://{self.registry}/v2/{self.repository}/manifests/{self.tag}"


async def image_digest(image: str) -> str:
    """Return the digest (sha256:...) that an image's tag stands for now; it takes five seconds at the most.

    No credentials are sent, neither a user's own nor docker's. Raises UnavailableError where the registry is not reached,
    refuses, or has no such tag; ConfigError for what is no name.
    """
    import httpx

    found = ImageName.parse(image)
    try:
        async with (
            asyncio.timeout(DEADLINE_S),  # httpx's own starts anew with each byte
            httpx.AsyncClient(timeout=DEADLINE_S, follow_redirects=True, max_redirects=_REDIRECTS_MAX) as client,
        ):
            return await _digest(client, found)
    except (TimeoutError, httpx.TimeoutException) as exc:
        raise UnavailableError(f"{found.registry} has not answered within {DEADLINE_S:g} s") from exc
    except (httpx.HTTPError, httpx.InvalidURL) as exc:
        raise UnavailableError(f"{found.registry} is not reached: {str(exc) or type(exc).__name__}") from exc


async def _digest(client: httpx.AsyncClient, image: ImageName) -> str:
    headers = {"Accept": _ACCEPT}
    response = await client.head(image.manifest_url, headers=headers)
    if response.status_code == 401:
        headers["Authorization"] = f"Bearer {await _token(client, response, image)}"
        # Where it was redirected to: whoever asked for the token gets it, and nobody else.
        response = await client.head(response.url, headers=headers)
    if response.status_code != 200:
        raise UnavailableError(f"{image.registry} {_refusal(response.status_code, image)}")
    digest = response.headers.get(_DIGEST_HEADER, "")
    if _DIGEST.fullmatch(digest):
        return str(digest)
    # The specification leaves the header to the registry; the digest is that of the manifest's bytes.
    body = await _body(client, str(response.url), headers, image)
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


def _refusal(status: int, image: ImageName) -> str:
    match status:
        case 401 | 403:
            return f"lets nobody read {image.repository} without credentials ({status})"
        case 404:
            return f"has no {image.repository} with tag {image.tag} (404)"
        case 429:
            return "was asked too often from this address (429)"
        case _:
            return f"answers {status} for {image.repository}"


async def _token(client: httpx.AsyncClient, response: httpx.Response, image: ImageName) -> str:
    """Return the token that anybody may have to read a repository. https://distribution.github.io/distribution/spec/auth/token/."""
    import httpx

    scheme, _, rest = response.headers.get("www-authenticate", "").partition(" ")
    challenge = dict(_PARAMETER.findall(rest))
    realm = challenge.get("realm", "")
    allowed = ("https://", "http://") if response.url.scheme == "http" else ("https://",)
    if scheme.lower() != "bearer" or not realm.startswith(allowed):
        raise UnavailableError(f"{image.registry} {_refusal(401, image)}")
    given = {"scope": challenge.get("scope") or f"repository:{image.repository}:pull"}
    if service := challenge.get("service"):
        given["service"] = service
    body = await _body(client, str(httpx.URL(realm).copy_merge_params(given)), {}, image)
    try:
        answer = json.loads(body)
        token = answer.get("token") or answer.get("access_token")
    except (ValueError, AttributeError):  # no JSON, or no object
        token = None
    if not isinstance(token, str) or not token.isascii() or not token.isprintable():
        raise UnavailableError(f"{realm}, which {image.registry} names, gives no token")
    return token


async def _body(client: httpx.AsyncClient, url: str, headers: dict[str, str], image: ImageName) -> bytes:
    body = b""
    async with client.stream("GET", url, headers=headers) as response:
        if response.status_code != 200:
            raise UnavailableError(f"{image.registry} {_refusal(response.status_code, image)}")
        async for part in response.aiter_bytes():
            body += part
            if len(body) > _BODY_BYTES_MAX:
                raise UnavailableError(f"{response.url.host} answers with more than {_BODY_BYTES_MAX} bytes")
    return body
