"""One request of an AWS client: which service, action and parameters, and errors in the form of its protocol."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_REST_ACTIONS = {
    "PUT": "PutObject",
    "GET": "GetObject",
    "HEAD": "HeadObject",
    "DELETE": "DeleteObject",
    "POST": "PostObject",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsCall:
    """What a client calls. Parameters are flat: `InstanceType`, `TagSpecification.1.Tag.1.Key`, `Key` of an S3 object."""

    service: str
    action: str
    region: str
    parameters: dict[str, str]
    is_json: bool
    access_key: str = ""  # whose call it is; empty: it is not signed

    def error(self, code: str, message: str) -> tuple[str, bytes]:
        """Return the content type and body of an error as this service words it."""
        if self.is_json:
            return "application/x-amz-json-1.1", json.dumps({"__type": code, "message": message}).encode()
        inner = f"<Code>{escape(code)}</Code><Message>{escape(message)}</Message>"
        if self.service == "ec2":
            text = f"<Response><Errors><Error>{inner}</Error></Errors><RequestID>of-the-test</RequestID></Response>"
        elif self.service == "s3":
            text = f"<Error>{inner}<RequestId>of-the-test</RequestId></Error>"
        else:
            text = f"<ErrorResponse><Error>{inner}</Error><RequestId>of-the-test</RequestId></ErrorResponse>"
        return "text/xml", f'<?xml version="1.0" encoding="UTF-8"?>{text}'.encode()


def call_of(environ: Mapping[str, Any], body: bytes) -> AwsCall:
    """Read a request's call; an unsigned one is of no service and no region."""
    access_key, service, region = _scope(environ.get("HTTP_AUTHORIZATION", ""))
    target = environ.get("HTTP_X_AMZ_TARGET", "")
    if target:
        found = json.loads(body or b"{}")
        return AwsCall(
            service=service,
            action=target.rpartition(".")[2],
            region=region,
            parameters=dict(_flat(found, "")),
            is_json=True,
            access_key=access_key,
        )
    query = dict(parse_qsl(environ.get("QUERY_STRING", ""), keep_blank_values=True))
    if environ.get("CONTENT_TYPE", "").startswith("application/x-www-form-urlencoded"):
        query |= dict(parse_qsl(body.decode(), keep_blank_values=True))
    if "Action" in query:
        return AwsCall(
            service=service, action=query["Action"], region=region, parameters=query, is_json=False, access_key=access_key
        )  # fmt: skip
    return _rest_call(environ, (access_key, service, region), query)


def _rest_call(environ: Mapping[str, Any], scope: tuple[str, str, str], query: dict[str, str]) -> AwsCall:
    access_key, service, region = scope
    bucket, _, key = environ.get("PATH_INFO", "/").lstrip("/").partition("/")
    action = _REST_ACTIONS.get(environ["REQUEST_METHOD"], environ["REQUEST_METHOD"])
    if not key:
        action = {"GetObject": "ListObjectsV2", "PutObject": "CreateBucket", "DeleteObject": "DeleteBucket"}.get(
            action, action
        )
    headers = {
        name: environ[f"HTTP_{name.upper().replace('-', '_')}"]
        for name in ("If-Match", "If-None-Match")
        if f"HTTP_{name.upper().replace('-', '_')}" in environ
    }
    parameters = {**query, **headers, "Bucket": bucket, "Key": key}
    return AwsCall(
        service=service, action=action, region=region, parameters=parameters, is_json=False, access_key=access_key
    )  # fmt: skip


def _scope(authorization: str) -> tuple[str, str, str]:
    """Return the access key, the service and the region that a request is signed with."""
    _, _, credential = authorization.partition("Credential=")
    parts = credential.partition(",")[0].split("/")
    return (parts[0], parts[3], parts[2]) if len(parts) == 5 else ("", "", "")


def _flat(value: object, prefix: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _flat(each, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(value, list):
        for index, each in enumerate(value, start=1):
            yield from _flat(each, f"{prefix}.{index}")
    else:
        yield prefix, value if isinstance(value, str) else json.dumps(value)
