"""Several models as a profile says them: their names, their lanes, and what contradicts itself."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.catalogue.known import load_catalogue, resolve_model
from fleetctl.codec import decode, encode
from fleetctl.config.profile import parse_profile
from fleetctl.core.plan.model_totals import model_totals
from fleetctl.core.rollout.in_force import digests
from fleetctl.errors import ConfigError
from fleetctl.load.report import LoadSpec
from fleetctl.model.gateway import RoutingTable
from fleetctl.model.profile import ModelSpec
from fleetctl.operations.planning import plan_profile
from fleetctl.operations.simulation import SimulationRequest, simulate_profile
from tests.config import key_effects
from tests.config.test_every_key import SAMPLE, with_key
from tests.sites import plugins_site

if TYPE_CHECKING:
    from fleetctl.model.catalogue import ModelCard
    from fleetctl.model.profile import Profile

BIG, SMALL = "meta-llama/Llama-3.1-70B-Instruct", "meta-llama/Llama-3.1-8B-Instruct"
TWO: dict[str, Any] = {
    "model": None,
    "models": {
        "big": {
            "id": BIG,
            "share": "30%",
            "aliases": ["gpt-4o"],
            "adapters": {"legal": "./legal"},
            "fallback": "small",
        },
        "small": {"id": SMALL, "aliases": ["mini"]},
    },
    "lanes.short.model": "small",
    "lanes.short.match": {"uncached_prompt_tokens": "< 512"},
    "lanes.long.model": "small",
    "lanes.batch": {
        "model": "big",
        "slo": {"ttft": {"p99": "4s"}},
        "max_wait": "1s",
        "replicas": {"min": 1, "max": 20},
    },
}


def tree_of(**changes: Any) -> dict[str, Any]:
    tree = deepcopy(SAMPLE)
    for dotted, value in {**TWO, **changes}.items():
        tree = with_key(tree, dotted, value)
    return tree


def profile(**changes: Any) -> Profile:
    return parse_profile(json.dumps(tree_of(**changes)), source="a profile", base_dir=Path("/here"))


def test_each_lane_serves_the_model_it_names() -> None:
    made = profile()
    assert [model.name for model in made.models] == ["big", "small"]
    assert {lane.name: made.model_of(lane).id for lane in made.lanes} == {"short": SMALL, "long": SMALL, "batch": BIG}
    assert [model.share for model in made.models] == [0.3, 0.7]
    assert made.model.adapters == {"legal": "/here/legal"}


def test_the_models_reach_the_routing_table_and_their_lanes_lend_each_other_nothing() -> None:
    made = profile()
    table = decode(RoutingTable, encode(key_effects.table(made)))
    assert [(m.name, m.root, m.aliases, m.fallback) for m in table.models] == [
        ("big", BIG, ("gpt-4o",), "small"),
        ("small", SMALL, ("mini",), ""),
    ]
    assert {lane.name: lane.model for lane in table.lanes} == {"short": "small", "long": "small", "batch": "big"}
    assert key_effects.lenders(made) == {"short": ["long"], "long": ["short"], "batch": []}


def test_a_lane_is_planned_with_its_own_model_and_its_models_share_of_the_load() -> None:
    made = profile()
    plan = key_effects.plan_or_refusal(made)
    assert not isinstance(plan, str), plan
    found = {lane.lane: (lane.launch.served_name, plan.card_of(lane)) for lane in plan.lanes}
    assert {name: (served, card.id if card else "") for name, (served, card) in found.items()} == {
        "short": ("small", SMALL),
        "long": ("small", SMALL),
        "batch": ("big", BIG),
    }
    rps = {lane.lane: lane.rps for lane in plan.lanes}
    assert rps["batch"] == pytest.approx(0.3 * 40, rel=1e-6)
    assert rps["short"] + rps["long"] == pytest.approx(0.7 * 40, rel=1e-6)
    weights = {lane.lane: lane.gpu_count for lane in plan.lanes}
    assert weights["batch"] > weights["short"], "the larger model takes more GPUs"


def test_each_models_lanes_are_summed_up() -> None:
    plan = key_effects.plan_or_refusal(profile(**{"lanes.batch.launch": {"tensor_parallel": 4}}))
    assert not isinstance(plan, str), plan
    totals = {each.model: each for each in model_totals(plan)}
    assert {name: each.lanes for name, each in totals.items()} == {"small": ("short", "long"), "big": ("batch",)}
    assert sum(totals["big"].gpus.values()) == 4 * plan.lane("batch").replicas
    assert totals["big"].cost_usd_per_1m_tokens == pytest.approx(plan.lane("batch").cost_usd_per_1m_tokens)
    small = [plan.lane(name) for name in ("short", "long")]
    assert totals["small"].replicas == sum(lane.replicas for lane in small)
    one_way, other = sorted(lane.cost_usd_per_1m_tokens for lane in small)
    assert one_way < totals["small"].cost_usd_per_1m_tokens < other
    assert sum(each.cost_usd_per_hour for each in totals.values()) == pytest.approx(plan.cost_usd_per_hour)


def test_a_fleet_of_one_model_by_name_is_the_same_fleet() -> None:
    own = {f"lanes.{lane}.model": None for lane in ("short", "long", "batch")} | {"lanes.batch.match": {"batch": True}}
    one = tree_of(models={"small": {"id": SMALL}}, **own)
    short = with_key(with_key(one, "models", None), "model", {"id": SMALL, "served_name": "small"})
    named, alone = (parse_profile(json.dumps(each), source="a profile") for each in (one, short))
    assert digests(named, key_effects.desired(named).plan) == digests(alone, key_effects.desired(alone).plan)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"id": SMALL}}, "models: is given beside model"),
        ({"models": None}, "model: is missing"),
        ({"lanes.long.model": "smal"}, r"lanes.long.model: no model is called 'smal' \(did you mean 'small'\?\)"),
        ({"lanes.long.model": None}, "lanes.long: serves one of several models, and does not say which"),
        ({"models.third": {"id": SMALL}}, "models.third: no lane serves it"),
        ({"models.small.aliases": ["gpt-4o"]}, "'gpt-4o' is what models.big.aliases.0 is called already"),
        ({"models.small.adapters": {"big": "x"}}, "'big' is what models.big is called already"),
        ({"models.small.fallback": "big"}, "models.big.fallback: leads back to big"),
        ({"models.big.fallback": "nope"}, "models.big.fallback: no model is called 'nope'"),
        ({"models.big.share": "90%", "models.small.share": "20%"}, "the models' shares are 110% together"),
        ({"models.big.share": "40%", "models.small.share": "20%"}, "the models' shares are 60% together"),
        ({"lanes.long.spill_to": ["batch"]}, "requests are not spilled to another model"),
        ({"lanes.batch.match": {"stream": True}}, "no lane of model big takes non-streaming requests"),
        ({"models.big.aliases": ["two words"]}, "'two words' cannot be a model's name"),
        ({"models.big.id": "nobody/knows"}, "models.big.id: 'nobody/knows' is not a known model"),
    ],
)
def test_what_contradicts_itself_is_refused_by_its_key(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        profile(**changes)


async def test_an_engine_without_adapters_is_refused_by_name() -> None:
    changes = {"lanes.batch.emulator": {"flavour": "tgi"}}
    with pytest.raises(
        ConfigError, match="lane batch: tgi is not known to serve LoRA adapters by name, and big has legal"
    ):
        await plan_profile(plugins_site(), profile(**changes))


def test_a_simulation_goes_by_the_models_that_rows_name_and_refuses_others_by_line(tmp_path: Path) -> None:
    trace = tmp_path / "t.csv"
    rows = ["arrival_s,prompt_tokens,output_tokens,model", "0,100,5,mini", "1,900,5,small", "2,100,5,legal"]
    trace.write_text("\n".join(rows))
    request = SimulationRequest(load=LoadSpec(url="", trace=str(trace)))
    found = simulate_profile(plugins_site(), profile(), request)
    assert {(each.model, each.lane, each.offered) for each in found.comparison} == {("small", "short", 1), ("small", "long", 1), ("big", "batch", 1)}  # fmt: skip
    trace.write_text("\n".join([*rows, "3,100,5,mimi"]))
    with pytest.raises(ConfigError, match=r"t.csv:5: no model 'mimi' \(did you mean 'mini'\?\)"):
        simulate_profile(plugins_site(), profile(), request)


async def test_a_trace_says_how_much_of_the_load_is_each_models(tmp_path: Path) -> None:
    rows = [
        f"{number},{100 + 900 * (number % 2)},20,{'gpt-4o' if number % 4 == 0 else 'mini'}" for number in range(400)
    ]
    trace = tmp_path / "t.csv"
    trace.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens,model", *rows]))
    plan = await plan_profile(plugins_site(), profile(**{"workload.trace": str(trace)}))
    rps = {lane.lane: lane.rps / 40 for lane in plan.lanes}
    assert rps == pytest.approx({"batch": 0.25, "short": 0.25, "long": 0.5}, abs=0.01)


def test_a_model_behind_unlike_engines_is_checked_by_the_gateway_and_what_one_lacks_is_refused_in_all() -> None:
    tree = with_key(with_key(deepcopy(SAMPLE), "engine", "vllm"), "lanes.short.engine", "llamacpp")
    (model,) = key_effects.table(parse_profile(json.dumps(tree), source="a profile")).models
    assert model.refused == {
        "image_url": "lane short: llamacpp is started without --mmproj",
        "input_audio": "lane short: llamacpp is started without --mmproj",
        "tools": "lane long: vllm is started without --enable-auto-tool-choice",
        "suffix": "lane short: llamacpp looks at no text behind an answer",
        "greedy_choices": "lane long: vllm draws several choices at a temperature over 0 alone",
    }
    for lane in ("long", "batch"):
        tree = with_key(
            tree, f"lanes.{lane}.launch.extra_args", ["--enable-auto-tool-choice", "--tool-call-parser=hermes"]
        )
    (model,) = key_effects.table(parse_profile(json.dumps(tree), source="a profile")).models
    assert set(model.refused or ()) == {"image_url", "input_audio", "suffix", "greedy_choices"}


def test_a_model_behind_engines_that_check_requests_is_left_to_them() -> None:
    (model,) = key_effects.table(parse_profile(json.dumps(SAMPLE), source="a profile")).models
    assert model.refused is None


def adapter(directory: Path, rank: object) -> str:
    directory.mkdir()
    (directory / "adapter_config.json").write_text(json.dumps({"r": rank, "rank_pattern": {"q_proj": 20}}))
    return str(directory)


def test_adapters_are_planned_and_started_with_the_room_their_own_files_ask_for(tmp_path: Path) -> None:
    def card(**adapters: str) -> ModelCard:
        return resolve_model(ModelSpec(id=BIG, adapters=adapters), load_catalogue())

    plain = card()
    assert (plain.adapter_rank, plain.adapter_slots) == (0, 0)
    unknown = card(hub="acme/sql-lora")
    assert (unknown.adapter_rank, unknown.adapter_slots) == (16, 1)
    found = card(a=adapter(tmp_path / "a", 8), b=adapter(tmp_path / "b", 48), c="acme/sql-lora")
    assert (found.adapter_rank, found.adapter_slots) == (64, 3)
    with pytest.raises(ConfigError, match=r"adapter big of .* has rank 1024, and engines serve 512 at most"):
        card(big=adapter(tmp_path / "big", 1024))
    with pytest.raises(ConfigError, match="does not say the rank of adapter bad"):
        card(bad=adapter(tmp_path / "bad", None))


def test_a_replica_is_started_with_room_for_its_adapters(tmp_path: Path) -> None:
    tree = with_key(deepcopy(SAMPLE), "engine", "vllm")
    tree["model"] = {"id": SMALL, "adapters": {"legal": adapter(tmp_path / "legal", 32), "sql": "acme/sql"}}
    made = parse_profile(json.dumps(tree), source="a profile")
    plan = key_effects.plan_or_refusal(made)
    assert not isinstance(plan, str), plan
    assert (plan.lane("short").launch.adapter_rank, plan.lane("short").launch.adapter_slots) == (32, 2)
    assert "'--max-lora-rank', '32', '--max-loras', '2'" in str(key_effects.commands(made))
