"""Whose doing it is that a replica answers with an error: its own, or that of whoever sent the request.

A broken engine answers 500 to everybody; so does a sound one to a request that breaks it, and then every replica does. So
an error that is answered is no failure of the replica by itself. It becomes one once another replica has answered the same
request, or once several clients got nothing but errors from it. A client that a replica answered with errors while it
went on to answer others gets them by its own doing, and says nothing of replicas for a while.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fleetctl.core.dispatch.request import Accusation
from fleetctl.core.routing.ejection import CONSECUTIVE_FAILURES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fleetctl.core.dispatch.failure import Consequence
    from fleetctl.core.dispatch.request import ActiveRequest
    from fleetctl.core.dispatch.routes import RoutingState

# gRPC's retry throttling (proposal A6) with its usual figures: ten retries in vain at once, and one more for every ten
# requests that are answered. A client that draws nothing but errors earns one in ten seconds beside.
RETRIES_MAX: Final = 10.0
RETRIES_PER_ANSWER: Final = 0.1
RETRIES_PER_S: Final = 0.1
# A client's errors are its own for so long after the last that proved so.
OWN_DOING_S: Final = 60.0
# Clients whose errors are remembered; the one that erred longest ago is forgotten first.
_CLIENTS_MAX: Final = 4096
_CLIENTS_BLAMING_MIN: Final = 2


@dataclass(slots=True)
class ClientErrors:
    """A client that has drawn an error."""

    retries: float
    at_s: float  # when `retries` was so many
    own_until_s: float = 0.0  # its errors are its own until then


class ErrorAttribution:
    """The clients that have drawn an error, by an opaque key, and what that says of replicas."""

    __slots__ = ("clients",)

    def __init__(self) -> None:
        self.clients: OrderedDict[int, ClientErrors] = OrderedDict()  # empty: no answer needs to be noted

    # What happens.

    def note_error(self, request: ActiveRequest, routes: RoutingState, now_s: float) -> None:
        """Note that its replica answers a request with an error, or breaks an answer off with one."""
        replica = request.replica
        if replica is None:
            return
        in_answer = not request.awaits_token
        replica.answered_with_error(request.client, in_answer=in_answer)
        answers = replica.whole_answers if in_answer else replica.answers
        request.accusations += (Accusation(replica=replica, in_answer=in_answer, answers=answers),)
        request.has_answer = False  # none that shows that the replica works
        self._record_of(request.client, now_s)
        errors = replica.errors_in_answer if in_answer else replica.errors
        if self._is_broken_for_many(errors, now_s) and routes.may_eject(replica):
            replica.eject(now_s)

    def note_answer(self, request: ActiveRequest, routes: RoutingState, now_s: float, *, is_whole: bool) -> None:
        """Note that its replica answers a request: what others answered it with was their failure."""
        replica, client = request.replica, self.clients.get(request.client)
        if replica is None:
            return
        self._acquit(replica.errors, request.client, now_s)
        if is_whole:
            self._acquit(replica.errors_in_answer, request.client, now_s)
        settled = [accusation for accusation in request.accusations if is_whole or not accusation.in_answer]
        if settled:
            request.accusations = tuple(left for left in request.accusations if left not in settled)
        for accusation in settled:
            other = accusation.replica
            if other is not replica and accusation.stands:
                other.count_failure(now_s, in_answer=accusation.in_answer, may_eject=routes.may_eject(other))
        if client is not None:
            client.retries = min(RETRIES_MAX, client.retries + len(settled) + (RETRIES_PER_ANSWER if is_whole else 0.0))

    # What follows.

    def may_retry(self, request: ActiveRequest, consequence: Consequence, now_s: float) -> bool:
        """Whether the client has a retry left, which is then spent, where the failure may be its own doing."""
        return not consequence.is_answer or self.take_retry(request.client, now_s)

    def take_retry(self, client: int, now_s: float) -> bool:
        """Spend one of a client's retries after an error. False: it has none left."""
        record = self._record_of(client, now_s)
        record.retries = min(RETRIES_MAX, record.retries + RETRIES_PER_S * (now_s - record.at_s))
        record.at_s = now_s
        if record.retries < 1.0:
            return False
        record.retries -= 1.0
        return True

    def _record_of(self, client: int, now_s: float) -> ClientErrors:
        record = self.clients.get(client)
        if record is None:
            record = self.clients[client] = ClientErrors(RETRIES_MAX, now_s)
            if len(self.clients) > _CLIENTS_MAX:
                self.clients.popitem(last=False)
        self.clients.move_to_end(client)
        return record

    def _acquit(self, errors: dict[int, int], client: int, now_s: float) -> None:
        """End a row of errors by an answer to a client: those of others are now known to be their own doing."""
        for other in errors:
            if other != client and other in self.clients:
                self.clients[other].own_until_s = now_s + OWN_DOING_S
        errors.clear()

    def _is_broken_for_many(self, errors: Mapping[int, int], now_s: float) -> bool:
        """Whether a row of errors is of so many clients that they are the replica's own doing."""
        blaming = [count for client, count in errors.items() if not self._is_own_doing(client, now_s)]
        return len(blaming) >= _CLIENTS_BLAMING_MIN and sum(blaming) >= CONSECUTIVE_FAILURES

    def _is_own_doing(self, client: int, now_s: float) -> bool:
        record = self.clients.get(client)
        return record is not None and record.own_until_s > now_s
