"""The AWS APIs: boto3's calls in threads of their own, each with deadlines, its errors in fleetctl's words."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from fleetctl.errors import AmbiguousOutcomeError, ConfigError, CredentialsError, ProviderError
from fleetctl.object_stores.aws_session import aws_session
from fleetctl_aws.faults import translated

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fleetctl_aws.settings import AwsSettings

Object = dict[str, Any]
T = TypeVar("T")
_CONNECT_S, _READ_S = 5.0, 20.0
# CreateFleet answers once its instances are launched.
_CHANGE_READ_S = 60.0
_READ_ATTEMPTS = 3
# A long poll holds one; the rest is a batch of creates beside listings.
_THREADS = 24
# Of every page of a listing together: a fleet has hundreds of instances at most.
_PAGES_MAX = 50


class AwsConnection:
    """One account in one region; boto3 is imported at the first call, which takes half a second."""

    def __init__(self, settings: AwsSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._session: Any = None
        self._clients: dict[tuple[str, bool, str], Any] = {}
        self._threads: ThreadPoolExecutor | None = None

    @property
    def region(self) -> str:
        """The region worked in. Raises ConfigError where none is named."""
        name = self._settings.region or self._boto().region_name
        if not name:
            raise ConfigError("no AWS region is named", hint="set AWS_REGION, or `region` of your AWS profile")
        return str(name)

    async def read(self, service: str, operation: str, **parameters: object) -> Object:
        """Return the answer of a call that changes nothing; boto3 tries it three times. Raises ProviderError."""
        return await self._in_thread(lambda: self.call(service, operation, parameters))

    async def read_in(self, region: str, service: str, operation: str, **parameters: object) -> Object:
        """Return the answer of a call that changes nothing, made in another region. Raises ProviderError."""
        return await self._in_thread(lambda: self.call(service, operation, parameters, region=region))

    async def read_all(
        self, service: str, operation: str, key: str, *, region: str = "", **parameters: object
    ) -> list[Object]:
        """Return the items under `key` of every page of a listing. Raises ProviderError, also beyond 50 pages."""
        return await self._in_thread(lambda: self.pages(service, operation, key, parameters, region=region))

    async def change(self, service: str, operation: str, **parameters: object) -> Object:
        """Return the answer of a call that changes something, made once. Raises AmbiguousOutcomeError where there was none."""
        return await self._in_thread(lambda: self.call(service, operation, parameters, changes=True))

    def call(
        self,
        service: str,
        operation: str,
        parameters: Mapping[str, object],
        *,
        changes: bool = False,
        region: str = "",
    ) -> Object:
        """Make one call and return its answer; `operation` as boto3 spells it."""
        with _Translating(f"{service}.{operation}", changes=changes):
            answer: Object = getattr(self._client(service, once=changes, region=region), operation)(**parameters)
            return answer

    def pages(
        self, service: str, operation: str, key: str, parameters: Mapping[str, object], *, region: str = ""
    ) -> list[Object]:
        """Return the items under `key` of every page."""
        found: list[Object] = []
        with _Translating(f"{service}.{operation}", changes=False):
            paginator = self._client(service, once=False, region=region).get_paginator(operation)
            for number, page in enumerate(paginator.paginate(**parameters), start=1):
                found += page.get(key, ())
                if number == _PAGES_MAX:
                    raise ProviderError(f"{service}.{operation} has more than {_PAGES_MAX} pages")
        return found

    async def _in_thread(self, call: Callable[[], T]) -> T:
        """Return what a blocking call returns, made in a thread of ours: a slow API keeps nobody else from their turn."""
        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="aws")
            threads = self._threads
        return await asyncio.get_running_loop().run_in_executor(threads, call)

    def _client(self, service: str, *, once: bool, region: str = "") -> Any:  # noqa: ANN401  # boto3's clients have no types
        from botocore.config import Config

        key = (service, once, region or self.region)
        with self._lock:
            if key not in self._clients:
                config = Config(
                    region_name=key[2],
                    connect_timeout=_CONNECT_S,
                    read_timeout=_CHANGE_READ_S if once else _READ_S,
                    # An attempt of boto3's own would be sent behind our back: what follows a failed create is decided by us.
                    retries={"total_max_attempts": 1 if once else _READ_ATTEMPTS, "mode": "standard"},
                    max_pool_connections=_THREADS,
                    user_agent_extra="fleetctl",
                )
                self._clients[key] = self._boto_locked().client(service, config=config)
            return self._clients[key]

    def _boto(self) -> Any:  # noqa: ANN401  # boto3.Session, which has no types
        with self._lock:
            return self._boto_locked()

    def _boto_locked(self) -> Any:  # noqa: ANN401  # boto3.Session, which has no types
        if self._session is None:
            with _Translating("session", changes=False):
                self._session = aws_session(self._settings.profile)
        return self._session


class _Translating:
    """Raises boto3's errors as fleetctl's."""

    def __init__(self, what: str, *, changes: bool) -> None:
        self._what = what
        self._changes = changes

    def __enter__(self) -> None:
        return

    def __exit__(self, _kind: object, exc: BaseException | None, _trace: object) -> None:
        if exc is None:
            return
        from botocore import exceptions

        if isinstance(exc, exceptions.ClientError):
            raise translated(exc, self._what, changes=self._changes) from exc
        if isinstance(exc, exceptions.ProfileNotFound):
            hint = "`aws configure list-profiles` shows those that there are; correct AWS_PROFILE, or provider.profile"
            raise CredentialsError(f"no AWS credentials: {exc}", hint=hint) from exc
        if isinstance(exc, _credentials(exceptions)):
            hint = "`aws configure`, `aws sso login`, or set AWS_PROFILE; on EC2 give the instance a role"
            raise CredentialsError(f"no AWS credentials: {exc}", hint=hint) from exc
        if isinstance(exc, exceptions.ConnectTimeoutError | exceptions.EndpointConnectionError):
            # Nothing has left this machine.
            raise ProviderError(
                f"{self._what}: {exc}", hint="look at the network, proxies and AWS_ENDPOINT_URL"
            ) from exc
        if isinstance(exc, exceptions.BotoCoreError):
            kind = (
                AmbiguousOutcomeError
                if self._changes and isinstance(exc, exceptions.HTTPClientError)
                else ProviderError
            )
            raise kind(f"{self._what}: {exc}", hint="it is tried again") from exc


def _credentials(exceptions: Any) -> tuple[type[BaseException], ...]:  # noqa: ANN401  # a module
    return (
        exceptions.NoCredentialsError,
        exceptions.PartialCredentialsError,
        exceptions.CredentialRetrievalError,
        exceptions.TokenRetrievalError,
        exceptions.SSOError,
    )
