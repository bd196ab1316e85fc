"""API keys match their own hash and nothing else."""

from __future__ import annotations

import pytest

from fleetctl.core.admission.keys import is_slow, matches, scrypt_hash, sha256_hash


@pytest.mark.parametrize("hashed", [sha256_hash("sk-right"), scrypt_hash("sk-right", salt=b"0123456789abcdef")])
def test_only_the_right_key_matches(hashed):
    assert matches("sk-right", hashed)
    assert not matches("sk-wrong", hashed)
    assert not matches("", hashed)
    assert "sk-right" not in hashed


def test_slow_hashes_are_told_apart():
    assert is_slow(scrypt_hash("k", salt=b"0" * 16))
    assert not is_slow(sha256_hash("k"))


@pytest.mark.parametrize("hashed", ["", "md5:abc", "scrypt:1:2", "scrypt:3:8:1:zz:00", "scrypt:a:b:c:00:00"])
def test_an_unreadable_hash_matches_nothing(hashed):
    assert not matches("sk", hashed)
