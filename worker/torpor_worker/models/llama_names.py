"""The tensors of a Llama checkpoint and the layers that hold them. A table, written as loops.

Layers are named by the prefix they were built with; a name may have several candidates, of which a
rank takes the one it has.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torpor_protocol.config import ModelConfig
from torpor_worker.layers.loadable import Part

EMBEDDING = "model.embed_tokens"
HEAD = "lm_head"
NORM = "model.norm"


@dataclass(frozen=True)
class Entry:
    """``name`` in the checkpoint; ``layers``: prefixes of the layers that can hold it."""

    name: str
    layers: tuple[str, ...]
    part: Part


def checkpoint_entries(model: ModelConfig) -> Iterator[Entry]:
    """Every tensor that must be there. The largest first: the form in which a layer is stored may
    need a copy while it is made, which costs least before the others are in."""
    if model.tie_word_embeddings:
        # Where both are on one rank the head has the weight and the embedding reads it there.
        yield Entry(f"{EMBEDDING}.weight", (HEAD, EMBEDDING), Part("weight"))
    else:
        yield Entry(f"{HEAD}.weight", (HEAD,), Part("weight"))
        yield Entry(f"{EMBEDDING}.weight", (EMBEDDING,), Part("weight"))
    for index in range(model.num_layers):
        yield from _layer_entries(f"model.layers.{index}", model)
    yield Entry(f"{NORM}.weight", (NORM,), Part("weight"))


def _layer_entries(layer: str, model: ModelConfig) -> Iterator[Entry]:
    attention, mlp = f"{layer}.self_attn", f"{layer}.mlp"
    projections = [
        (f"{attention}.{section}_proj", f"{attention}.qkv_proj", section, model.attention_bias)
        for section in ("q", "k", "v")
    ]
    projections.append((f"{attention}.o_proj", f"{attention}.o_proj", "", model.attention_bias))
    projections += [
        (f"{mlp}.{section}_proj", f"{mlp}.gate_up_proj", section, model.mlp_bias)
        for section in ("gate", "up")
    ]
    projections.append((f"{mlp}.down_proj", f"{mlp}.down_proj", "", model.mlp_bias))
    for norm in ("input_layernorm", "post_attention_layernorm"):
        yield Entry(f"{layer}.{norm}.weight", (f"{layer}.{norm}",), Part("weight"))
    for name, holder, section, bias in projections:
        yield Entry(f"{name}.weight", (holder,), Part("weight", section))
        if bias:
            yield Entry(f"{name}.bias", (holder,), Part("bias", section))
