"""A key of the profile that nobody explains would be missing from `plan --explain`, the one page that lists them all."""

from __future__ import annotations

from fleetctl.config.profile_keys import schema_keys
from fleetctl.core.explanation.registry import EXPLANATIONS


def test_every_key_of_the_schema_has_an_explanation_and_no_other() -> None:
    keys = {key.pattern for key in schema_keys()}
    assert sorted(keys - EXPLANATIONS.keys()) == [], (
        "explain these in core/explanation (docs/extending.md, A profile key)"
    )
    assert sorted(EXPLANATIONS.keys() - keys) == []
