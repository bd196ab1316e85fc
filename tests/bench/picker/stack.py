"""The stack a team would install instead: Envoy, the Gateway API's endpoint picker, and a pool of engines as pods."""

from __future__ import annotations

import http.client
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import yaml

from tests.bench.fleet_drill import _free_port
from tests.bench.picker.control_plane import ControlPlane, wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

POOL = "pool"
OBJECTIVE_HEADER = "x-gateway-inference-objective"
SHEDDABLE = "sheddable"
_NODE_PORT = 8000  # every engine of a pool listens on the same
_SETTLES_S = 4.0  # Envoy's first health check and the picker's first scrape
# As the picker's chart installs it.
_PICKER = {
    "apiVersion": "inference.networking.x-k8s.io/v1alpha1",
    "kind": "EndpointPickerConfig",
    "plugins": [
        {"type": "queue-scorer"}, {"type": "kv-cache-utilization-scorer"}, {"type": "prefix-cache-scorer"},
        {"type": "metrics-data-source"}, {"type": "core-metrics-extractor"},
    ],
    "schedulingProfiles": [
        {
            "name": "default",
            "plugins": [
                {"pluginRef": "queue-scorer", "weight": 2}, {"pluginRef": "kv-cache-utilization-scorer", "weight": 2},
                {"pluginRef": "prefix-cache-scorer", "weight": 3},
            ],
        }
    ],
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class PickerGateway:
    """Where clients send to, and the processes that serve them."""

    port: int
    pids: tuple[int, ...]


def start_engines(plane: ControlPlane, argv: Sequence[str], count: int) -> list[str]:
    """Start as many engines of this command line as asked for, each on an address of its own; return the addresses."""
    addresses = [f"127.0.1.{number}" for number in range(1, count + 1)]
    for address in addresses:
        plane.spawn(f"engine-{address}", *_moved(argv, address))
    for address in addresses:
        wait_until(partial(_answers, address, _NODE_PORT, "/health"), f"engine {address}")
    return addresses


def start_pool(plane: ControlPlane, tools: Path, addresses: Sequence[str]) -> None:
    """Write the pool, its pods and the objectives, as a cluster's own controllers would."""
    for kind in ("inference.networking.k8s.io_inferencepools", "inference.networking.x-k8s.io_inferenceobjectives"):
        plane.define(tools / "crds" / f"{kind}.yaml")
    for number, address in enumerate(addresses):
        _create_pod(plane, f"engine-{number}", address)
    plane.create(
        "/apis/inference.networking.k8s.io/v1/namespaces/default/inferencepools",
        {
            "apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool", "metadata": {"name": POOL},
            "spec": {
                "selector": {"matchLabels": {"app": POOL}}, "targetPorts": [{"number": _NODE_PORT}],
                "endpointPickerRef": {"name": f"{POOL}-epp", "port": {"number": 9002}},
            },
        },
    )  # fmt: skip
    plane.create(
        "/apis/inference.networking.x-k8s.io/v1alpha2/namespaces/default/inferenceobjectives",
        {
            "apiVersion": "inference.networking.x-k8s.io/v1alpha2", "kind": "InferenceObjective", "metadata": {"name": SHEDDABLE},
            "spec": {"priority": -1, "poolRef": {"name": POOL}},
        },
    )  # fmt: skip


def start_gateway(plane: ControlPlane, home: Path, tools: Path, envoy: str, *, is_sheddable: bool) -> PickerGateway:
    """Start the picker and an Envoy before it. Sheddable: every request may be refused."""
    grpc, health, metrics, port = (_free_port() for _ in range(4))
    name = "sheddable" if is_sheddable else "default"
    (home / "epp.yaml").write_text(yaml.safe_dump(_PICKER))
    picker = plane.spawn(
        f"epp-{name}", tools / "epp", "--pool-name", POOL, "--pool-namespace", "default", "--grpc-port", grpc,
        "--grpc-health-port", health, "--metrics-port", metrics, "--metrics-endpoint-auth=false", "--tracing=false",
        "--enable-pprof=false", "-v=1", "--zap-encoder=json", "--config-file", home / "epp.yaml",
        env={"KUBECONFIG": str(plane.kubeconfig), "NAMESPACE": "default", "POD_NAME": f"{POOL}-epp-0-0", "HOME": str(home)},
    )  # fmt: skip
    (home / f"envoy-{name}.yaml").write_text(yaml.safe_dump(_envoy(port, grpc, is_sheddable=is_sheddable)))
    proxy = plane.spawn(
        f"envoy-{name}", envoy, "-c", home / f"envoy-{name}.yaml", "--concurrency", 1, "-l", "warning",
        "--base-id", port, "--disable-hot-restart",
    )  # fmt: skip
    wait_until(lambda: _answers("127.0.0.1", port, "/v1/models"), f"Envoy and the picker ({name})")
    time.sleep(_SETTLES_S)  # real processes in real time
    plane.check()
    return PickerGateway(port=port, pids=(picker.pid, proxy.pid))


def _moved(argv: Sequence[str], address: str) -> list[str]:
    """Return an engine's command line with another address and the pool's port."""
    words = list(argv)
    for flag, value in (("--host", address), ("--port", str(_NODE_PORT))):
        words[words.index(flag) + 1] = value
    return words


def _create_pod(plane: ControlPlane, name: str, address: str) -> None:
    path = "/api/v1/namespaces/default/pods"
    containers = [{"name": "engine", "image": "engine"}]
    pod = {"metadata": {"name": name, "labels": {"app": POOL}}, "spec": {"containers": containers, "nodeName": "node"}}
    plane.create(path, {"apiVersion": "v1", "kind": "Pod", **pod})
    ready = [{"type": "Ready", "status": "True"}]
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "conditions": ready}
    plane.set_status(f"{path}/{name}", status)


