from __future__ import annotations

import re

import pytest

from fleetctl.config.profile import parse_profile
from fleetctl.config.profile_changes import diff_profiles
from fleetctl.config.use_cases import starter

TEXT = starter("chat")


def parsed(text: str):  # type: ignore[no-untyped-def]
    return parse_profile(text, source="chat")


@pytest.mark.parametrize(
    ("old", "new", "change"),
    [
        (r"p99: 300ms", "p99: 250ms", ("lanes.short.slo.ttft.p99", "300ms", "250ms")),
        (r"objective: [0-9.]+%", "objective: 98%", ("slo.objective", "99.5%", "98%")),
        (r"max_cost_per_hour: \$40", "max_cost_per_hour: $41", ("capacity.max_cost_per_hour", "$40.00", "$41.00")),
        (r"port: 8080", "port: 9090", ("gateway.port", "8080", "9090")),
        (r"port: 8080", "port: 8080, request_timeout: 5m", ("gateway.request_timeout", "10m", "5m")),
    ],
)  # fmt: skip
def test_a_change_is_named_by_its_key_with_both_values(old, new, change):
    before, after = parsed(TEXT), parsed(re.sub(old, new.replace("\\", ""), TEXT, count=1))
    assert [(each.key, each.old, each.new) for each in diff_profiles(before, after)] == [change]
    assert diff_profiles(before, before) == ()


def test_a_bound_of_a_lanes_match_reads_as_it_is_written():
    before = parsed(TEXT)
    after = parsed(re.sub(r'(uncached_prompt_tokens: *)"?[<~ 0-9]+"?', r'\1"< 2048"', TEXT, count=1))
    change, *_ = diff_profiles(before, after)
    assert (change.key, change.new) == ("lanes.short.match.uncached_prompt_tokens", "< 2048")
    assert change.old.startswith("< ")
