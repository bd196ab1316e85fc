"""The prompts that stand before an engine's next one, and how long it takes over them, as learned from first tokens.

An engine computes prompts in the order of `prefill_turns`. So the time between two first tokens is what the second one's prompt
took, decodes that share its steps included, wherever it was there already when the first one came; else the time since it
was sent. These times are fitted by `fixed + tokens x slope`, old ones forgotten, from the plan's figure on, and stretched by
what each stream that decodes beside adds, which is learned too: a long prompt is in time beside five and late beside ten.

Of an answer that comes whole nobody hears the first token: its prompt leaves the line when the forecast has it computed.
"""

from __future__ import annotations

import math
from collections import deque

from fleetctl.core.routing.prefill_step import PrefillStep, PrefillTurn
from fleetctl.core.routing.prefill_turns import ahead_s, computed_by, stand

# A sample's weight falls by a third over twenty others: an engine's load changes within seconds.
_DECAY = 0.98
# An engine that was slow and is well again, or the other way round, is learned anew within a few samples.
_LATELY = 0.8
_CHANGED_BY = 1.6
_DECAY_CHANGED = 0.8
# What the plan says weighs as much as three samples, half of a prompt of 500 tokens, half of one of 1,000; it is forgotten
# as they are, but for a rest that decides where all prompts are of one length.
_PRIOR_N, _PRIOR_X, _PRIOR_XX = 1.0, 0.5 * 500 + 0.5 * 1000, 0.5 * 500**2 + 0.5 * 1000**2
_PRIOR_WEIGHT, _PRIOR_WEIGHT_MIN = 3.0, 0.15
_TOKENS_PER_S_UNPLANNED = 10_000.0
# However alike the prompts are, their length is at least so much of what they take.
_SLOPE_SHARE_MIN = 0.05
# One pause of the engine or of the machine is not taken at its word; one that lasts is, within a few samples.
_SURPRISE_MAX = 4.0
# Until it is learned, prompts are taken to need twice as long beside as many streams as the engine may have. That weighs as
# much as so many samples beside a quarter of them; five times as much is more than any engine was seen to need.
_STRETCH_PRIOR_N = 4.0
_STRETCH_MAX = 5.0
# Of shorter prompts a step's own length says more than what runs beside.
_STRETCH_TOKENS_MIN = 256
_NEWEST_STEP = 0.1  # of what a step computes to the end, what the last one moves it by
_SEVERAL = 1.5  # from here on steps compute several
# A line that is late by its own forecast is not over: this share of it is taken to be left.
_LATE_SHARE = 0.25


