"""The API server: calls of the official client as JSON, off the event loop, its errors in fleetctl's words."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from fleetctl.errors import (
    AmbiguousOutcomeError,
    CredentialsError,
    FleetctlError,
    ProviderError,
    QuotaError,
    ThrottledError,
)
from fleetctl_kubernetes.kubeconfigs import configure
from fleetctl_kubernetes.pod_security import POD_SECURITY, POD_SECURITY_HINT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetctl_kubernetes.settings import ClusterSettings

Object = dict[str, Any]
Verb = Callable[..., Any]
T = TypeVar("T")
# To connect, and between two reads; the API server ends a request of its own after 60 s.
_TIMEOUT_S = (5.0, 20.0)
_RETRY_S = 1.0
# Calls that wait for the API server hold a thread each. The event loop's own pool has six on two processors: with stops or logs
# of a large fleet in it a listing came too late to be believed. So each kind has threads of its own.
_READERS, _CHANGERS, _LOG_READERS = 6, 16, 2
# A namespace's quota is of no offering, and has room as soon as any pod of the namespace goes: an order costs one call.
_QUOTA_AGAIN_S = 15.0
_MESSAGE_MAX = 600
_ANONYMOUS = "system:anonymous"  # whom the API server takes a request without credentials for
NOT_ALLOWED = "not allowed: "  # begins what is said of a right that is lacking
# The API server's own words of a right that whoever asks does not have.
_FORBIDDEN = re.compile(
    r'User "(?P<user>[^"]+)" cannot (?P<verb>\w+) resource "(?P<kind>[^"]+)" in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<namespace>[^"]+)")?'
)


class NotThereError(ProviderError):
    """The object does not exist."""


class ConflictError(ProviderError):
    """There is one of that name already, or it has changed meanwhile."""


class FieldConflictError(ConflictError):
    """An apply without force would change what another manager has set."""


class RejectedRequestError(ProviderError):
    """The API server takes no such request: made again it is answered the same."""


class TerminatingError(ProviderError):
    """The namespace is being deleted: nothing can be made in it any more."""


class NoAnswerError(ProviderError):
    """A call that changes nothing was not answered, or with an error of the API server's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiTarget:
    """What a request of one's own to the API server needs: for watches, which the official client only has in threads."""

    url: str
    headers: dict[str, str] = field(repr=False)
    tls: ssl.SSLContext | None  # None: plain HTTP
    server_name: str | None  # in its certificate, where that is another than the URL's
    proxy: str | None


