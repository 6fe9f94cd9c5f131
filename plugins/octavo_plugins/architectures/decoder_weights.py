"""Which checkpoint tensors make which parameters of a Llama-like decoder, and one layer's share.

Knows Hugging Face's tensor names and shapes. Does not know files, block types or arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from octavo.interfaces.architecture import ParameterSpec
from octavo.interfaces.attention import AttentionSpec
from octavo_plugins.architectures.decoder_split import is_head_split

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import Tensor

    from octavo_plugins.architectures.decoder_config import Bias, DecoderConfig

Split = Literal["none", "rows", "columns"]

EMBEDDING = "embedding"
FINAL_NORM = "final_norm"
HEAD = "head"
#: the parameters of a layer; each is loaded as `layers.<number>.<name>`
PARAMETERS = (
    "input_norm",
    "qkv",
    "qkv_bias",
    "q_norm",
    "k_norm",
    "output",
    "output_bias",
    "post_norm",
    "gate_up",
    "gate_up_bias",
    "down",
    "down_bias",
)
#: how linears and their biases are split between ranks: what leads back into the stream takes a
#: share of the inputs, and its outputs, the sums over ranks, are whole
_SPLITS: Mapping[str, tuple[Split, Split]] = MappingProxyType(
    {
        "qkv": ("rows", "rows"),
        "output": ("columns", "none"),
        "gate_up": ("rows", "rows"),
        "down": ("columns", "none"),
    }
)


@dataclass(slots=True)
class Layer:
    """One layer, ready to run: its packed weights and how it attends."""

    attention: AttentionSpec
    input_norm: Tensor  # [hidden]
    qkv: Any  # [(heads + 2 * kv_heads) * head_dim, hidden]
    qkv_bias: Tensor | None
    q_norm: Tensor | None  # [head_dim]
    k_norm: Tensor | None  # [head_dim]
    output: Any  # [hidden, heads * head_dim]
    output_bias: Tensor | None
    post_norm: Tensor  # [hidden]
    gate_up: Any  # [2 * intermediate, hidden]
    gate_up_bias: Tensor | None
    down: Any  # [hidden, intermediate]
    down_bias: Tensor | None
    next_norm: Tensor  # [hidden]: the next layer's input norm, or the final norm
    table: Any = None  # of the rotary embedding; None without one


def decoder_parameters(config: DecoderConfig, size: int = 1) -> Iterator[ParameterSpec]:
    """Yield every parameter; q, k and v are one linear, and so are gate and up.

    Shapes are the checkpoint's. With `size` ranks the head of a tied model is a parameter of its
    own where it is split: the same tensor as the embedding, of which every rank has a share.
    """
    hidden = config.hidden_size
    vocabulary = (config.vocab_size, hidden)
    yield ParameterSpec(EMBEDDING, "embedding", ("model.embed_tokens.weight",), (vocabulary,))
    for layer in range(config.num_layers):
        yield from _layer_parameters(config, layer)
    yield ParameterSpec(FINAL_NORM, "vector", ("model.norm.weight",), ((hidden,),))
    is_split = is_head_split(config, size)
    if is_split or not config.is_tied:
        source = "model.embed_tokens.weight" if config.is_tied else "lm_head.weight"
        split: Split = "rows" if is_split else "none"
        yield ParameterSpec(HEAD, "linear", (source,), (vocabulary,), split=split)


def build_layer(
    config: DecoderConfig, weights: Mapping[str, Any], layer: int, rank: int = 0
) -> Layer:
    """Return layer number `layer` with its weights; a parameter that was not loaded is None.

    `config` has the sizes that this rank computes. Biases of sums over ranks are rank 0's alone.
    """
    spec = AttentionSpec(
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        scale=config.attention_scale,
        window=config.windows[layer],
        softcap=config.attention_softcap,
    )
    is_last = layer + 1 == config.num_layers
    loaded: dict[str, Any] = {name: weights.get(f"layers.{layer}.{name}") for name in PARAMETERS}
    if rank > 0:
        loaded["output_bias"] = loaded["down_bias"] = None
    return Layer(
        attention=spec,
        next_norm=weights[FINAL_NORM if is_last else f"layers.{layer + 1}.input_norm"],
        **loaded,
    )


def _layer_parameters(config: DecoderConfig, layer: int) -> Iterator[ParameterSpec]:
    prefix = f"model.layers.{layer}."
    name = f"layers.{layer}."
    hidden, intermediate = config.hidden_size, config.intermediate_size
    heads, kv_heads = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim

    def norm(parameter: str, source: str, size: int) -> ParameterSpec:
        return ParameterSpec(name + parameter, "vector", (f"{prefix}{source}.weight",), ((size,),))

    def linear(
        parameter: str, sources: dict[str, int], columns: int, bias: Bias
    ) -> Iterator[ParameterSpec]:
        modules, rows = [prefix + source for source in sources], list(sources.values())
        split, bias_split = _SPLITS[parameter]
        names = tuple(f"{module}.weight" for module in modules)
        shapes = tuple((count, columns) for count in rows)
        yield ParameterSpec(name + parameter, "linear", names, shapes, split=split)
        if bias != "no":
            yield ParameterSpec(
                f"{name}{parameter}_bias",
                "vector",
                tuple(f"{module}.bias" for module in modules),
                tuple((count,) for count in rows),
                is_optional=bias == "maybe",
                split=bias_split,
            )

    yield norm("input_norm", "input_layernorm", hidden)
    qkv = {"self_attn.q_proj": heads, "self_attn.k_proj": kv_heads, "self_attn.v_proj": kv_heads}
    yield from linear("qkv", qkv, hidden, config.qkv_bias)
    if config.has_qk_norm:
        yield norm("q_norm", "self_attn.q_norm", config.head_dim)
        yield norm("k_norm", "self_attn.k_norm", config.head_dim)
    yield from linear("output", {"self_attn.o_proj": hidden}, heads, config.output_bias)
    yield norm("post_norm", "post_attention_layernorm", hidden)
    gate_up = {"mlp.gate_proj": intermediate, "mlp.up_proj": intermediate}
    yield from linear("gate_up", gate_up, hidden, config.mlp_bias)
    yield from linear("down", {"mlp.down_proj": hidden}, intermediate, config.mlp_bias)
