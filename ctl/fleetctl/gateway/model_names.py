"""By model first, by lane second: what a request's `model` stands for, and which lane it enters then."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from fleetctl.core.admission.refusal import Refusal
from fleetctl.core.model_names import models_by_name
from fleetctl.gateway.degrade import with_model
from fleetctl.gateway.exchange import CHAT_PATH
from fleetctl.gateway.measure import measured_for_adapter
from fleetctl.gateway.request_checks import find_wrong
from fleetctl.gateway.wrong_request import WrongRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetctl.core.dispatch.lane import DispatchLane
    from fleetctl.core.dispatch.request import ActiveRequest
    from fleetctl.core.dispatch.routes import RoutingState
    from fleetctl.gateway.measure import MeasuredRequest
    from fleetctl.gateway.requests import Request
    from fleetctl.model.gateway import RouteModel, RoutingTable


# No cycle passes through one.
class ModelName(msgspec.Struct, gc=False, frozen=True):
    """One name that clients may use."""

    model: str  # whose lanes serve it; "": the fleet has one
    sent: str  # what engines are sent in its place; "": the name itself
    fallback: str = ""  # the model that stands in
    adapter: str = ""  # the name, where it is an adapter's
    refused: dict[str, str] | None = None  # what of a request its lanes do not all serve; None: engines check requests


# No cycle passes through one.
class StandIn(msgspec.Struct, gc=False, frozen=True):
    """What is done with a request that its model's lanes cannot serve."""

    model: str  # that serves it then
    in_place_of: str
    body: bytes  # as it came


_ANY = ModelName("", "")


class ModelNames:
    """Those of one routing table after another."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._by_raw: dict[bytes, ModelName] = {b"": _ANY}
        self._by_name: dict[str, ModelName] = {}
        self._unnamed = _ANY
        self.requests: Counter[str] = Counter()  # by model, of a fleet of several: that it was to serve
        self.stood_in: Counter[tuple[str, str]] = Counter()  # by model, and the one that served in its place

    def apply(self, table: RoutingTable) -> None:
        """Take over a table's."""
        rows = {model.name: model for model in table.models}
        known: dict[str, ModelName] = {}
        for name, model in models_by_name(table.models).items():
            known[name] = _meaning(name, rows[model], is_only=len(rows) == 1)
        for model in (
            rows if len(rows) > 1 else ()
        ):  # a counter is there from zero on, or Prometheus misses its first requests
            self.requests[model] += 0
        self._by_name = known
        self._unnamed = known[table.models[0].name] if known else _ANY
        self._by_raw = {msgspec.json.encode(name): found for name, found in known.items()}
        self._by_raw |= dict.fromkeys((b"", b"null", b'""'), self._unnamed)

    @property
    def known(self) -> tuple[str, ...]:
        """Return every name there is."""
        return tuple(self._by_name)

    def lane_of(
        self, request: Request, found: MeasuredRequest, routes: RoutingState, header: str | None
    ) -> DispatchLane[ActiveRequest] | Refusal:
        """Return the lane a request enters, its body in the words of that lane's engines; or why there is none."""
        raw = found.parsed.model
        named = self._by_raw.get(raw) or self._looked_up(raw)
        if named is None:
            return Refusal.UNKNOWN_MODEL
        if named is _ANY:
            return _lane_of(request, found, routes, header)
        if request.falls_back:
            header = None  # it names a lane of the model that could not serve it
        # A lane that is named decides for those who name no model.
        is_by_lane = named is self._unnamed and header is not None and header in routes.lanes and raw in _UNNAMED
        if is_by_lane and header is not None:
            named = self._by_name.get(routes.lanes[header].route.model, named)
        if named.refused is not None:
            request.wrong = find_wrong(request.body, named.refused, is_chat=request.path == CHAT_PATH)
            if request.wrong is not None:
                return Refusal.NOT_ALLOWED
        # A model that stands in has no adapters of another's.
        request.adapter = named.adapter if not request.falls_back else ""
        if request.adapter:
            measured_for_adapter(found, request.adapter, routes)
        try:
            self._enter(request, named)
        except msgspec.DecodeError as error:  # in a part that nobody has read so far
            request.wrong = WrongRequest(f"the request body is not valid: {error}", "")
            return Refusal.NOT_ALLOWED
        lane = _lane_of(request, found, routes, header)
        while request.fallback is not None and not isinstance(lane, Refusal) and not lane.has_replica:
            # It is served meanwhile, and counted as an arrival, which is what has a lane started from zero.
            lane.accounts.offered(self._clock())
            request.falls_back = True
            self._enter(request, named)
            lane, header = _lane_of(request, found, routes, None), None
        return lane

    def _looked_up(self, raw: bytes) -> ModelName | None:
        """Return what a name stands for that is spelt in another way, such as with escapes; before a table any will do."""
        if not self._by_name:
            return _ANY
        name = msgspec.json.decode(raw)
        return self._by_name.get(name) if isinstance(name, str) else None

    def _enter(self, request: Request, named: ModelName) -> None:
        """Note the model that is to serve a request, and put its body into that model's words."""
        stand_in = request.fallback if request.falls_back else None
        if stand_in is not None:
            named = self._by_name.get(stand_in.model, named)
            request.body = with_model(stand_in.body, stand_in.model)
            request.model_lines = b"\r\nx-fleetctl-model: %b\r\nx-fleetctl-fallback-for: %b" % (
                stand_in.model.encode(),
                stand_in.in_place_of.encode(),
            )
            request.clear()
            request.in_place_of = stand_in.in_place_of
            self.stood_in[stand_in.in_place_of, stand_in.model] += 1
        else:
            if named.sent:
                request.body = with_model(request.body, named.sent)
            request.model_lines = b"\r\nx-fleetctl-model: %b" % named.model.encode() if named.model else b""
        request.model = named.model
        request.fallback = None
        if named.model:
            self.requests[named.model] += 1
        if named.fallback:
            in_place_of = stand_in.in_place_of if stand_in is not None else named.model
            request.fallback = StandIn(named.fallback, in_place_of, request.body)
        request.falls_back = False


def _meaning(name: str, row: RouteModel, *, is_only: bool) -> ModelName:
    """Return what one of a model's names stands for."""
    is_own = name == row.name or name in row.adapters
    adapter = name if name in row.adapters else ""
    if is_only and is_own and row.refused is None and not adapter:
        return _ANY
    return ModelName("" if is_only else row.name, "" if is_own else row.name, row.fallback, adapter, row.refused)


_UNNAMED = frozenset((b"", b"null", b'""'))


def _lane_of(
    request: Request, found: MeasuredRequest, routes: RoutingState, header: str | None
) -> DispatchLane[ActiveRequest] | Refusal:
    parsed = found.parsed
    return routes.lane_of(
        found.prompt,
        found.tokens,
        header=header,
        batch_hint=parsed.batch_hint or request.headers.get(b"x-fleetctl-batch", b"").lower() == b"true",
        stream=parsed.stream,
        model=request.model,
    )
