"""Which causal language models of transformers read their own future?

Builds every class of the causal-LM mapping from a small random configuration, audits each in a process of
its own with a time-out, and writes ``census/transformers-<version>.json`` after each, so that a run that
was stopped goes on where it was.

    python census/census.py                        # all that the file does not hold yet
    python census/census.py DogeForCausalLM ...    # these, again
    python census/page.py                          # book/census.md from the files
"""

import inspect
import json
import logging
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import torch
import transformers
from rows import LENGTH, VOCABULARY, Row, audited, not_built, tabulate
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.models.llama import LlamaForCausalLM  # noqa: F401  what most import, once for all forks

from fqk.audit import audit

FILE = Path(__file__).parent / f"transformers-{transformers.__version__}.json"

# Small values of what configurations have in common; a configuration takes those that it knows.
HEADS = "num_attention_heads n_head num_heads n_heads attention_heads decoder_attention_heads \
encoder_attention_heads swa_num_attention_heads linear_num_value_heads \
linear_num_key_heads index_n_heads indexer_n_heads n_mamba_heads linear_num_heads \
num_decoder_attention_heads num_encoder_attention_heads"
GROUPS = "num_key_value_heads num_kv_heads swa_num_key_value_heads indexer_kv_heads"
WIDTHS = "hidden_size d_model n_embd dim word_embed_proj_dim embedding_size attention_hidden_size emb_dim \
embedding_dim input_embedding_size output_embedding_size lru_width backbone_hidden_size"
HEAD_WIDTHS = "head_dim v_head_dim qk_rope_head_dim qk_nope_head_dim index_head_dim linear_key_head_dim \
linear_value_head_dim mamba_head_dim mamba_d_head swa_head_dim swa_v_head_dim linear_head_dim d_kv d_head \
attention_head_size indexer_head_dim attention_head_dim kv_channels dim_head global_head_dim rotary_dim"
INNER = "intermediate_size n_inner ffn_dim decoder_ffn_dim encoder_ffn_dim moe_intermediate_size d_inner \
shared_expert_intermediate_size shared_intermediate_size intermediate_size_mlp feed_forward_size d_ff dim_ff \
ffn_hidden_size expert_ffn_hidden_size dense_intermediate_size prefix_dense_intermediate_size \
moe_shared_expert_intermediate_size shared_experts_intermediate_size mamba_d_ssm block_ffn_dim"
LAYERS = "num_hidden_layers n_layer num_layers n_layers decoder_layers encoder_layers num_decoder_layers \
num_encoder_layers num_blocks"
EXPERTS = "num_experts n_routed_experts num_local_experts moe_num_experts"
BLOCKS = "sliding_window chunk_size mamba_chunk_size block_size attention_chunk_size window_size \
local_attention_window_len attention_window_size sliding_window_size index_block_size chunk_length \
local_attn_chunk_length lsh_attn_chunk_length"
RANKS = "q_lora_rank kv_lora_rank o_lora_rank time_step_rank mamba_dt_rank mamba_d_state state_size \
ssm_state_size d_state adapter_rank"
LENGTHS = "max_position_embeddings n_positions n_ctx max_seq_len context_length max_target_positions \
original_max_position_embeddings max_source_positions"
SMALL: dict[str, Any] = {
    name: value
    for names, value in (
        (HEADS, 4),
        (GROUPS, 2),
        (WIDTHS, 32),
        (HEAD_WIDTHS, 8),
        (INNER, 64),
        (LAYERS, 4),
        (EXPERTS, 4),
        (BLOCKS, 8),
        (RANKS, 8),
        (LENGTHS, 128),
    )
    for name in names.split()
} | {
    "vocab_size": VOCABULARY,
    "initializer_range": 0.2,  # attention that is far from even shows what it attends to
    "num_experts_per_tok": 2,
    "moe_k": 2,
    "n_shared_experts": 1,
    "mamba_n_heads": 8,  # of 8, which is twice the width
    "mamba_num_heads": 8,
    "vocab_size_per_layer_input": VOCABULARY,
    "image_size": 16,
    "patch_size": 8,
    "n_group": 1,
    "topk_group": 1,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

# What single configurations need besides.
SPECIAL: dict[str, dict[str, Any]] = {
    "bailing_hybrid": {"layer_group_size": 2},
    "bamba": {"attn_layer_indices": [1, 3]},
    "deepseek_v4": {  # more blocks than the indexer picks, and several of the larger ones within the window
        "layer_types": [
            "sliding_attention",
            "compressed_sparse_attention",
            "heavily_compressed_attention",
            "compressed_sparse_attention",
        ],
        "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 8},
        "index_topk": 2,
    },
    "gemma3n_text": {"num_kv_shared_layers": 0},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2},
    "gpt_neo": {"attention_types": [[["global", "local"], 2]]},
    "granitemoehybrid": {"layer_types": ["linear_attention", "full_attention"] * 2},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "kimi_linear": {"layer_types": ["linear_attention", "full_attention"] * 2},
    "mamba2": {"num_heads": 8},
    "reformer": {
        "is_decoder": True,
        "axial_pos_embds": False,
        "attn_layers": ["local", "lsh"] * 2,
        "num_buckets": 4,
    },
    "xmod": {"default_language": "en_XX"},
    "zaya": {"num_experts_per_tok": 1},
    "zamba2": {
        "layers_block_type": ["mamba", "hybrid"] * 2,
        "layer_types": None,
        "n_mamba_heads": 8,
        "attention_head_dim": 16,
        "attention_hidden_size": 64,
    },
}


