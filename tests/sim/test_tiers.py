"""A simulated fleet with tiers: who is served first where not all can be, and what the figures say of it."""

from __future__ import annotations

import random

import pytest

from fleetctl.config.profile import parse_profile
from fleetctl.core.static_policy import static
from fleetctl.load.trace import Arrival
from fleetctl.sim.run import simulate
from fleetctl.sim.scenario import SimulationSpec
from tests.sim.fleets import desired_for, offerings

PROFILE = """
apiVersion: fleetctl/v1
name: tiered
model: {id: meta-llama/Llama-3.1-8B-Instruct, quantization: bf16}
engine: vllm
provider: local
workload: {peak_rps: 3, prompt_tokens: {p50: 1020, p99: 4142}, output_tokens: {p50: 129, p99: 601}}
TIERS
lanes:
  all:
    slo: {ttft: {p99: 2s}, itl: {p99: 150ms}}
    max_wait: 1500ms
    replicas: 1
    spot: none
    launch: {max_num_batched_tokens: 512}
capacity: {gpus: [L40S], max_nodes: 1}
"""
TIERS = "tiers: {premium: {weight: 6, floor: 20%}, free: {weight: 1, floor: 5%}}"


def overload(seed: int, seconds: float = 120.0) -> list[Arrival]:
    """Some three times what one engine serves; a tenth of it is premium."""
    dice, found, at_s = random.Random(seed), [], 0.0
    while (at_s := at_s + dice.expovariate(21.0)) < seconds:
        tier = "premium" if dice.random() < 0.1 else "free"
        found.append(
            Arrival(
                at_s=at_s, prompt_tokens=dice.randint(200, 2000), output_tokens=dice.randint(20, 200), stream=True, tier=tier, client=tier
            )
        )  # fmt: skip
    return found


def test_lower_tiers_are_refused_first_and_everybody_is_counted_once():
    spec = SimulationSpec(seed=3, settled={"all": 1})
    without, tiered = (
        simulate(
            desired_for(parse_profile(PROFILE.replace("TIERS", tiers), source="tiered")),
            overload(3), policy=static, spec=spec, offerings=offerings(),
        )
        for tiers in ("", TIERS)
    )  # fmt: skip

    assert tiered.violations == ()
    for run in (without, tiered):
        assert sum(each.offered for each in run.tiers) == run.lane("all").offered == run.requests
        assert sum(each.good for each in run.tiers) == run.lane("all").good
        assert sum(each.refusals for each in run.tiers) == sum(run.lane("all").refused.values())
    before, after = ({each.name: each for each in run.tiers} for run in (without, tiered))
    assert [each.name for each in tiered.tiers] == ["premium", "free"]
    assert after["premium"].refusals < before["premium"].refusals / 10
    assert after["premium"].token_share > before["premium"].token_share
    assert after["free"].token_share >= 0.05, "it keeps its floor"


def test_a_tiers_bound_of_its_answers_holds_beside_the_lanes():
    tiers = "tiers: {premium: {weight: 6}, free: {weight: 1, generation: {max_tokens: 64}}}"
    rows = [
        Arrival(at_s=float(number), prompt_tokens=100, output_tokens=300, stream=True, tier=tier, client=tier)
        for number, tier in enumerate(("premium", "free") * 5)
    ]
    run = simulate(
        desired_for(parse_profile(PROFILE.replace("TIERS", tiers), source="tiered")),
        rows, policy=static, spec=SimulationSpec(seed=3, settled={"all": 1}), offerings=offerings(),
    )  # fmt: skip
    assert {each.name: each.served_tokens for each in run.tiers} == {"premium": 5 * 400, "free": 5 * 164}


KEYS = """
gateway:
  tier_header: HEADER
  api_keys:
    - {key: env:ACME, name: acme, tier: premium}
    - {key: env:BETA, name: beta, tier: free, generation: {max_tokens: 32}}
    - {key: env:GAMMA, name: gamma}
"""
THREE_TIERS = "tiers: {premium: {weight: 6}, standard: {weight: 3}, free: {weight: 1, generation: {max_tokens: 64}}}"


