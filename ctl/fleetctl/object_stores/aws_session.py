"""Sessions of boto3 that share what it reads of its services: of EC2 alone a megabyte, a fifth of a second each time."""

from __future__ import annotations

from functools import cache
from typing import Any


def aws_session(profile: str = "") -> Any:  # noqa: ANN401  # boto3.Session, which has no types
    """Return a session, of a profile of the user's or of the environment's. Raises botocore's ProfileNotFound."""
    import boto3
    import botocore.session

    session = botocore.session.Session(profile=profile or None)
    session.register_component("data_loader", _loader(session.get_config_variable("data_path")))
    return boto3.Session(botocore_session=session)


@cache
def _loader(data_path: str | None) -> Any:  # noqa: ANN401  # botocore's Loader, which has no types
    """Return the reader of services' descriptions, which keeps what it has read."""
    from botocore.loaders import create_loader

    return create_loader(data_path)
