"""Any checkpoint is planned by its config.json: `model add` from a directory, the cache or a hub, or `model.path`."""

from __future__ import annotations

import http.server
import json
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from fleetctl.catalogue.known import load_catalogue
from fleetctl.catalogue.model_card import model_card_from_config
from fleetctl.cli.main import main
from fleetctl.model.catalogue import Precision

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Qwen2.5-7B-Instruct's own shape.
QWEN = {
    "model_type": "qwen2", "num_hidden_layers": 28, "hidden_size": 3584, "num_attention_heads": 28, "num_key_value_heads": 4,
    "intermediate_size": 18944, "vocab_size": 152064, "max_position_embeddings": 32768, "torch_dtype": "bfloat16",
}  # fmt: skip
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm"}
# As AutoAWQ, GPTQModel, vLLM's llm-compressor, ModelOpt, bitsandbytes and the publishers write them.
METHODS: list[tuple[dict[str, Any], Precision]] = [
    (AWQ, Precision.INT4),
    ({"quant_method": "awq", "w_bit": 4}, Precision.INT4),
    ({"quant_method": "gptq", "bits": 4, "desc_act": False}, Precision.INT4),
    ({"quant_method": "gptq", "bits": 8}, Precision.INT8),
    ({"quant_method": "fp8", "weight_block_size": [128, 128]}, Precision.FP8),
    ({"quant_method": "fbgemm_fp8"}, Precision.FP8),
    ({"quant_method": "modelopt", "quant_algo": "FP8"}, Precision.FP8),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, Precision.INT4),
    ({"quant_method": "mxfp4"}, Precision.INT4),
    ({"quant_method": "bitsandbytes", "load_in_4bit": True}, Precision.INT4),
    ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}}}}, Precision.FP8),
    ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "int"}}}}, Precision.INT8),
    ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int"}}}}, Precision.INT4),
    ({"quant_method": "compressed-tensors", "kv_cache_scheme": {"type": "float", "num_bits": 8}}, Precision.BF16),
]  # fmt: skip
PROFILE = """
apiVersion: fleetctl/v1
name: any
model: {%s}
engine: emulator
provider: local
workload: {peak_rps: 1, prompt_tokens: {p50: 400, p99: 2000}, output_tokens: {p50: 100, p99: 400}}
slo: {objective: 99.5%%, window: 7d}
lanes:
  all: {slo: {ttft: {p99: 2s}, itl: {p99: 100ms}}, max_wait: 1s}
"""


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    for name in ("HF_HUB_CACHE", "HF_TOKEN", "HF_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def written(directory: Path, quantization: dict[str, Any] | None = None) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    config = QWEN | ({"quantization_config": quantization} if quantization else {})
    (directory / "config.json").write_text(json.dumps(config))
    return directory


def planned(model: str, capsys: pytest.CaptureFixture[str], places: Path) -> tuple[int, dict[str, Any], str]:
    (places / "profile.yaml").write_text(PROFILE % model)
    code = main(["plan", "profile.yaml", "-o", "json"])
    captured = capsys.readouterr()
    return code, json.loads(captured.out) if code == 0 else {}, captured.err


@pytest.mark.parametrize("section", [{"quant_method": "something new"}, {"quant_method": "gptq", "bits": 3}, "awq"])
def test_a_quantization_that_is_not_known_is_refused_and_not_taken_for_16_bits(
    section: object, places: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (places / "New").mkdir()
    (places / "New" / "config.json").write_text(json.dumps({**QWEN, "quantization_config": section}))
    assert main(["model", "add", "New"]) == 3
    err = capsys.readouterr().err
    assert "its quantization is not known" in err
    assert "models.yaml" in err


def test_heads_that_share_no_whole_number_of_kv_heads_are_refused(
    places: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (places / "Odd").mkdir()
    (places / "Odd" / "config.json").write_text(json.dumps({**QWEN, "num_key_value_heads": 5}))
    assert main(["model", "add", "Odd"]) == 3
    assert "28 heads cannot share 5" in capsys.readouterr().err


@pytest.mark.parametrize("value", ["two", 1.5, -1])
def test_a_count_of_shared_experts_that_is_none_is_refused(
    value: object, places: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (places / "Odd").mkdir()
    (places / "Odd" / "config.json").write_text(json.dumps({**QWEN, "n_shared_experts": value}))
    assert main(["model", "add", "Odd"]) == 3
    assert "n_shared_experts must be a whole number above zero" in capsys.readouterr().err


@pytest.mark.parametrize(("section", "precision"), METHODS)
def test_how_a_checkpoint_is_quantized_is_read_from_its_config(
    section: dict[str, Any], precision: Precision, places: Path
) -> None:
    card = model_card_from_config(written(places / "model", section) / "config.json")
    assert card.native_precision is precision


@pytest.mark.parametrize(
    ("section", "width", "groups"),
    [
        (AWQ, 29568, 231),
        (AWQ, 29696, 232),
        (AWQ, 29700, 1),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 14336, 112),
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int", "group_size": 32}}}}, 14336, 448),
        ({"quant_method": "gptq", "bits": 4, "group_size": -1}, 14336, None),
    ],
)  # fmt: skip
def test_groups_of_weights_that_share_a_scale_are_counted(
    places: Path, section: dict[str, Any], width: int, groups: int | None
) -> None:
    (places / "m").mkdir()
    file = places / "m" / "config.json"
    file.write_text(json.dumps(QWEN | {"intermediate_size": width, "quantization_config": section}))
    assert model_card_from_config(file).mlp_groups == groups


def test_what_modelopt_writes_beside_the_config_counts(places: Path) -> None:
    file = written(places / "m") / "config.json"
    section = {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}
    file.with_name("hf_quant_config.json").write_text(json.dumps({"quantization": section}))
    card = model_card_from_config(file)
    assert (card.native_precision, card.kv_cache) == (Precision.FP8, Precision.FP8)


def test_a_config_without_end_is_refused_in_words(capsys: pytest.CaptureFixture[str], places: Path) -> None:
    (places / "Deep").mkdir()
    (places / "Deep" / "config.json").write_text("[" * 100_000)
    assert main(["model", "add", "Deep"]) == 3
    assert "cannot be read as JSON" in capsys.readouterr().err


def test_a_quantized_checkpoint_is_planned_as_it_is_without_a_word_in_the_profile(
    places: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(places / "plain")
    written(places / "awq", AWQ)
    plans = {name: planned(f"id: acme/{name}, path: {name}", capsys, places) for name in ("plain", "awq")}
    launches = {name: plan["lanes"][0]["launch"] for name, (_, plan, _) in plans.items()}
    assert {name: launch["quantization"] for name, launch in launches.items()} == {"plain": "bf16", "awq": "int4"}


def test_a_checkpoint_of_another_precision_than_the_profile_says_is_refused(
    places: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(places / "awq", AWQ)
    code, _, error = planned("id: acme/awq, path: awq, quantization: fp8", capsys, places)
    assert code == 3
    assert "is int4 for the most part, and the profile says fp8" in error


def test_a_model_is_added_from_a_directory_and_then_planned_by_its_id(
    places: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, error = planned("id: acme/Big-AWQ", capsys, places)
    assert code == 3
    assert "fleetctl model add" in error
    assert main(["model", "add", str(written(places / "big", AWQ)), "--id", "acme/Big-AWQ"]) == 0
    assert "acme/Big-AWQ" in capsys.readouterr().out
    assert load_catalogue().models["acme/Big-AWQ"].params == 7_615_616_512
    code, plan, _ = planned("id: acme/Big-AWQ", capsys, places)
    assert (code, plan["lanes"][0]["launch"]["quantization"]) == (0, "int4")


def test_what_is_in_the_catalogue_is_kept_unless_forced_and_comments_are_not_lost(
    places: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = str(written(places / "big"))
    assert main(["model", "add", source, "--id", "acme/a"]) == 0
    assert main(["model", "add", source, "--id", "acme/b"]) == 0
    assert main(["model", "add", source, "--id", "acme/a"]) == 3
    assert "in the catalogue already" in capsys.readouterr().err
    assert main(["model", "add", source, "--id", "acme/a", "--force"]) == 0
    assert {"acme/a", "acme/b"} <= load_catalogue().models.keys()
    own = places / "config" / "fleetctl" / "profiles" / "models.yaml"
    own.write_text(f"# mine\n{own.read_text()}")
    assert main(["model", "add", source, "--id", "acme/c"]) == 3
    assert own.read_text().startswith("# mine")


def test_a_hub_id_is_found_in_the_cache_of_this_machine(places: Path) -> None:
    written(places / "cache" / "hub" / "models--acme--Cached" / "snapshots" / "abc", AWQ)
    assert main(["model", "add", "acme/Cached"]) == 0
    assert load_catalogue().models["acme/Cached"].native_precision is Precision.INT4


@contextmanager
def hub(status: int, body: bytes, seen: list[tuple[str, str | None]]) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append((self.path, self.headers.get("authorization")))
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=10)


def test_a_hub_id_is_fetched_with_the_token_and_the_token_is_nowhere_kept(
    places: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[tuple[str, str | None]] = []
    monkeypatch.setenv("HF_TOKEN", "hf_of_a_test")
    with hub(200, json.dumps(QWEN | {"quantization_config": AWQ}).encode(), seen) as url:
        monkeypatch.setenv("HF_ENDPOINT", url)
        assert main(["model", "add", "acme/Remote"]) == 0
    assert seen == [("/acme/Remote/resolve/main/config.json", "Bearer hf_of_a_test")]
    assert load_catalogue().models["acme/Remote"].source == "config.json of acme/Remote"
    kept = "".join(path.read_text() for path in (places / "config").rglob("*.yaml"))
    assert "hf_of_a_test" not in kept + capsys.readouterr().out


@pytest.mark.parametrize(
    ("status", "body", "code", "says"),
    [
        (401, b"", 13, "gated or private"), (403, b"", 13, "accept its licence"), (404, b"", 8, "no config.json"),
        (429, b"", 10, "try again in some minutes"), (500, b"", 10, "answers 500"), (200, b"<html>", 10, "no JSON"), (200, b'{"model_type": "mamba"}', 3, "'mamba' is not known"),
    ],
)  # fmt: skip
def test_what_a_hub_refuses_is_explained(  # what is sent, and what is made of it
    status: int,
    body: bytes,
    code: int,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with hub(status, body, []) as url:
        monkeypatch.setenv("HF_ENDPOINT", url)
        assert main(["model", "add", "acme/Gated"]) == code
    assert says in capsys.readouterr().err
    assert "acme/Gated" not in load_catalogue().models


def test_a_revision_is_asked_for_by_its_name_and_is_no_part_of_the_models(
    places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, str | None]] = []
    (places / "cache").mkdir()
    (places / "cache" / "token").write_text("hf_of_a_login\n")
    with hub(200, json.dumps(QWEN).encode(), seen) as url:
        monkeypatch.setenv("HF_ENDPOINT", f"{url}/")
        assert main(["model", "add", "acme/Remote@refs/pr/1"]) == 0
    assert seen == [("/acme/Remote/resolve/refs%2Fpr%2F1/config.json", "Bearer hf_of_a_login")]
    assert "acme/Remote" in load_catalogue().models


def test_a_hub_that_may_not_be_asked_is_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[tuple[str, str | None]] = []
    with hub(200, json.dumps(QWEN).encode(), seen) as url:
        monkeypatch.setenv("HF_ENDPOINT", url)
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        assert main(["model", "add", "acme/Remote"]) == 8
    assert not seen
    assert "HF_HUB_OFFLINE" in capsys.readouterr().err


def test_what_is_neither_a_path_nor_a_hub_id_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["model", "add", "./nowhere"]) == 8
    assert "no directory, no config.json and no hub id" in capsys.readouterr().err
