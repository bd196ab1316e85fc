"""Every peer by name: autoscalers as policies, and gateways to put them behind."""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING, Final

from fleetctl import plugins
from tests.bench.policies.peers.dynamo import dynamo
from tests.bench.policies.peers.fleetopt import fleetopt
from tests.bench.policies.peers.gateway import EngineReadings, FlowControlDispatcher, PlainDispatcher
from tests.bench.policies.peers.kubernetes import hpa_concurrency, keda_queue, keda_ttft
from tests.bench.policies.peers.llm_d import llm_d_law, wva_v1, wva_v2
from tests.bench.policies.peers.policy import PeerPolicy
from tests.bench.policies.peers.routers import (
    EndpointPicker,
    InFlightCap,
    LeastOutstanding,
    LeastPredictedTtft,
    LengthBuckets,
    PowerOfTwo,
    RoundRobin,
    SaturationDetector,
)
from tests.bench.policies.peers.serving import knative, ray_serve, skyserve

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.core.dispatch.dispatcher import Dispatcher
    from fleetctl.ports.policy import Policy
    from fleetctl.sim.world import SimulatedWorld
    from tests.bench.policies.peers.gateway import Router
    from tests.bench.policies.peers.policy import ScalingRule
    from tests.bench.policies.peers.signals import ReplicaProfile

RULES: Final[dict[str, Callable[[ReplicaProfile], ScalingRule]]] = {
    "hpa": hpa_concurrency,
    "keda-queue": keda_queue,
    "keda-ttft": keda_ttft,
    "knative": knative,
    "ray-serve": ray_serve,
    "skyserve": skyserve,
    "dynamo": dynamo,
    "llm-d": llm_d_law,
    "wva-v1": wva_v1,
    "wva-v2": wva_v2,
    "fleetopt": fleetopt,
}
OWN_GATEWAY: Final = "fleetctl"
# The gateway that each peer is published with, or the nearest here.
PLAIN_GATEWAY: Final[dict[str, str]] = {
    "hpa": "power-of-two",
    "keda-queue": "power-of-two",
    "keda-ttft": "power-of-two",
    "knative": "power-of-two",
    "ray-serve": "power-of-two",
    "skyserve": "least-outstanding",
    "dynamo": "least-outstanding",
    "llm-d": "picker",
    "wva-v1": "picker",
    "wva-v2": "picker",
    "fleetopt": "least-outstanding",
}
_FLOW_CONTROL_TTL_S = 1.2
# By hand, the best of 8, 10 and 14 with .3, .7 and 1.2 s for 3,000-token prompts on the bench's three engines.
_IN_FLIGHT_CAP, _CAPPED_TTL_S = 10, 0.7


def policy_of(name: str) -> Policy:
    """Return a policy for one run: a peer's, else an installed one. Raises ConfigError."""
    rule_of = RULES.get(name)
    return plugins.load_policy(name) if rule_of is None else PeerPolicy(rule_of)


def _router(world: SimulatedWorld, name: str) -> Router:
    chance = random.Random(f"router/{world.spec.seed}")
    match name:
        case "round-robin":
            return RoundRobin()
        case "power-of-two":
            return PowerOfTwo(chance)
        case "length-buckets":
            return LengthBuckets(chance)
        case "predicted-ttft":
            return LeastPredictedTtft(chance)
        case "picker":
            return EndpointPicker(chance, EngineReadings(world.engine))
        case _:
            return LeastOutstanding(chance)


def _plain(world: SimulatedWorld, *, router: str, is_one_pool: bool) -> Dispatcher:
    return PlainDispatcher(world, _router(world, router), admission=None, is_one_pool=is_one_pool)


def _sheddable(world: SimulatedWorld, *, is_one_pool: bool) -> Dispatcher:
    admission = SaturationDetector(EngineReadings(world.engine))
    return PlainDispatcher(world, _router(world, "picker"), admission=admission, is_one_pool=is_one_pool)


def _flow_control(world: SimulatedWorld, *, is_one_pool: bool, is_capped: bool) -> Dispatcher:
    saturation = InFlightCap(_IN_FLIGHT_CAP) if is_capped else SaturationDetector(EngineReadings(world.engine))
    ttl_s = _CAPPED_TTL_S if is_capped else _FLOW_CONTROL_TTL_S
    router = _router(world, "picker")
    return FlowControlDispatcher(world, router, saturation=saturation, is_one_pool=is_one_pool, ttl_s=ttl_s)


def _gateways(*, is_one_pool: bool) -> dict[str, Callable[[SimulatedWorld], Dispatcher]]:
    names = ("round-robin", "least-outstanding", "power-of-two", "length-buckets", "predicted-ttft", "picker")
    found: dict[str, Callable[[SimulatedWorld], Dispatcher]] = {
        name: partial(_plain, router=name, is_one_pool=is_one_pool) for name in names
    }
    found["picker-sheddable"] = partial(_sheddable, is_one_pool=is_one_pool)
    found["picker-flow-control"] = partial(_flow_control, is_one_pool=is_one_pool, is_capped=False)
    found["picker-capped"] = partial(_flow_control, is_one_pool=is_one_pool, is_capped=True)
    return found


# Behind a plain gateway each lane is a pool of its own, as a route for each; `pool/NAME` is one pool of all replicas.
GATEWAYS: Final[dict[str, Callable[[SimulatedWorld], Dispatcher]]] = {
    **_gateways(is_one_pool=False),
    **{f"pool/{name}": gateway for name, gateway in _gateways(is_one_pool=True).items()},
}


def dispatcher_of(name: str) -> Callable[[SimulatedWorld], Dispatcher] | None:
    """Return what makes a gateway by name; None: the project's own. Raises KeyError."""
    return None if name == OWN_GATEWAY else GATEWAYS[name]
