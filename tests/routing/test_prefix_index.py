"""The prefix index tells who has seen how much of a prompt, in bounded memory."""

from __future__ import annotations

from hypothesis import given, strategies as st

from fleetctl.core.routing.prefix_index import BLOCK_BYTES, BLOCKS_MAX, PrefixIndex, block_hashes


def prompt(*words: str, times: int = 200) -> bytes:
    return b"".join(w.encode() * times for w in words)


@given(st.binary(max_size=2000), st.binary(max_size=2000), st.binary(max_size=2000))
def test_prompts_share_exactly_the_blocks_of_their_common_prefix(common, left, right):
    a, b = block_hashes(common + b"L" + left), block_hashes(common + b"R" + right)
    shared = len(common) // BLOCK_BYTES
    assert a[:shared] == b[:shared]
    assert not set(a[shared:]) & set(b[shared:])


def test_a_replica_is_credited_with_the_leading_run_it_has_seen():
    index = PrefixIndex()
    system, question, other = prompt("system "), prompt("question"), prompt("another!")
    index.record(block_hashes(system + question), "r1")
    index.record(block_hashes(system), "r2")
    found = index.cached_bytes(block_hashes(system + question))
    assert found["r1"] == len(system + question) // BLOCK_BYTES * BLOCK_BYTES
    assert found["r2"] == len(system) // BLOCK_BYTES * BLOCK_BYTES
    assert index.cached_bytes(block_hashes(other)) == {}


def test_a_replica_that_has_gone_is_forgotten():
    index = PrefixIndex()
    hashes = block_hashes(prompt("a", "b", "c", times=300))
    index.record(hashes, "r1")
    index.record(hashes[:1], "r2")
    index.forget("r1")
    assert index.cached_bytes(hashes) == {"r2": BLOCK_BYTES}


def test_memory_is_bounded_and_the_oldest_go_first():
    index = PrefixIndex(blocks_max=100)
    shared = block_hashes(prompt("shared", times=150))
    for i in range(200):
        index.record(shared + block_hashes(prompt(f"tail {i} "))[len(shared) :], "r1")
        assert len(index) <= 100
    assert index.cached_bytes(shared) == {"r1": len(shared) * BLOCK_BYTES}


def test_an_endless_prompt_is_followed_for_a_bounded_way():
    assert len(block_hashes(b"x" * 10_000_000)) == BLOCKS_MAX


def test_a_hot_prefix_keeps_several_holders():
    index = PrefixIndex()
    hashes = block_hashes(prompt("hot"))
    for i in range(9):
        index.record(hashes, f"r{i}")
    assert 2 <= len(index.cached_bytes(hashes)) <= 4
    assert "r8" in index.cached_bytes(hashes)
