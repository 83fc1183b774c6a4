"""The language model: a Qwen2 backbone with speech tokens at both ends (§3).

The keys of the state dict are those of the published ``llm.pt`` (§3.6). Keys and values of past positions live in a cache
that the caller owns: ``[layers, 2, slots, kv_heads, positions, head_dim]``, one slot a sequence, written in place at each
row's own positions and handed back. Nothing here asks a tensor for its value, so a step can be captured in a CUDA graph.

The last position of every slot is scratch: padding and inactive rows write there and nobody reads it as past. A slot
thus holds one position less than the cache is long, see :func:`cache_capacity`. Stale numbers of a slot's former sequence
need not be cleared, for a row sees no position after its own.

Runs on: the thread that owns the device.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from cc_tts.engines.cosyvoice.model.networks import fused
from cc_tts.engines.cosyvoice.model.networks.fused import InputNorm, Turns
from cc_tts.engines.cosyvoice.model.networks.layers import JoinedLinears, untouched_zeros
from cc_tts.engines.cosyvoice.model.networks.lm.inputs import LmInput, Table
from cc_tts.engines.cosyvoice.model.networks.pages import Pages
from cc_tts.engines.cosyvoice.model.sizes import LmConfig

SPLIT_KEYS: Final = 128
"""The number of keys that one program of a kernel attends to: a row of a decode step has only two heads of them, and a card
has a hundred processors. Unmeasured.
"""


def cache_capacity(cache: Tensor) -> int:
    """Return how many positions of a sequence a slot of ``cache`` holds; the one after them is scratch."""
    return cache[0].shape[-2] - 1


def inverse_frequencies(head_dim: int, theta: float) -> Tensor:
    """Angle per position of each pair (i, i + half), ``theta ** (-2 i / head_dim)`` (§3.7); made on the CPU in any case."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32, device="cpu") / head_dim
    return 1.0 / theta**exponents  # [head_dim / 2]