class PrefillLine:
    """One engine's; the caller says when a prompt is sent, has its first token, or is given up."""

    __slots__ = (
        "_beside_most",
        "_beside_xx",
        "_beside_xy",
        "_has_others",
        "_lately_s",
        "_n",
        "_others_streams",
        "_per_step",
        "_predicted_s",
        "_prior",
        "_step",
        "_tokens",
        "_turns",
        "_weight",
        "_x",
        "_xx",
        "_xy",
        "_y",
        "count",
        "fixed_s",
        "free_s",
        "per_stream",
        "s_per_token",
        "streams",
        "stretch",
    )  # fmt: skip

    def __init__(self, tokens_per_s: float = 0.0) -> None:
        self.count = 0  # prompts in it; read for every request
        self._tokens = 0
        self._turns: deque[PrefillTurn] = deque()
        self.free_s = 0.0  # when it will have been worked off, by its own forecast
        self._step = PrefillStep()
        self._per_step = 1.0  # prompts that a step computes to the end, lately
        # Of the samples: number, tokens, seconds, tokens squared, tokens times seconds; old ones weigh less.
        self._n = self._x = self._y = self._xx = self._xy = 0.0
        self._lately_s = self._predicted_s = 0.0  # of the last few samples, and what had been predicted of them
        self._others_streams, self._has_others = 0, False  # of other gateways: requests now, prompts between
        self._prior = 0.0
        self._weight = _PRIOR_WEIGHT
        self.fixed_s = 0.0  # of a prompt's time, what does not depend on its length
        self.s_per_token = 0.0
        self.streams = 0  # requests that the engine has, those in the line included
        self.stretch = 1.0  # what a prompt takes beside them, over what it takes alone
        self.per_stream = 0.0  # what each adds to that
        self._beside_most = 1  # streams that the engine may have
        self._beside_xx = self._beside_xy = 0.0  # of the samples: streams beside squared, and times what they added
        self.plan(tokens_per_s)

    def plan(self, tokens_per_s: float, streams_max: int = 0) -> None:
        """Take the plan's figures as what is known before anything was measured; 0: it is not known."""
        if streams_max and streams_max != self._beside_most:
            self._beside_most = streams_max
            self._fit_stretch()
        s_per_token = 1.0 / (tokens_per_s or _TOKENS_PER_S_UNPLANNED)
        if s_per_token != self._prior:
            self._prior = s_per_token
            self._fit()

    def join(self, tokens: int, now_s: float, *, is_heard: bool = True, rank: int = 0) -> PrefillTurn:
        """Stand at the end of the line, before those of a lower rank; `is_heard`: its first token will be told of."""
        self.free_s = max(now_s, self.free_s) + self.own_s(tokens)
        turn = PrefillTurn(tokens, now_s, math.inf if is_heard else self.free_s, rank=rank)
        stand(self._turns, turn)
        self.count += 1
        self._tokens += tokens
        return turn

    def carries(self, streams: int) -> None:
        """Note how many requests the engine has now."""
        self.streams = streams = streams + self._others_streams
        self.stretch = 1.0 + self.per_stream * streams

    def leave(self, turn: PrefillTurn, now_s: float) -> None:
        """Give up: the engine is told, or is lost."""
        if turn.is_gone:
            return
        self._drop(turn)
        self.free_s = max(now_s, self.free_s - self.own_s(turn.tokens)) if self.count else now_s
        while self._turns and self._turns[0].is_gone:
            self._turns.popleft()

    def done(self, turn: PrefillTurn, now_s: float, *, is_first_token: bool = True) -> None:
        """Note that it and all before it have been computed; only by a first token it is known since when."""
        if turn.is_gone:
            return
        tokens, number, begun_s = 0, 0, now_s
        for first in computed_by(self._turns, turn):
            if not first.is_gone:
                self._drop(first)
                if first.due_s > turn.since_s:
                    tokens += first.tokens
                    number += 1
                    begun_s = min(begun_s, first.since_s)
        if is_first_token and number:
            self._hear(tokens, number, begun_s, now_s)
        self.free_s = now_s + self.left_s()

    def wait_s(self, now_s: float, rank: int | None = None) -> float:
        """Return how long a prompt that joins now waits until its own turn comes; of a rank that goes before others, less."""
        turns = self._turns
        while turns and (turns[0].is_gone or turns[0].due_s <= now_s):
            first = turns.popleft()
            if not first.is_gone:
                self._drop(first)
        if not self.count:
            return 0.0
        all_s = self.free_s - now_s
        return ahead_s(turns, rank, all_s if all_s > 0.0 else _LATE_SHARE * self.left_s(), self.own_s)

    def oldest_s(self, now_s: float) -> float:
        """Return how long the oldest of those waits that a prompt which joins now has its first token with; 0: none does."""
        if self._per_step < _SEVERAL:
            return 0.0
        began_s = self._step.heard_s
        return next((now_s - turn.since_s for turn in self._turns if not turn.is_gone and turn.since_s >= began_s), 0.0)

    def own_s(self, tokens: float) -> float:
        """Return how long the engine takes over a prompt of so many tokens itself, beside what it has now."""
        return self.alone_s(tokens) * self.stretch

    def alone_s(self, tokens: float) -> float:
        """Return how long it would take over the prompt if it had nothing else."""
        return self.fixed_s + tokens * self.s_per_token

    def work_s(self, tokens: float) -> float:
        """Return what a prompt takes of the engine where others share its steps: without what each takes alone."""
        return tokens * self.s_per_token * self.stretch

    def left_s(self) -> float:
        """Return how long the engine takes over all prompts in the line, from the beginning of the first."""
        return (self.count * self.fixed_s + self._tokens * self.s_per_token) * self.stretch

    def _drop(self, turn: PrefillTurn) -> None:
        turn.is_gone = True
        self.count -= 1
        self._tokens -= turn.tokens

    def _hear(self, tokens: int, number: int, begun_s: float, now_s: float) -> None:
        """Take in a first token. Prompts of one step have theirs together: only all of them say what one takes."""
        step = self._step
        if step.has(now_s, self.own_s(tokens / number)):
            step.tokens += tokens
            step.prompts += number
            return
        if step.prompts:
            self._per_step += _NEWEST_STEP * (step.prompts - self._per_step)
            if not self._has_others:
                self._learn(step.tokens / step.prompts, step.seconds / step.prompts, beside=step.beside)
        beside = max(0, self.streams - 1 - self.count)
        self._step = PrefillStep(now_s, tokens, number, now_s - max(begun_s, step.heard_s), beside)

    def _learn(self, tokens: float, seconds: float, *, beside: int, weight: float = 1.0) -> None:
        stretch, alone_s = 1.0 + self.per_stream * beside, self.alone_s(tokens)
        predicted_s = alone_s * stretch
        seconds = min(seconds, _SURPRISE_MAX * predicted_s)
        decay = self._decay(weight * seconds, weight * predicted_s)
        if self._weight > _PRIOR_WEIGHT_MIN:
            self._weight *= decay
        if tokens >= _STRETCH_TOKENS_MIN:
            self._beside_xx = self._beside_xx * _DECAY + weight * beside * beside
            self._beside_xy = self._beside_xy * _DECAY + weight * beside * (seconds / alone_s - 1.0)
            self._fit_stretch()
        seconds /= stretch
        self._n = self._n * decay + weight
        self._x = self._x * decay + weight * tokens
        self._y = self._y * decay + weight * seconds
        self._xx = self._xx * decay + weight * tokens * tokens
        self._xy = self._xy * decay + weight * tokens * seconds
        self._fit()

    def _decay(self, seconds: float, predicted_s: float) -> float:
        """Return what older samples are worth: little, where the last few were quite another than predicted."""
        self._lately_s = self._lately_s * _LATELY + seconds
        self._predicted_s = self._predicted_s * _LATELY + predicted_s
        is_another = (
            self._lately_s > _CHANGED_BY * self._predicted_s or self._predicted_s > _CHANGED_BY * self._lately_s
        )
        return _DECAY_CHANGED if is_another else _DECAY

    def _fit_stretch(self) -> None:
        """Fit what each stream beside adds, what is expected of it among the samples."""
        expected = 1.0 / self._beside_most
        weight = _STRETCH_PRIOR_N * (self._beside_most / 4.0) ** 2
        fitted = (weight * expected + self._beside_xy) / (weight + self._beside_xx)
        self.per_stream = min(max(0.0, fitted), _STRETCH_MAX * expected)
        self.carries(self.streams)

    def _fit(self) -> None:
        """Fit both figures by least squares, the prior among the samples; neither is negative."""
        weight = self._weight
        planned = weight * self._prior
        n, x, y = self._n + weight * _PRIOR_N, self._x + weight * _PRIOR_X, self._y + planned * _PRIOR_X
        xx, xy = self._xx + weight * _PRIOR_XX, self._xy + planned * _PRIOR_XX
        mean = y / x
        slope = (n * xy - x * y) / (n * xx - x * x)
        if slope < _SLOPE_SHARE_MIN * mean:
            slope = _SLOPE_SHARE_MIN * mean
        elif slope > mean:
            slope = mean
        self.fixed_s, self.s_per_token = (y - slope * x) / n, slope
