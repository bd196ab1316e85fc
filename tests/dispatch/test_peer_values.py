"""The median beside each of many values is that of all the others."""

from __future__ import annotations

from statistics import median

import pytest
from hypothesis import given, strategies as st

from fleetctl.core.dispatch.peer_values import PeerValues

VALUES = st.lists(st.floats(0.0, 1e6), min_size=1, max_size=40)


@given(values=VALUES, data=st.data())
def test_the_median_beside_one_is_that_of_all_others(values, data):
    place = data.draw(st.integers(0, len(values) - 1))
    others = values[:place] + values[place + 1 :]
    peers = PeerValues(values)
    assert peers.median_beside(values[place]) == (median(others) if others else None)
    assert peers.median_beside(None) == median(values)
    assert peers.median_beside(values[place], least=len(values)) is None
    peers.remove(values[place])
    assert peers.median_beside(None) == (median(others) if others else None)


def test_what_is_not_among_them_is_refused():
    peers = PeerValues([1.0, 3.0])
    with pytest.raises(ValueError, match=r"2\.0 is not among the 2 values"):
        peers.median_beside(2.0)
    with pytest.raises(ValueError, match=r"4\.0 is not among the 2 values"):
        peers.remove(4.0)
