"""Write a random-weight Llama with a byte-level tokenizer, small enough to serve on a CPU: make_tiny_model.py DIR.

It runs inside the engine environment and needs no network. What it says is noise, but real noise: real weights, real
attention, real KV blocks, so that everything around the model is exercised as with a real one.
"""

import sys
from pathlib import Path

# These live in the engine environment, not in the one the type checker sees.
import torch  # type: ignore[import-not-found]
from tokenizers import (  # type: ignore[import-not-found]
    Tokenizer,
    decoders,
    models,
    pre_tokenizers,
    trainers,
)
from transformers import (  # type: ignore[import-not-found]
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

VOCABULARY = 512
HIDDEN = 64
LAYERS = 2
HEAD_DIM = 32
CONTEXT_TOKENS_MAX = 16384

_CHAT_TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"


def write_tokenizer(directory: Path) -> None:
    """Write a byte-level BPE that covers every byte, so any prompt can be encoded."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<pad>", "<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(["the quick brown fox jumps over the lazy dog " * 20], trainer)
    special = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, **special)
    tokenizer.chat_template = _CHAT_TEMPLATE
    tokenizer.save_pretrained(directory)


def write_model(directory: Path) -> int:
    """Write the weights and config; the same every time. Return the parameter count."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=2 * HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HIDDEN // HEAD_DIM,
        num_key_value_heads=HIDDEN // HEAD_DIM,
        head_dim=HEAD_DIM,
        max_position_embeddings=CONTEXT_TOKENS_MAX,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(directory)
    return sum(parameter.numel() for parameter in model.parameters())


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    write_tokenizer(target)
    print(f"tiny model: {write_model(target)} parameters in {target}")  # noqa: T201  # a script's product
