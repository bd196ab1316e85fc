"""aws of an instance: the calls that user data makes with the instance's role."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import boto3
import jmespath
from botocore.exceptions import ClientError


def main() -> int:
    """Make one call of the form `aws SERVICE OPERATION --name value ...`, or do `aws s3 sync`."""
    settings, service, operation, *words = sys.argv[1:]
    cloud = json.loads(settings)
    named: dict[str, Any] = {}
    places = [words.pop(0) for _ in range(2)] if (service, operation) == ("s3", "sync") else []
    while words:
        name = words.pop(0).removeprefix("--")
        named[name] = words.pop(0) if words and not words[0].startswith("--") else True
    region, query, form = named.pop("region", cloud["region"]), named.pop("query", "@"), named.pop("output", "json")
    service = {"s3api": "s3"}.get(service, service)
    client = boto3.session.Session().client(
        service,
        region_name=region,
        endpoint_url=cloud["url"],
        aws_access_key_id=cloud["role"],
        aws_secret_access_key="of-the-role",  # noqa: S106  # nobody checks it
    )
    if places:
        return sync(client, *places, deletes=bool(named.get("delete")))
    parameters = {"".join(part.capitalize() for part in name.split("-")): value for name, value in named.items()}
    if "Body" in parameters:
        parameters["Body"] = Path(parameters["Body"]).read_bytes()
    found = jmespath.search(query, getattr(client, operation.replace("-", "_"))(**parameters))
    if form == "text":
        rows = found if isinstance(found, list) else [found]
        lines = ["\t".join(map(str, row)) if isinstance(row, list) else str(row) for row in rows]
        sys.stdout.write("".join(f"{line}\n" for line in lines))
    else:
        sys.stdout.write(json.dumps(found, default=str))
    return 0


def sync(client: Any, source: str, place: str, *, deletes: bool) -> int:
    """Download what lies below a prefix as the AWS CLI does: what differs in size, or is newer, each under another name first."""
    bucket, _, prefix = source.removeprefix("s3://").partition("/")
    directory, wanted = Path(place), set()
    try:
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix):
            for found in page.get("Contents", ()):
                if found["Key"].endswith("/"):
                    continue  # what consoles make of a directory
                path = directory / found["Key"].removeprefix(prefix)
                wanted.add(path)
                modified = found["LastModified"].timestamp()
                if path.exists() and (path.stat().st_size, path.stat().st_mtime >= modified) == (found["Size"], True):
                    continue
                path.parent.mkdir(parents=True, exist_ok=True)
                draft = path.with_name(f"{path.name}.6eF4a0c1")
                client.download_file(bucket, found["Key"], str(draft))
                os.utime(draft, (modified, modified))
                draft.replace(path)
    except ClientError as error:
        sys.stderr.write(f"fatal error: {error}\n")
        return 1
    for path in directory.rglob("*") if deletes else ():
        if path.is_file() and path not in wanted:
            path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