def keyed(*rows: tuple[str, str], header: bool = True) -> list[tuple[str, int, int]]:
    """Return what each tier was offered and served of such rows of (client, tier), in a lane whose own tier is standard."""
    text = PROFILE.replace("TIERS", THREE_TIERS).replace("  all:\n", "  all:\n    tier: standard\n")
    profile = parse_profile(text + KEYS.replace("HEADER", str(header).lower()), source="keyed")
    arrivals = [
        Arrival(at_s=float(number), prompt_tokens=100, output_tokens=300, stream=True, client=client, tier=tier)
        for number, (client, tier) in enumerate(rows)
    ]
    spec = SimulationSpec(seed=3, settled={"all": 1})
    run = simulate(desired_for(profile), arrivals, policy=static, spec=spec, offerings=offerings())
    assert run.violations == ()
    return [(each.name, each.offered, each.served_tokens) for each in run.tiers]


def test_a_client_has_the_tier_and_the_bounds_of_the_key_of_its_name():
    assert keyed(("acme", ""), ("acme", ""), ("beta", ""), ("gamma", ""), ("nobody", "")) == [
        ("premium", 2, 800),
        ("standard", 2, 800),
        ("free", 1, 132),
    ]


def test_a_row_names_no_higher_tier_than_its_clients_key_has():
    assert keyed(("acme", "free"), ("beta", "premium"), ("gamma", "premium")) == [
        ("standard", 1, 400),
        ("free", 2, 164 + 132),
    ]
    assert keyed(("acme", "free"), header=False) == [("premium", 1, 400)], "the gateway takes no such header"


def test_a_row_of_no_known_client_has_the_tier_that_it_names():
    assert keyed(("nobody", "premium"), ("", "free"), header=False) == [("premium", 1, 400), ("free", 1, 164)]


def test_tiers_are_shown_wherever_the_profile_has_some():
    assert keyed(("", "")) == [("standard", 1, 400)]


LONG_BESIDE_SHORT = "tiers: {premium: {weight: 6, floor: 20%, slo: {ttft: {p99: 1s}}}, free: {weight: 1, floor: 5%}}"
TWO_ENGINES = PROFILE.replace("replicas: 1", "replicas: 2").replace("max_nodes: 1", "max_nodes: 2")


def long_beside_short(seed: int, seconds: float = 240.0) -> list[Arrival]:
    """A seventh of the tokens is premium's, in short prompts; the free tier's long ones alone are more than two engines serve."""
    dice, found = random.Random(seed), []
    for tier, rps, prompt_tokens, output_tokens in (("premium", 2.0, 1000, 130), ("free", 3.0, 6000, 200)):
        at_s = 0.0
        while (at_s := at_s + dice.expovariate(rps)) < seconds:
            prompt = max(1, int(dice.lognormvariate(0, 0.5) * prompt_tokens))
            output = max(1, int(dice.lognormvariate(0, 0.4) * output_tokens))
            found.append(
                Arrival(at_s=at_s, prompt_tokens=prompt, output_tokens=output, stream=True, tier=tier, client=tier)
            )
    return sorted(found, key=lambda row: row.at_s)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_long_prompts_of_a_lower_tier_stand_before_no_short_one_of_a_higher(seed: int) -> None:
    without, tiered = (
        simulate(
            desired_for(parse_profile(TWO_ENGINES.replace("TIERS", tiers), source="tiered")),
            long_beside_short(seed), policy=static, spec=SimulationSpec(seed=seed, settled={"all": 2}), offerings=offerings(),
        )
        for tiers in ("", LONG_BESIDE_SHORT)
    )  # fmt: skip
    premium, free = tiered.tiers
    assert premium.good >= 0.995 * premium.offered
    assert free.token_share >= 0.05
    before, after = (sum(each.served_tokens for each in run.tiers) for run in (without, tiered))
    assert after >= 0.95 * before, "what premium does not use is served to the others"


@pytest.mark.parametrize("retries", [0, 2])
def test_only_what_comes_again_counts_against_a_retry_budget(retries: int) -> None:
    tiers = "tiers: {premium: {weight: 6}, free: {weight: 1, retry_budget: 10%}}"
    run = simulate(
        desired_for(parse_profile(PROFILE.replace("TIERS", tiers), source="tiered")),
        overload(5, seconds=40.0), policy=static, offerings=offerings(),
        spec=SimulationSpec(seed=5, settled={"all": 1}, retries_max=retries),
    )  # fmt: skip
    refused = {each.name: each.refused for each in run.tiers}
    assert sum(refused["free"].values()) > 100
    assert ("retry-budget" in refused["free"]) is (retries > 0)
