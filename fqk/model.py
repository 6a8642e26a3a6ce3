"""One GPT on nanoGPT's recipe: pre-norm, learned positions, GELU, tied head. The mixer plugs in."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fqk.mixers import Mixer
from fqk.profiles import Profile, get_profile
from fqk.variants import Variant, get_variant


class Attention(nn.Module):
    """Causal self-attention whose queries and keys go through a mixer before the dot product."""

    def __init__(self, profile: Profile, mixer: nn.Module) -> None:
        super().__init__()
        self.heads, self.dropout = profile.heads, profile.dropout
        self.qkv = nn.Linear(profile.width, 3 * profile.width, bias=False)
        self.mixer = mixer
        self.out = nn.Linear(profile.width, profile.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        B, T, C = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.heads, -1).unbind(2)
        q, k, v = (head.transpose(1, 2) for head in (*self.mixer(q, k), v))
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        return F.dropout(self.out(y.transpose(1, 2).reshape(B, T, C)), self.dropout, self.training)


class Block(nn.Module):
    """x + mix(norm x), then x + mlp(norm x)."""

    def __init__(self, profile: Profile, variant: Variant) -> None:
        super().__init__()
        self.norm_mix = nn.LayerNorm(profile.width, bias=False)
        self.mix: nn.Module
        if variant.attends:
            head_dim = profile.width // profile.heads
            mixer = variant.mixer(heads=profile.heads, head_dim=head_dim, context=profile.context)
            self.mix = Attention(profile, mixer)
        else:
            self.mix = variant.mixer()
        self.norm_mlp = nn.LayerNorm(profile.width, bias=False)
        self.mlp = nn.Sequential(
            nn.Linear(profile.width, 4 * profile.width, bias=False),
            nn.GELU(),
            nn.Linear(4 * profile.width, profile.width, bias=False),
            nn.Dropout(profile.dropout),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.mix(self.norm_mix(x))
        return x + self.mlp(self.norm_mlp(x))


class GPT(nn.Module):
    """Token ids (B, T), T ≤ the profile's context, to logits (B, T, V); the head is the embedding's."""

    def __init__(self, profile: Profile, variant: Variant, vocab_size: int) -> None:
        super().__init__()
        self.profile, self.variant = profile, variant
        self.token = nn.Embedding(vocab_size, profile.width)
        self.position = nn.Embedding(profile.context, profile.width)
        self.blocks = nn.ModuleList(Block(profile, variant) for _ in range(profile.layers))
        self.norm = nn.LayerNorm(profile.width, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.token(tokens) + self.position(positions)
        x = F.dropout(x, self.profile.dropout, self.training)
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.token.weight)

    def init_weights(self) -> None:
        """GPT-2's: normal of deviation 0.02, projections into the residual stream 0.02/√(2·layers)."""
        residual = 0.02 / math.sqrt(2 * self.profile.layers)
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                into_stream = name.endswith(("mix.out", "mlp.2"))
                nn.init.normal_(module.weight, std=residual if into_stream else 0.02)

    def scales(self) -> list[dict[str, list[list[float]]]]:
        """The time scales of each layer's mixer, by head: see :meth:`fqk.mixers.Mixer.scales`."""
        return [
            {name: value.tolist() for name, value in module.scales().items()}
            for module in self.modules()
            if isinstance(module, Mixer)
        ]


def build_model(variant: str | Variant, profile: str | Profile, vocab_size: int = 65, seed: int = 0) -> GPT:
    """An untrained model. All attending variants of one seed start from the same weights.

    Raises:
        InputError: unknown variant or profile.
    """
    variant = get_variant(variant) if isinstance(variant, str) else variant
    profile = get_profile(profile) if isinstance(profile, str) else profile
    torch.manual_seed(seed)
    model = GPT(profile, variant, vocab_size)
    torch.manual_seed(seed)  # the mixers' own draws leave the rest as it is
    model.init_weights()
    return model
