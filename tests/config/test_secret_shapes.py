"""A secret written out in a profile is refused where it stands, and never repeated; large files are refused fast."""

from __future__ import annotations

import time

import pytest

from fleetctl.config.profile import parse_profile
from fleetctl.errors import ConfigError
from tests.config.test_faults import edited

AWS = "AKIA" + "ABCDEFGHIJKLMNOP"
HF = "hf_" + "abcdefghijklmnopqrstuvwxyz"
OPENAI = "sk-" + "abcdefghijklmnopqrst"


@pytest.mark.parametrize(
    "launch",
    [
        "{extra_args: [--api-key, X]}",
        "{extra_args: [--api_key=X]}",
        "{extra_args: [--hf-token, X]}",
        f"{{extra_args: [--x, {AWS}]}}",
        f"{{extra_args: ['--header=Bearer {OPENAI}']}}",
        f"{{env: {{MY_CREDS: {AWS}}}}}",
        f"{{env: {{PLAIN: 'x {HF}'}}}}",
        "{env: {MY_PASSWORD: X}}",
    ],
)
def test_a_literal_secret_is_refused_with_its_line_and_key(launch):
    with pytest.raises(ConfigError) as caught:
        parse_profile(edited("spot: all", f"spot: all\n    launch: {launch}"), source="p.yaml")
    assert "looks like a secret" in caught.value.message
    assert "launch." in caught.value.message
    assert caught.value.message.startswith("p.yaml:")
    for secret in (AWS, HF, OPENAI):
        assert secret not in caught.value.message


@pytest.mark.parametrize(
    "launch",
    [
        "{extra_args: [--max-tokens, '5', --tokenizer, x, --ssl-keyfile, /k.pem, --load-format, hf_transfer]}",
        "{env: {HF_TOKEN: 'env:HF_TOKEN', TOKENIZERS_PARALLELISM: 'false', HF_HOME: /models}}",
    ],
)
def test_what_only_sounds_like_one_is_taken(launch):
    parse_profile(edited("spot: all", f"spot: all\n    launch: {launch}"), source="p.yaml")


BOMBS = {
    "aliases": "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 15)),
    "merges": "a0: &a0 {x: 1}\n"
    + "".join(f"a{i}: &a{i}\n  <<: [{','.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 15)),
    "lists": "a: " + "[" * 20_000,
    "closed lists": "a: " + "[" * 20_000 + "]" * 20_000,
    "mappings": "a: " + "{a: " * 20_000,
    "blocks": "- " * 40_000,
    "values": "a: [" + "x, " * 1_000_000 + "]",
    "a scalar": "a: '" + "x" * 30_000_000 + "'",
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_yaml_that_multiplies_is_refused_in_a_second_of_cpu(bomb):
    began_s = time.process_time()
    with pytest.raises(ConfigError):
        parse_profile(BOMBS[bomb], source="p.yaml")
    assert time.process_time() - began_s < 1.0
