"""Llama: the decoder that most open models are variations of.

Written for this rank only: the embedding on the first stage, the norm and head on the last, this
stage's layers between. Batching, caches and sampling are the runner's.
"""

from __future__ import annotations

import re

from torch import Tensor, nn

from torpor_protocol.config import EngineConfig
from torpor_worker.layers.activation import silu_and_mul
from torpor_worker.layers.attention_interface import AttentionRun
from torpor_worker.layers.building import current_pool
from torpor_worker.layers.linear import (
    MergedColumnParallelLinear,
    QKVParallelLinear,
    RowParallelLinear,
)
from torpor_worker.layers.loadable import ShardedModule
from torpor_worker.layers.norm import RMSNorm
from torpor_worker.layers.rotary import RotaryEmbedding, rotate
from torpor_worker.layers.vocab import ParallelLMHead, VocabParallelEmbedding
from torpor_worker.models.base import ShardedModel, Target
from torpor_worker.models.llama_names import EMBEDDING, HEAD, NORM, checkpoint_entries
from torpor_worker.parallel.groups import ParallelGroups
from torpor_worker.parallel.stages import stage_layers

# Old checkpoints carry the rotary table as a buffer; it follows from the config.
_ROTARY_BUFFER = re.compile(r"(model\.)?(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq")


class LlamaAttention(nn.Module):
    """``index``: of the layer among this rank's layers, as the KV cache counts."""

    def __init__(
        self, index: int, *, config: EngineConfig, groups: ParallelGroups, prefix: str
    ) -> None:
        super().__init__()
        model = config.model
        bias = model.attention_bias
        self._index = index
        self._head_dim = model.head_dim
        self.qkv_proj = QKVParallelLinear(
            bias=bias, config=config, groups=groups, prefix=f"{prefix}.qkv_proj"
        )
        self.o_proj = RowParallelLinear(
            model.num_heads * model.head_dim,
            model.hidden_size,
            bias=bias,
            config=config,
            groups=groups,
            prefix=f"{prefix}.o_proj",
        )
        self._rotated = self.qkv_proj.num_heads + self.qkv_proj.num_kv_heads

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, attention: AttentionRun) -> Tensor:
        heads = self.qkv_proj(x).view(x.shape[0], -1, self._head_dim)
        # q and k lie side by side and turn alike: one rotation for both.
        qk, v = heads[:, : self._rotated], heads[:, self._rotated :]
        qk = rotate(qk, cos, sin)
        q, k = qk[:, : self.qkv_proj.num_heads], qk[:, self.qkv_proj.num_heads :]
        out: Tensor = self.o_proj(attention(self._index, q, k, v))
        return out


class LlamaMLP(nn.Module):
    def __init__(self, *, config: EngineConfig, groups: ParallelGroups, prefix: str) -> None:
        super().__init__()
        model = config.model
        sizes = {"gate": model.intermediate_size, "up": model.intermediate_size}
        self.gate_up_proj = MergedColumnParallelLinear(
            model.hidden_size,
            sizes,
            bias=model.mlp_bias,
            config=config,
            groups=groups,
            prefix=f"{prefix}.gate_up_proj",
        )
        self.down_proj = RowParallelLinear(
            model.intermediate_size,
            model.hidden_size,
            bias=model.mlp_bias,
            config=config,
            groups=groups,
            prefix=f"{prefix}.down_proj",
        )

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(silu_and_mul(self.gate_up_proj(x)))
        return out


class LlamaDecoderLayer(nn.Module):
    def __init__(
        self, index: int, *, config: EngineConfig, groups: ParallelGroups, prefix: str
    ) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config=config, prefix=f"{prefix}.input_layernorm")
        self.self_attn = LlamaAttention(
            index, config=config, groups=groups, prefix=f"{prefix}.self_attn"
        )
        self.post_attention_layernorm = RMSNorm(
            config=config, prefix=f"{prefix}.post_attention_layernorm"
        )
        self.mlp = LlamaMLP(config=config, groups=groups, prefix=f"{prefix}.mlp")

    def forward(self, hidden: Tensor, cos: Tensor, sin: Tensor, attention: AttentionRun) -> Tensor:
        # The blocks' outputs are new tensors, so the residual is added into them; the incoming
        # hidden state may be the caller's buffer and is left alone.
        normed = self.input_layernorm(hidden)
        hidden = self.self_attn(normed, cos, sin, attention).add_(hidden)
        out: Tensor = self.mlp(self.post_attention_layernorm(hidden)).add_(hidden)
        return out


class LlamaForCausalLM(ShardedModel):
    """The whole stack, cut to this rank's stage."""

    def __init__(self, *, config: EngineConfig, groups: ParallelGroups, prefix: str = "") -> None:
        super().__init__(config=config, groups=groups, prefix=prefix)
        model = config.model
        first, last = groups.is_first_stage, groups.is_last_stage
        self._at = at = f"{prefix}." if prefix else ""
        self.lm_head: ParallelLMHead | None = None
        self.norm: RMSNorm | None = None
        self.embed_tokens: VocabParallelEmbedding | None = None
        if last:
            self.lm_head = ParallelLMHead(config=config, groups=groups, prefix=at + HEAD)
            self.norm = RMSNorm(config=config, prefix=at + NORM)
        if first:
            self.embed_tokens = VocabParallelEmbedding(
                head=self.lm_head if model.tie_word_embeddings else None,
                config=config,
                groups=groups,
                prefix=at + EMBEDDING,
            )
        stage = stage_layers(model.num_layers, groups.pp_size, groups.pp_rank)
        self.layers = nn.ModuleList(
            LlamaDecoderLayer(
                index, config=config, groups=groups, prefix=f"{at}model.layers.{layer}"
            )
            for index, layer in enumerate(stage)
        )
        self.rotary_emb = RotaryEmbedding(config=config, device=current_pool().device)

    def forward(
        self,
        input_ids: Tensor | None,
        positions: Tensor,
        attention: AttentionRun,
        hidden: Tensor | None = None,
    ) -> Tensor:
        if self.embed_tokens is not None:
            hidden = self.embed_tokens(input_ids)
        if hidden is None:
            raise ValueError("a later pipeline stage needs the hidden state of the one before")
        cos, sin = self.rotary_emb(positions)
        for layer in self.layers:
            hidden = layer(hidden, cos, sin, attention)
        return hidden if self.norm is None else self.norm(hidden)

    def compute_logits(self, hidden: Tensor) -> Tensor | None:
        return None if self.lm_head is None else self.lm_head.logits(hidden)

    def targets(self) -> dict[str, Target | None]:
        layers = {
            layer.prefix.removeprefix(self._at): layer
            for layer in self.modules()
            if isinstance(layer, ShardedModule) and layer.parts
        }
        targets: dict[str, Target | None] = {}
        for entry in checkpoint_entries(self.config.model):
            held = [layers[prefix] for prefix in entry.layers if prefix in layers]
            targets[entry.name] = Target(held[0], entry.part) if held else None
        return targets

    def ignores(self, name: str) -> bool:
        if _ROTARY_BUFFER.fullmatch(name):
            return True
        return self.config.model.tie_word_embeddings and name == "lm_head.weight"
