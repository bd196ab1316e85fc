"""What a user has asked of an API server, as its audit log says."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from pathlib import Path

_POLICY = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- {{level: Metadata, users: ["{user}"]}}
- {{level: None}}
"""


def audit_options(user: str, log: Path) -> tuple[str, ...]:
    """Return options of an API server that have it log this user's requests; the policy is written beside the log."""
    policy = log.with_suffix(".yaml")
    policy.write_text(_POLICY.format(user=user))
    return f"--audit-policy-file={policy}", f"--audit-log-path={log}", "--audit-log-mode=batch"


def calls_logged(log: Path) -> Counter[str]:
    """Return how many requests of the user's the API server has answered, by verb and kind."""
    found: Counter[str] = Counter()
    for line in log.read_bytes().splitlines():
        event = msgspec.json.decode(line)
        reference = event.get("objectRef", {})
        kind = "/".join(filter(None, (reference.get("resource", "?"), reference.get("subresource"))))
        found[f"{event['verb']} {kind}"] += 1
    return found
