"""Write an EAGLE and an EAGLE-3 head of random weights for the tiny model: make_tiny_heads.py MODEL_DIR DIR.

It runs inside the engine environment, as make_tiny_model.py does. What such a head guesses is noise, so nearly nothing of it
is accepted; whether an engine loads one, drafts by it and still says what its model says is the same as with a trained one.
"""

import json
import sys
from pathlib import Path

# These live in the engine environment, not in the one the type checker sees.
import torch  # type: ignore[import-not-found]
from safetensors.torch import load_file, save_file  # type: ignore[import-not-found]

ARCHITECTURES = {"eagle": "LlamaForCausalLM", "eagle3": "LlamaForCausalLMEagle3"}
_AUX_LAYERS = 3  # of the model, whose states an EAGLE-3 head reads


def write_head(method: str, model: Path, directory: Path) -> None:
    """Write one head: a decoder layer of the model's own shape, and what joins its input to the model's states."""
    config = json.loads((model / "config.json").read_text())
    config |= {"architectures": [ARCHITECTURES[method]], "num_hidden_layers": 1, "tie_word_embeddings": False}
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    heads, vocabulary = config["num_attention_heads"] * config["head_dim"], config["vocab_size"]
    is_third = method == "eagle3"
    layer, wide = ("midlayer", 2 * hidden) if is_third else ("layers.0", hidden)
    torch.manual_seed(0)

    def noise(*shape: int) -> torch.Tensor:
        return (0.02 * torch.randn(*shape)).to(torch.bfloat16)

    weights = {
        **{f"{layer}.self_attn.{name}_proj.weight": noise(heads, wide) for name in "qkv"},
        f"{layer}.self_attn.o_proj.weight": noise(hidden, heads),
        **{f"{layer}.mlp.{name}_proj.weight": noise(inner, hidden) for name in ("gate", "up")},
        f"{layer}.mlp.down_proj.weight": noise(hidden, inner),
        f"{layer}.post_attention_layernorm.weight": torch.ones(hidden, dtype=torch.bfloat16),
        "fc.weight": noise(hidden, (_AUX_LAYERS if is_third else 2) * hidden),
    }
    if is_third:
        config |= {
            "draft_vocab_size": vocabulary,
            "target_hidden_size": hidden,
            "eagle_aux_hidden_state_layer_ids": [0, 1, 2],
        }
        ones = dict.fromkeys((f"{layer}.input_layernorm.weight", f"{layer}.hidden_norm.weight", "norm.weight"))
        weights |= {name: torch.ones(hidden, dtype=torch.bfloat16) for name in ones}
        weights |= {"lm_head.weight": noise(vocabulary, hidden)}
    else:
        weights["embed_tokens.weight"] = load_file(model / "model.safetensors")["model.embed_tokens.weight"].clone()
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    for each in ARCHITECTURES:
        write_head(each, Path(sys.argv[1]), Path(sys.argv[2]) / each)
