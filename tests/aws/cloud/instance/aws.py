"""aws of an instance: the calls that user data makes with the instance's role."""

from __future__ import annotations

import json
import sys
from typing import Any

import boto3
import jmespath


def main() -> int:
    """Make one call of the form `aws SERVICE OPERATION --name value ...`."""
    settings, service, operation, *words = sys.argv[1:]
    cloud = json.loads(settings)
    named: dict[str, Any] = {}
    while words:
        name = words.pop(0).removeprefix("--")
        named[name] = words.pop(0) if words and not words[0].startswith("--") else True
    region, query, form = named.pop("region", cloud["region"]), named.pop("query", "@"), named.pop("output", "json")
    client = boto3.session.Session().client(
        service,
        region_name=region,
        endpoint_url=cloud["url"],
        aws_access_key_id=cloud["role"],
        aws_secret_access_key="of-the-role",  # noqa: S106  # nobody checks it
    )
    parameters = {"".join(part.capitalize() for part in name.split("-")): value for name, value in named.items()}
    found = jmespath.search(query, getattr(client, operation.replace("-", "_"))(**parameters))
    if form == "text":
        rows = found if isinstance(found, list) else [found]
        lines = ["\t".join(map(str, row)) if isinstance(row, list) else str(row) for row in rows]
        sys.stdout.write("".join(f"{line}\n" for line in lines))
    else:
        sys.stdout.write(json.dumps(found, default=str))
    return 0


if __name__ == "__main__":
    sys.exit(main())
