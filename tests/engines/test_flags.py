"""The kept lists of flags are those of the engines' own parsers, and a word is refused only where a parser would."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from fleetctl.engine_kit.flags import flag_errors, known_flags
from fleetctl.testing import samples
from fleetctl_emulator.options import flags as emulator_flags
from tests.engines.test_launch import TGI_FLAGS, launch, options

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path / "fleetctl" / "profiles" / "engine-flags"


def refused(engine: str, *words: str) -> list[str]:
    base = samples.profile().lane("short")
    lane = replace(base, engine=engine, launch=replace(base.launch, extra_args=words))
    return [error.message for error in flag_errors(lane)]


def test_the_lists_are_the_parsers_own() -> None:
    assert known_flags("emulator") == emulator_flags()
    assert known_flags("tgi") >= TGI_FLAGS
    for engine in ("vllm", "tgi", "emulator"):
        assert options(launch(engine).argv).keys() <= known_flags(engine)


@pytest.mark.parametrize(
    "words",
    [
        ("--enable-eplb",), ("--max_num_seqs", "8"), ("--max-num-seqs=8",), ("--compilation-config.level", "3"), ("-O3",), ("-tp", "2"),
        ("--no-enable-prefix-caching",), ("--enforce-eag",), ("--seed", "-1"), ("--hf-overrides", '{"a": "--b"}'),
    ],
)  # fmt: skip
def test_what_vllm_takes_is_taken(words: tuple[str, ...]) -> None:
    assert refused("vllm", *words) == []


@pytest.mark.parametrize("word", ["--enable-eplbb", "--max-batch-size", "--frobnicate=1", "-z"])
def test_what_vllm_does_not_know_is_refused(word: str) -> None:
    assert f"vllm has no flag {word.split('=', maxsplit=1)[0]}" in refused("vllm", word)[0]


def test_a_flag_of_a_newer_engine_is_taken_once_the_user_lists_it(own_config: Path) -> None:
    assert refused("vllm", "--frobnicate")
    own_config.mkdir(parents=True)
    (own_config / "vllm.txt").write_text("# ours\n--frobnicate  since 0.40\n")
    assert not refused("vllm", "--frobnicate", "--enable-eplb")


def test_an_engine_without_a_list_is_given_what_it_is_given() -> None:
    assert refused("sglang", "--anything") == []
