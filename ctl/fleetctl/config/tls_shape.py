"""The gateway's certificate, as a profile has it."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from fleetctl.config.section import ProfileSection

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def _secret_name(value: object) -> str:
    if not isinstance(value, str) or (value and not _NAME.fullmatch(value)):
        raise ValueError("must be a Secret's name: lower-case letters, digits, - and .")
    return value


class TlsShape(ProfileSection):
    """Where the gateway's certificate and its key lie: two PEM files, or a Secret of the cluster that it runs in."""

    certificate: str = Field(
        default="", description="A PEM file: the certificate, then its chain; relative to this file."
    )
    key: str = Field(default="", description="A PEM file: its key, without a passphrase; relative to this file.")
    secret: Annotated[str, BeforeValidator(_secret_name), WithJsonSchema({"type": "string"})] = Field(
        default="", description="On host kubernetes: a Secret of type kubernetes.io/tls, in the fleet's namespace."
    )

    @model_validator(mode="after")
    def _is_whole(self) -> TlsShape:
        if self.secret and (self.certificate or self.key):
            raise ValueError("a secret has both: leave certificate and key out")
        if not self.secret and not (self.certificate and self.key):
            raise ValueError("write certificate and key, or on host kubernetes a secret")
        return self