class ClusterConnection:
    """One API server, reached as kubectl would; the client is imported at the first call: that takes a second."""

    def __init__(self, settings: ClusterSettings, *, timeout_s: tuple[float, float] = _TIMEOUT_S) -> None:
        self._settings = settings
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._client: Any = None
        self._namespace = settings.namespace
        self._readers = ThreadPoolExecutor(_READERS, "kubernetes-read")
        self._changers = ThreadPoolExecutor(_CHANGERS, "kubernetes-change")
        self._log_readers = ThreadPoolExecutor(_LOG_READERS, "kubernetes-log")

    @property
    def namespace(self) -> str:
        """The namespace worked in: the one that was named, else the context's, else `default`."""
        self.client()
        return self._namespace or "default"

    def client(self) -> Any:  # noqa: ANN401  # kubernetes.client.ApiClient, which has no types
        """Return the client, connected by the kubeconfig or, in a pod without one, by its service account."""
        with self._lock:
            if self._client is None:
                self._client = self._connected()
            return self._client

    def target(self) -> ApiTarget:
        """Return where and as whom requests are made, with the token of now."""
        configuration = self.client().configuration
        headers: dict[str, str] = {}
        self.client().update_params_for_auth(headers, [], ["BearerToken"])
        is_plain = configuration.host.startswith("http://")
        return ApiTarget(
            url=configuration.host.rstrip("/"),
            headers=headers,
            tls=None if is_plain else _tls(configuration),
            server_name=configuration.tls_server_name or None,
            proxy=configuration.proxy or None,
        )

    def close(self) -> None:
        """Close the connections; the next call makes others."""
        if self._client is not None:
            self._client.close()

    async def read(self, api: str, verb: str, *arguments: object, **options: object) -> Object:
        """Return the answer of a call that changes nothing. Raises ProviderError."""
        return await self._in(self._readers, partial(self.call, api, verb, *arguments, **options))  # type: ignore[arg-type]  # the client's own

    async def change(self, api: str, verb: str, *arguments: object, **options: object) -> Object:
        """Return the answer of a call that changes something. Raises AmbiguousOutcomeError where there was none."""
        return await self._in(self._changers, partial(self.call, api, verb, *arguments, changes=True, **options))

    async def read_text(self, api: str, verb: str, *arguments: object, **options: object) -> bytes:
        """Return an answer that is no JSON, a log, as it came; such calls keep no other waiting. Raises ProviderError."""
        return await self._in(self._log_readers, partial(self.text, api, verb, *arguments, **options))  # type: ignore[arg-type]  # the client's own

    async def _in(self, pool: ThreadPoolExecutor, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(pool, call)

    def call(self, api: str, verb: str, *arguments: object, changes: bool = False, **options: object) -> Object:
        """Make one call of the client's class `api` and return its JSON."""
        found: Object = msgspec.json.decode(self.text(api, verb, *arguments, changes=changes, **options) or b"{}")
        return found

    def text(self, api: str, verb: str, *arguments: object, changes: bool = False, **options: object) -> bytes:
        """Return an answer as it came. A token that has expired is read anew once."""

        def once(connection: Any) -> bytes:  # noqa: ANN401  # untyped
            from kubernetes import client

            method: Verb = getattr(getattr(client, api)(connection), verb)
            answer = method(*arguments, _preload_content=False, _request_timeout=self._timeout_s, **options)
            data: bytes = answer.data
            return data

        return self._answered(once, f"{verb} {' '.join(map(str, arguments[:1]))}", changes=changes)

    def request(  # what HTTP has
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: Object | None = None,
    ) -> Object:
        """Make one request that the client's classes cannot put, as one for metadata alone, and return its JSON."""
        answer = self.answer(method, path, query=query, headers=headers, body=body)
        return json.loads(answer or b"{}")  # type: ignore[no-any-return]  # an object

    def answer(  # what HTTP has
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        body: Object | None = None,
    ) -> bytes:
        """Make one such request, and return its answer as it came."""

        def once(connection: Any) -> bytes:  # noqa: ANN401  # untyped
            answer = connection.call_api(
                path, method, query_params=list(query.items()), header_params=dict(headers), body=body,
                auth_settings=["BearerToken"], _preload_content=False, _request_timeout=self._timeout_s,
            )  # fmt: skip
            data: bytes = answer[0].data if isinstance(answer, tuple) else answer.data
            return data

        return self._answered(once, f"{method} {path.rsplit('/', 1)[-1]}", changes=method != "GET")

    def _answered(self, once: Callable[[Any], bytes], what: str, *, changes: bool) -> bytes:
        from kubernetes.client.exceptions import ApiException
        from urllib3.exceptions import HTTPError

        for is_last in (False, True):
            connection = self.client()
            try:
                return once(connection)
            except ApiException as exc:
                if exc.status == 401 and is_last:
                    raise self._not_let_in(connection, f"{what}: {_message(exc)}") from exc
                if exc.status != 401:
                    raise _translated(exc, what, changes=changes) from exc
                self._forget(connection)
            except (HTTPError, OSError, AttributeError) as exc:
                # The client decodes the body of an answer that a broken TLS handshake never gave (kubernetes 36).
                refused = exc.__context__ if isinstance(exc, AttributeError) else None
                if isinstance(exc, AttributeError) and not isinstance(refused, ApiException):
                    raise
                why = str(getattr(refused, "reason", "")) or str(exc)
                message = f"the API server does not answer {what}: {' '.join(why.split())}"
                hint = "look at it with `kubectl get --raw /readyz`"
                raise (AmbiguousOutcomeError if changes else NoAnswerError)(message, hint=hint) from exc
        raise AssertionError("the second try returns or raises")

    def _not_let_in(self, connection: Any, why: str) -> CredentialsError:  # noqa: ANN401  # untyped
        """Return that the API server knows nobody by these credentials: whose they are, and where that was asked."""
        context = self._settings.context
        whose = f"of the context {context}" if context else "of the kubeconfig's current context, or of this pod"
        kubectl = f"kubectl --context {context}" if context else "kubectl"
        return CredentialsError(
            f"the API server at {connection.configuration.host} does not accept the credentials {whose}: {why}",
            hint=f"log in again: `{kubectl} auth whoami` says whether it knows you",
        )

    def _forget(self, connection: Any) -> None:  # noqa: ANN401  # untyped
        with self._lock:
            if self._client is connection:
                self._client = None

    def _connected(self) -> Any:  # noqa: ANN401  # untyped
        from kubernetes import client

        configuration = client.Configuration()
        self._namespace = configure(configuration, self._settings)
        configuration.retries = False  # what is tried again is the controller's to decide
        configuration.connection_pool_maxsize = _READERS + _CHANGERS + _LOG_READERS
        return client.ApiClient(configuration)


def _tls(configuration: Any) -> ssl.SSLContext:  # noqa: ANN401  # untyped
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if not configuration.verify_ssl:  # the kubeconfig says insecure-skip-tls-verify
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    return context


def _translated(exc: Any, what: str, *, changes: bool) -> FleetctlError:  # noqa: ANN401, PLR0911  # one meaning each
    status, message = exc.status, _message(exc)
    if status == 404:
        return NotThereError(f"{what}: {message}")
    if status == 409:
        return (FieldConflictError if _is_of_fields(exc) else ConflictError)(f"{what}: {message}")
    if status == 403 and (forbidden := _forbidden(what, message)) is not None:
        return forbidden
    if status == 403:
        hint = "log in again, or have whoever runs the cluster grant it; `fleetctl doctor` lists what is needed"
        return CredentialsError(f"{what}: {message}", hint=hint)
    if status == 429:
        again_s = _RETRY_S
        with suppress(KeyError, TypeError, ValueError):
            again_s = float(exc.headers["Retry-After"])
        return ThrottledError(f"{what}: {message}", retry_after_s=again_s)
    if status >= 500 and changes:
        return AmbiguousOutcomeError(f"{what}: {status} {message}")
    kind = RejectedRequestError if 400 <= status < 500 else NoAnswerError
    return kind(f"{what}: {status} {message}")


def _forbidden(what: str, message: str) -> FleetctlError | None:
    """Return what is meant by a 403, by its words; None: no more than that."""
    if "exceeded quota" in message:
        hint = "`kubectl describe resourcequota` shows it; raise it, or plan fewer replicas"
        return QuotaError(message, quota=_quota(message), again_s=_QUOTA_AGAIN_S, hint=hint)
    if "is being terminated" in message:
        hint = "somebody deletes it, and all that is in it: take the fleet down, and bring it up in another"
        return TerminatingError(f"the namespace is being deleted: {message}", hint=hint)
    if POD_SECURITY in message:
        return RejectedRequestError(f"{what}: {message}", hint=POD_SECURITY_HINT)
    if (refused := _FORBIDDEN.search(message)) is None:
        return None
    hint = "have whoever runs the cluster grant it; `fleetctl doctor` lists what is needed"
    if refused["user"] == _ANONYMOUS:
        hint = (
            "the kubeconfig's user has no credentials: log in, or name another context (`kubectl config view --minify`)"
        )
    return CredentialsError(f"{NOT_ALLOWED}{_right(refused)}", hint=hint)


def _message(exc: Any) -> str:  # noqa: ANN401  # untyped
    text = str(exc.reason)
    with suppress(ValueError, TypeError, AttributeError):
        text = json.loads(exc.body)["message"]
    return text[:_MESSAGE_MAX]


def _is_of_fields(exc: Any) -> bool:  # noqa: ANN401  # untyped
    """Whether a 409 is one of server-side apply's between managers, and not of a version that has passed."""
    with suppress(ValueError, TypeError, AttributeError, KeyError):
        causes = json.loads(exc.body)["details"]["causes"]
        return any(each.get("reason") == "FieldManagerConflict" for each in causes)
    return False


def _right(refused: re.Match[str]) -> str:
    """Return the right that was lacking, as a Role names it, where, and who lacks it."""
    kind = ".".join(filter(None, (refused["kind"], refused["group"])))
    where = f"namespace {refused['namespace']}" if refused["namespace"] else "cluster"
    return f"{refused['verb']} {kind} ({where}), to {refused['user']}"


def _quota(message: str) -> str:
    return message.partition("exceeded quota: ")[2].partition(",")[0] or "of the namespace"