def small(config_class: type, names: dict[str, Any]) -> Any:
    """The configuration with every value that it knows of ``names``, in its parts too."""
    known = inspect.signature(config_class.__init__).parameters
    if "kv_lora_rank" in known:  # latent attention has no groups
        names = names | dict.fromkeys(GROUPS.split(), 4)
    parts = {}
    if subs := getattr(config_class, "sub_configs", None):
        whole = config_class()
        parts = {name: small(type(getattr(whole, name)), names) for name in subs if hasattr(whole, name)}
        parts = {name: part for name, part in parts.items() if part is not None}
    if config_class is type(None) or config_class.__name__ == "DbrxAttentionConfig":
        return None
    return config_class(**{name: value for name, value in names.items() if name in known}, **parts)


def build(model_type: str, **more: Any) -> torch.nn.Module:
    """A small random model of the type, in evaluation mode."""
    config = small(CONFIG_MAPPING[model_type], SMALL | SPECIAL.get(model_type, {}) | more)
    cls = getattr(transformers, MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[model_type])
    if cls.config_class and not isinstance(config, cls.config_class):
        config = config.get_text_config()
    torch.manual_seed(0)
    return cls(config).eval()


def examine(name: str) -> Row:
    """The row of ``Class (model type)``."""
    model_type = name.split("(")[1].rstrip(")")
    start = time.perf_counter()
    try:
        model = build(model_type)
    except Exception as error:  # whatever a class raises that the small values do not fit
        return not_built(error)
    row = audited(model, inputs=SPECIAL_INPUTS.get(model_type))
    row["seconds"] = round(time.perf_counter() - start, 1)
    if (
        row["verdict"] == "causal"
        and "sliding_window" in inspect.signature(CONFIG_MAPPING[model_type]).parameters
    ):
        # a window makes the model build a mask that it may otherwise leave to the attention function
        row["without_window"] = again(model_type, sliding_window=None)
        if row["without_window"].startswith("leaks"):
            row |= {"verdict": "leaks", "reason": row["without_window"]}
    if row["verdict"] == "leaks" and getattr(model.config, "is_decoder", None) is False:
        row["as_decoder"] = again(model_type, is_decoder=True)
    return row


def again(model_type: str, **more: Any) -> str:
    """The verdict of a screen on another configuration."""
    try:
        found = audit(build(model_type, **more), vocab_size=VOCABULARY, seq_len=LENGTH, depth="screen")
    except Exception as error:
        return f"not run: {error}"[:200]
    return f"leaks: {found.reason}" if found.verdict == "leaks" else found.verdict


SPECIAL_INPUTS: dict[str, dict[str, Any]] = {"dory": {"use_cache": False}}  # its cache outgrows a window of 8


def main(chosen: list[str]) -> None:
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    held = json.loads(FILE.read_text()) if FILE.exists() else {}
    entries = {f"{cls} ({kind})": {cls, kind} for kind, cls in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.items()}
    names = [name for name, ids in entries.items() if (ids & set(chosen) if chosen else name not in held)]
    tabulate(FILE, examine, names)


if __name__ == "__main__":
    main(sys.argv[1:])