def rotation(positions: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine for ``positions`` [B, T], ready for :func:`rotate`: the first half of the sines is negated."""
    angles = positions.to(torch.float32)[..., None] * frequencies  # [B, T, head_dim / 2]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)  # [B, T, head_dim] each


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn the heads ``x`` [B, T, heads, head_dim] to their positions; float32 inside, the type of ``x`` outside."""
    wide = x.to(torch.float32)
    swapped = wide.roll(wide.shape[-1] // 2, dims=-1)
    return torch.addcmul(wide * cos[:, :, None], swapped, sin[:, :, None]).to(x.dtype)


@dataclass(frozen=True, slots=True)
class _Places:
    """Where the new positions of a step lie; the same for all layers."""

    cos: Tensor  # [B, T, head_dim]
    sin: Tensor  # [B, T, head_dim]
    slots: Tensor  # [B, 1]: the slot of each row
    written: Tensor  # [B, T]: the position in the slot that is written
    starts: Tensor  # [B]: the position of the first new one
    bias: (
        Tensor | None
    )  # [B, 1, T or groups * T, K]: added to scores, -inf where a query does not see; None with a kernel
    gather: bool  # whether rows are other than the slots from the first on
    num_keys: int  # K
    is_fused: bool  # the parts of a layer are

    def turns(self, num_heads: int) -> Turns:
        """How the first heads of queries and keys are turned."""
        half = self.cos.shape[-1] // 2
        return Turns(self.cos[..., :half], self.sin[..., half:], num_heads, is_interleaved=False)


class Attention(nn.Module):
    """Grouped-query attention over a slot of the cache (§3.7): several query heads share one head of keys and values."""

    def __init__(self, config: LmConfig) -> None:
        super().__init__()
        self.num_kv_heads = config.num_kv_heads
        self.head_dim = config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, config.query_size)
        self.k_proj = nn.Linear(config.hidden_size, config.key_size)
        self.v_proj = nn.Linear(config.hidden_size, config.key_size)
        self.o_proj = nn.Linear(config.query_size, config.hidden_size, bias=False)
        self._project = JoinedLinears(self.q_proj, self.k_proj, self.v_proj)

    def forward(self, x: Tensor, cache: Tensor, places: _Places) -> Tensor:
        """Mix ``x`` [B, T, hidden] with the past in this layer's ``cache`` [2, slots, kv_heads, positions, D]."""
        num_rows, num_new, _ = x.shape
        heads = self._project(x).view(num_rows, num_new, -1, self.head_dim)  # [B, T, heads + 2 kv_heads, D]
        rotated, values = heads[:, :, : -self.num_kv_heads], heads[:, :, -self.num_kv_heads :]
        rotated = rotate(rotated, places.cos, places.sin)
        queries, keys = rotated[:, :, : -self.num_kv_heads], rotated[:, :, -self.num_kv_heads :]

        cache[:, places.slots, :, places.written] = torch.stack((keys, values), dim=2)
        if places.bias is None:
            return cast("Tensor", self.o_proj(_in_place("attend", queries, cache, places)))
        seen = cache[:, :, :, : places.num_keys]
        seen = seen[:, places.slots[:, 0]] if places.gather else seen[:, :num_rows]  # [2, B, kv_heads, K, D]

        # Query heads that share a key head become more queries of that head: keys and values are never repeated.
        queries = queries.transpose(1, 2).reshape(num_rows, self.num_kv_heads, -1, self.head_dim)
        mixed = functional.scaled_dot_product_attention(queries, seen[0], seen[1], attn_mask=places.bias)
        mixed = mixed.reshape(num_rows, -1, num_new, self.head_dim).transpose(1, 2)  # [B, T, heads, D]
        return cast("Tensor", self.o_proj(mixed.reshape(num_rows, num_new, -1)))  # [B, T, hidden]

    def added_to(self, x: Tensor, norm: InputNorm, cache: Tensor, places: _Places) -> Tensor:
        """Return ``x`` with the output for the normed ``x`` added."""
        slots = Pages(_as_pages(cache))
        written = places.slots * cache.shape[3] + places.written
        turns = places.turns(self.o_proj.in_features // self.head_dim)
        queries = fused.projected(x, norm, self._project, slots, written, turns)
        queries = queries.view(*x.shape[:2], -1, self.head_dim)
        return fused.mixed_onto(x, _in_place("attend_in_parts", queries, cache, places), self.o_proj)


def _as_pages(cache: Tensor) -> Tensor:
    """A layer's cache as pages: each slot is a long one."""
    return cache.permute(1, 3, 0, 2, 4)


def _in_place(kernel: str, queries: Tensor, cache: Tensor, places: _Places) -> Any:
    """Return what a kernel mixes for ``queries`` [B, T, heads, D]."""
    from cc_tts.engines.cosyvoice.model.networks import page_kernels

    return getattr(page_kernels, kernel)(
        queries.transpose(1, 2),
        _as_pages(cache),
        table=places.slots,
        starts=places.starts,
        num_keys=places.num_keys,
        chunk=1,
        split_keys=SPLIT_KEYS,
    )


class Mlp(nn.Module):
    """The gated feed-forward part of a layer (§3.7)."""

    def __init__(self, config: LmConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)
        self._project = JoinedLinears(self.gate_proj, self.up_proj)

    def forward(self, x: Tensor) -> Tensor:
        """The gated feed-forward of ``x`` [B, T, hidden]."""
        gate, up = self._project(x).chunk(2, dim=-1)
        return cast("Tensor", self.down_proj(functional.silu(gate) * up))

    def added_to(self, x: Tensor, norm: InputNorm) -> Tensor:
        """Return ``x`` with the output for the normed ``x`` added."""
        return fused.product(fused.product(x, self._project, norm=norm, activation="gated"), self.down_proj, residual=x)


class LmLayer(nn.Module):
    """One layer of the backbone: attention and feed-forward, each on the normed input and added to it."""

    def __init__(self, config: LmConfig) -> None:
        super().__init__()
        self.self_attn = Attention(config)
        self.mlp = Mlp(config)
        self.input_layernorm = nn.RMSNorm(config.hidden_size, config.norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, config.norm_eps)

    def forward(self, x: Tensor, cache: Tensor, places: _Places) -> Tensor:
        """One layer on ``x`` [B, T, hidden]."""
        if places.is_fused:
            x = self.self_attn.added_to(x, InputNorm.of(self.input_layernorm), cache, places)
            return self.mlp.added_to(x, InputNorm.of(self.post_attention_layernorm))
        x = x + self.self_attn(self.input_layernorm(x), cache, places)
        return cast("Tensor", x + self.mlp(self.post_attention_layernorm(x)))


class Backbone(nn.Module):
    """Qwen2 without its head: embeddings in, hidden states after the final norm out."""

    frequencies: Tensor

    def __init__(self, config: LmConfig) -> None:
        super().__init__()
        self.config = config
        self.in_place = False
        """Attention reads the slots where they lie, by a kernel."""
        self.fused = False
        """The parts of a layer are fused, where rows are few; only with ``in_place``."""
        self.embed_tokens = nn.Embedding(config.text_vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(LmLayer(config) for _ in range(config.num_layers))
        self.norm = nn.RMSNorm(config.hidden_size, config.norm_eps)
        frequencies = inverse_frequencies(config.head_dim, config.rope_theta)
        self.register_buffer("frequencies", frequencies, persistent=False)

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Self:  # noqa: FBT001, FBT002 - torch calls it so
        """Move or cast the weights; the angles go along and stay what they are, float32."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        frequencies = inverse_frequencies(self.config.head_dim, self.config.rope_theta)
        self.frequencies = frequencies.to(self.norm.weight.device)
        return self

    def _places(
        self, x: Tensor, starts: Tensor, num_new: Tensor, cache: Tensor, slots: Tensor | None, num_keys: int
    ) -> _Places:
        num_rows, width, _ = x.shape
        offsets = torch.arange(width, device=x.device)  # [T]
        positions = starts[:, None] + offsets  # [B, T]
        is_new = offsets < num_new[:, None]  # [B, T]
        cos, sin = rotation(positions, self.frequencies)
        bias = None if self.in_place else self._bias(positions, num_keys).to(x.dtype)
        rows = torch.arange(num_rows, device=x.device) if slots is None else slots  # [B]
        written = torch.where(is_new, positions, cache_capacity(cache))  # the position after the capacity is scratch
        is_fused = self.fused and fused.are_few(x)
        return _Places(cos, sin, rows[:, None], written, starts, bias, slots is not None, num_keys, is_fused)

    def _bias(self, positions: Tensor, num_keys: int) -> Tensor:
        visible = torch.arange(num_keys, device=positions.device) <= positions[..., None]  # [B, T, K]
        visible = visible[:, None]  # [B, 1, T, K]
        if positions.shape[1] > 1:
            visible = visible.repeat(1, 1, self.config.query_size // self.config.key_size, 1)
        return torch.where(visible, 0.0, -torch.inf)

    def forward(
        self, x: Tensor, starts: Tensor, num_new: Tensor, cache: Tensor, slots: Tensor | None, num_keys: int
    ) -> Tensor:
        """Hidden states [B, T, hidden] of the new positions ``x``; arguments as in :meth:`SpeechLm.prefill`."""
        places = self._places(x, starts, num_new, cache, slots, num_keys)
        for layer, layer_cache in zip(self.layers, cache, strict=True):
            x = layer(x, layer_cache, places)
        return cast("Tensor", self.norm(x))  # [B, T, hidden]


class SpeechLm(nn.Module):
    """Text tokens and speech tokens in, log-probabilities of the next speech token out (§3)."""

    def __init__(self, config: LmConfig) -> None:
        super().__init__()
        self.config = config
        ids = config.speech_ids
        num_special_rows, _ = ids.table_sizes
        if num_special_rows:
            self.llm_embedding = nn.Embedding(num_special_rows, config.hidden_size)
        self.speech_embedding = nn.Embedding(ids.num_rows, config.hidden_size)
        self.llm_decoder = nn.Linear(config.hidden_size, ids.num_rows, bias=bool(num_special_rows))
        self.llm = nn.ModuleDict({"model": nn.ModuleDict({"model": Backbone(config)})})  # the keys of the file

    @property
    def backbone(self) -> Backbone:
        return cast("Backbone", self.get_submodule("llm.model.model"))

    @property
    def device(self) -> torch.device:
        return self.llm_decoder.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """The type of weights, activations and cache."""
        return self.llm_decoder.weight.dtype

    @property
    def reads_in_place(self) -> bool:
        """Return whether attention reads only as many keys as a row has, whatever ``num_keys`` is."""
        return self.backbone.in_place

    def new_cache(self, num_slots: int, num_positions: int) -> Tensor:
        """Room for ``num_slots`` sequences of ``num_positions`` positions each, with the scratch position after them."""
        config = self.config
        shape = (config.num_layers, 2, num_slots, config.num_kv_heads, num_positions + 1, config.head_dim)
        return untouched_zeros(shape, self.llm_decoder.weight)

    def pack(self, inputs: Sequence[Sequence[LmInput]]) -> tuple[Tensor, Tensor, Tensor]:
        """Rows of inputs as tensors: tables [B, T], their rows [B, T] (both padded with zeros) and the lengths [B]."""
        width = max(len(row) for row in inputs)
        padded = [[*row, *[(0, 0)] * (width - len(row))] for row in inputs]
        both = torch.tensor(padded, dtype=torch.int64, device=self.device)  # [B, T, 2]
        lengths = torch.tensor([len(row) for row in inputs], dtype=torch.int64, device=self.device)
        return both[..., 0], both[..., 1], lengths

    def embed(self, tables: Tensor, rows: Tensor) -> Tensor:
        """Embeddings [B, T, hidden] of inputs that come from any of the tables (§3.1); there may be no special one."""
        x = torch.zeros((*rows.shape, self.config.hidden_size), dtype=self.dtype, device=rows.device)
        embeddings = {Table.TEXT: self.backbone.embed_tokens, Table.SPEECH: self.speech_embedding}
        if hasattr(self, "llm_embedding"):
            embeddings[Table.SPECIAL] = self.llm_embedding
        for table, embedding in embeddings.items():
            chosen = tables == int(table)  # [B, T]
            x = torch.where(chosen[..., None], embedding(torch.where(chosen, rows, 0)), x)
        return x

    def prefill(
        self,
        x: Tensor,  # embeddings [B, T, hidden], each row padded on the right
        num_new: Tensor,  # how many of the T are real, [B]
        cache: Tensor,  # keys and values of the past; written in place
        *,
        starts: Tensor | None = None,  # how many positions each row has in the cache already, [B]; none, when left out
        slots: Tensor | None = None,  # of each row, [B], all different; row i has slot i, when left out
        num_keys: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Log-probabilities [B, rows of the head] in float32 after each row's last real position, and the cache.

        A row without real positions leaves its slot as it was; its result means nothing. ``num_keys``: look at this many
        positions of the slots only, from the first, and at least ``max(starts + num_new)``; at all, when left out. It is a
        number of the host, so a bucket of it means a graph of its own.
        """
        starts = torch.zeros_like(num_new) if starts is None else starts
        num_keys = cache_capacity(cache) if num_keys is None else num_keys
        hidden = self.backbone(x, starts, num_new, cache, slots, num_keys)  # [B, T, hidden]
        if x.shape[1] > 1:
            last = (num_new - 1).clamp(min=0)[:, None, None].expand(-1, 1, hidden.shape[-1])  # [B, 1, hidden]
            hidden = hidden.gather(1, last)
        return self._log_probs(hidden[:, 0]), cache

    def decode(
        self,
        speech_ids: Tensor,  # the tokens sampled last, [B]
        starts: Tensor,
        cache: Tensor,
        *,
        active: Tensor | None = None,  # rows that are really there, [B]; the others leave their slot as it was
        num_keys: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Run one speech token of each row, rows at different lengths: :meth:`prefill` of slots from the first on."""
        num_new = torch.ones_like(starts) if active is None else active.to(starts.dtype)
        x = self.speech_embedding(speech_ids)[:, None]  # [B, 1, hidden]
        return self.prefill(x, num_new, cache, starts=starts, num_keys=num_keys)

    def _log_probs(self, hidden: Tensor) -> Tensor:
        """Return log probabilities, computed in float32 from the sum of products on: rounded to a half type first, near
        ties would be sampled otherwise.
        """
        weight, bias = self.llm_decoder.weight, self.llm_decoder.bias
        if hidden.dtype != torch.float32 and hidden.is_cuda:
            logits = torch.mm(hidden, weight.t(), out_dtype=torch.float32)  # half operands, float32 out
        else:
            logits = functional.linear(hidden.to(torch.float32), weight.to(torch.float32))
        if cast("Tensor | None", bias) is not None:
            logits = logits + bias.to(torch.float32)
        return functional.log_softmax(logits, dim=-1)
