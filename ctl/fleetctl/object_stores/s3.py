"""Objects in an S3 bucket: conditional writes by If-Match and If-None-Match, credentials by boto3's own chain."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar
from urllib.parse import urlsplit

from fleetctl.errors import ConfigError, StateDeniedError, StateError
from fleetctl.object_stores.aws_session import aws_session
from fleetctl.object_stores.retrying import UnansweredError, UnreachedError, until_answered
from fleetctl.ports.objects import OutdatedVersionError, StoredObject, UnconfirmedWriteError

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.ports.lease import Lease

T = TypeVar("T")

_BUCKET = re.compile(r"[a-z0-9][-.a-z0-9]{1,61}[a-z0-9]")
_CALL_S_MAX = 10.0
# The conditions of other writers: 412 of a version that is not there any more, 409 of a write that runs beside ours.
_OUTDATED = ("PreconditionFailed",)
_PASSING = (
    "ConditionalRequestConflict", "InternalError", "OperationAborted", "RequestTimeout", "ServiceUnavailable", "SlowDown",
    "Throttling", "ThrottlingException", "TooManyRequests", "503", "500", "502", "504", "429", "409",
)  # fmt: skip
_REFUSED = (
    "AccessDenied", "AllAccessDisabled", "AuthorizationHeaderMalformed", "ExpiredToken", "InvalidAccessKeyId", "InvalidToken",
    "RequestTimeTooSkewed", "SignatureDoesNotMatch", "403",
)  # fmt: skip
_RIGHTS_HINT = "it takes s3:GetObject, s3:PutObject, s3:DeleteObject and s3:ListBucket on the prefix"
# Who calls is not known by these, whatever rights it has.
_LOGIN_HINTS = {
    "ExpiredToken": "the session is over: log in again (`aws sso login`), or export the new session's keys and AWS_SESSION_TOKEN",
    "InvalidAccessKeyId": "AWS does not know this access key: `aws configure list` shows where it comes from",
    "InvalidToken": "AWS_SESSION_TOKEN is none of this access key's: `aws configure list` shows where both come from",
    "RequestTimeTooSkewed": "this machine's clock is minutes off AWS's: `timedatectl` shows it",
    "SignatureDoesNotMatch": "the secret key is not this access key's: `aws configure list` shows where both come from",
}


def open_s3(place: str, deadline_s: float) -> S3Objects:
    """Return the objects under "BUCKET/PREFIX". Raises ConfigError; nothing is called yet."""
    bucket, _, prefix = place.partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise ConfigError(f"s3://{place}: {bucket!r} is no name of a bucket", hint="write s3://BUCKET/PREFIX")
    return S3Objects(bucket, prefix.strip("/"), deadline_s=deadline_s)


class S3Objects:
    """Implements ObjectStore; boto3 is loaded with the first call."""

    object_bytes_max = None  # 5 GB, which no state comes near

    def __init__(self, bucket: str, prefix: str, *, deadline_s: float) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._deadline_s = deadline_s
        self._connected: Any = None
        self._was_reached = False

    @property
    def location(self) -> str:
        """The URL of the objects."""
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    def get(self, key: str, *, known: StoredObject | None = None) -> StoredObject | None:
        """Return an object, or None; `known` itself where that is still what there is."""
        condition = {"IfNoneMatch": known.version} if known is not None and known.version else {}

        def read() -> StoredObject | None:
            found = self._client.get_object(**self._named(key), **condition)
            with found["Body"] as body:
                return StoredObject(data=body.read(), version=found["ETag"])

        try:
            return self._trying(read)
        except _MissingError:
            return None
        except _UnchangedError:
            return known

    def put(self, key: str, data: bytes, *, replaces: str | None) -> str:
        """Write an object if its version is `replaces`; once."""
        condition = {"IfNoneMatch": "*"} if replaces is None else {"IfMatch": replaces}
        try:
            return str(self._client.put_object(**self._named(key), Body=data, **condition)["ETag"])
        except Exception as exc:  # noqa: BLE001  # sorted by what it is, and raised again
            try:
                self._translate(exc)
            except UnansweredError as passing:
                raise UnconfirmedWriteError(passing.message) from exc
            except _MissingError as missing:  # If-Match on what is not there
                raise OutdatedVersionError(missing.message) from exc

    def delete(self, key: str) -> None:
        """Remove an object."""
        self._trying(lambda: self._client.delete_object(**self._named(key)))

    def list_keys(self, prefix: str) -> tuple[str, ...]:
        """Return the keys that begin so, sorted."""

        def read() -> tuple[str, ...]:
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=f"{self._prefix}{prefix}"
            )
            return tuple(each["Key"] for page in pages for each in page.get("Contents", ()))

        return tuple(sorted(key.removeprefix(self._prefix) for key in self._trying(read)))

    def show_lease(self, lease: Lease) -> None:
        """Show nothing: a bucket has no form for it."""

    def close(self) -> None:
        """Close the connections."""
        if self._connected is not None:
            self._connected.close()

    @property
    def _client(self) -> Any:  # noqa: ANN401  # boto3 makes its classes as it runs
        if self._connected is None:
            self._connected = _connect(min(_CALL_S_MAX, max(1.0, self._deadline_s)))
        return self._connected

    def _named(self, key: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": f"{self._prefix}{key}"}

    def _trying(self, call: Callable[[], T]) -> T:
        """Make a call that changes nothing when made twice, until it is answered or the deadline is past."""
        return until_answered(
            lambda: self._answered(call), translate=self._translate, deadline_s=self._deadline_s, location=self.location,
            hint="look at the network, and at AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL where they are set; then try again",
            was_reached=self._was_reached,
        )  # fmt: skip

    def _answered(self, call: Callable[[], T]) -> T:
        """Return a call's result, and note whether anybody was reached."""
        from botocore import exceptions as botocore

        try:
            found = call()
        except botocore.ClientError:
            self._was_reached = True
            raise
        self._was_reached = True
        return found

    def _translate(self, exc: Exception) -> NoReturn:
        from botocore import exceptions as botocore

        if isinstance(exc, botocore.ClientError):
            self._translate_answer(exc)
        # A role's credentials come from elsewhere too, which may be out of reach for a while.
        of_credentials = (
            botocore.NoCredentialsError, botocore.PartialCredentialsError, botocore.TokenRetrievalError,
            botocore.CredentialRetrievalError, botocore.SSOError,
        )  # fmt: skip
        if isinstance(exc, of_credentials):
            raise StateDeniedError(f"{self.location}: {exc}", hint="see `aws sts get-caller-identity`") from exc
        if isinstance(
            exc, botocore.EndpointConnectionError | botocore.ConnectTimeoutError | botocore.ProxyConnectionError
        ):
            raise UnreachedError(str(exc)) from exc
        if isinstance(exc, botocore.HTTPClientError | botocore.ConnectionError | botocore.ResponseStreamingError):
            raise UnansweredError(str(exc)) from exc
        if isinstance(exc, botocore.BotoCoreError | ValueError):
            raise ConfigError(f"{self.location}: {exc}", hint="look at the AWS_ variables and ~/.aws/config") from exc
        raise exc

    def _translate_answer(self, exc: Any) -> NoReturn:  # noqa: ANN401  # a class that boto3 makes
        status = str(exc.response.get("ResponseMetadata", {}).get("HTTPStatusCode", ""))
        code = str(exc.response.get("Error", {}).get("Code", ""))
        message = f"{self.location}: {exc}"
        if status == "304" or code == "304":
            raise _UnchangedError(message)
        if code in _OUTDATED or status == "412":
            raise OutdatedVersionError(message) from exc
        if code == "NoSuchBucket":
            raise StateError(
                f"{self.location}: there is no such bucket", hint=f"aws s3 mb s3://{self._bucket}"
            ) from exc
        if status == "404":
            raise _MissingError(message)
        if code in _PASSING or status in _PASSING:
            raise UnansweredError(message) from exc
        if code in _REFUSED or status == "403":
            raise StateDeniedError(message, hint=_LOGIN_HINTS.get(code, _RIGHTS_HINT)) from exc
        raise StateError(message, hint="see `fleetctl doctor`") from exc


class _MissingError(StateError):
    """There is no such object."""


class _UnchangedError(StateError):
    """It is as it was."""


def _connect(call_s: float) -> Any:  # noqa: ANN401  # boto3 makes its classes as it runs
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError

    logging.getLogger("botocore").setLevel(logging.WARNING)  # it notes where credentials are found, each time
    config = Config(
        connect_timeout=min(3.0, call_s),
        read_timeout=call_s,
        # What may be tried again is decided here: of a write that may have had its effect, it is not what was asked.
        retries={"total_max_attempts": 1, "mode": "standard"},
        # Others than Amazon's know neither the newer checksums nor a bucket's own name of host.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        max_pool_connections=4,
    )
    try:
        session = aws_session()
        client = session.client("s3", config=config)
        host = urlsplit(client.meta.endpoint_url).hostname or ""
        if not host.endswith((".amazonaws.com", ".amazonaws.com.cn")):
            client.close()
            client = session.client("s3", config=config.merge(Config(s3={"addressing_style": "path"})))
    except (BotoCoreError, ValueError) as exc:
        raise ConfigError(
            f"S3 cannot be reached so: {exc}", hint="look at the AWS_ variables and ~/.aws/config"
        ) from exc
    return client