def _answers(host: str, port: int, path: str) -> bool:
    connection = http.client.HTTPConnection(host, port, timeout=5.0)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except OSError:
        return False  # not yet
    finally:
        connection.close()


def _envoy(port: int, grpc: int, *, is_sheddable: bool) -> dict[str, Any]:
    """Return Envoy's configuration: one listener, the picker as external processor, engines as the picker's header says."""
    added = [{"header": {"key": OBJECTIVE_HEADER, "value": SHEDDABLE}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}]
    modes = dict.fromkeys(
        ("request_header_mode", "response_header_mode", "request_trailer_mode", "response_trailer_mode"), "SEND"
    )
    bodies = dict.fromkeys(("request_body_mode", "response_body_mode"), "FULL_DUPLEX_STREAMED")
    picker = {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor",
        "grpc_service": {"envoy_grpc": {"cluster_name": "picker"}, "timeout": "10s"},
        "processing_mode": modes | bodies, "message_timeout": "1000s",
    }  # fmt: skip
    mutation = {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation",
        "mutations": {"request_mutations": [{"append": each} for each in added]},
    }
    route = {"cluster": "engines", "timeout": "86400s", "idle_timeout": "86400s"}
    router = {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}
    filters = [
        *([{"name": "objective", "typed_config": mutation}] if is_sheddable else []),
        {"name": "picker", "typed_config": picker}, {"name": "router", "typed_config": router},
    ]  # fmt: skip
    manager = {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "in", "stream_idle_timeout": "0s", "http_filters": filters,
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": route}]}]},
    }  # fmt: skip
    listener = {
        "name": "in", "per_connection_buffer_limit_bytes": 32768, "address": _address("127.0.0.1", port),
        "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
    }  # fmt: skip
    return {"static_resources": {"listeners": [listener], "clusters": [_engines(), _picker_cluster(grpc)]}}


def _engines() -> dict[str, Any]:
    wide = {"max_connections": 40000, "max_pending_requests": 40000, "max_requests": 40000}
    return {
        "name": "engines", "type": "ORIGINAL_DST", "lb_policy": "CLUSTER_PROVIDED", "connect_timeout": "10s",
        "original_dst_lb_config": {"use_http_header": True, "http_header_name": "x-gateway-destination-endpoint"},
        "circuit_breakers": {"thresholds": [wide]},
    }  # fmt: skip


def _picker_cluster(grpc: int) -> dict[str, Any]:
    tls = {
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
        "common_tls_context": {"alpn_protocols": ["h2"]},
    }
    http2 = {
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}},
    }
    endpoint = {"endpoint": {"address": _address("127.0.0.1", grpc)}}
    return {
        "name": "picker", "type": "STATIC", "connect_timeout": "10s",
        "load_assignment": {"cluster_name": "picker", "endpoints": [{"lb_endpoints": [endpoint]}]},
        "transport_socket": {"name": "tls", "typed_config": tls},
        "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": http2},
        "circuit_breakers": {"thresholds": [{"max_requests": 40000, "max_connections": 40000, "max_pending_requests": 40000}]},
    }  # fmt: skip


def _address(host: str, port: int) -> dict[str, Any]:
    return {"socket_address": {"address": host, "port_value": port}}
