"""The GPT: its attention written out, its size, its start, its gradients."""

import math

import pytest
import torch
from torch import nn

from fqk.errors import InputError
from fqk.mixers import LADDER, Mixer
from fqk.model import Attention, build_model
from fqk.profiles import PROFILES, get_profile
from fqk.variants import VARIANTS, get_variant

TOKENS = torch.randint(65, (3, 64), generator=torch.Generator().manual_seed(0))


def test_base_dot_attention_is_the_written_out_softmax():
    torch.manual_seed(0)
    profile = PROFILES["smoke"]
    attention = Attention(profile, Mixer(profile.heads, 16, profile.context))
    x = 3 * torch.randn(2, 21, profile.width)
    q, k, v = (part.view(2, 21, profile.heads, 16).transpose(1, 2) for part in attention.qkv(x).chunk(3, 2))
    scores = q @ k.transpose(2, 3) / math.sqrt(16)
    future = torch.ones(21, 21).triu(1).bool()
    weights = scores.masked_fill(future, -torch.inf).softmax(-1)
    expected = attention.out((weights @ v).transpose(1, 2).reshape(2, 21, profile.width))
    torch.testing.assert_close(attention(x), expected, atol=1e-6, rtol=1e-5)


def test_paper_profile_has_nanogpts_10_65_million_parameters():
    """Embedding 65·384, six blocks of 12·384², thirteen norms of 384; its count omits positions."""
    model = build_model("base-dot", "paper")
    count = sum(p.numel() for p in model.parameters()) - model.position.weight.numel()
    assert count == 65 * 384 + 6 * 12 * 384**2 + 13 * 384 == 10_646_784


@pytest.mark.parametrize("name", VARIANTS)
def test_attending_variants_of_a_seed_start_from_the_same_shared_weights(name):
    model, base = (build_model(n, "smoke", seed=3).state_dict() for n in (name, "base-dot"))
    shared = {key: value for key, value in model.items() if "mixer" not in key}
    if VARIANTS[name].attends:
        assert shared.keys() == base.keys()
        assert all(value.equal(base[key]) for key, value in shared.items())
    else:
        assert {key for key in base if ".mix." not in key} == shared.keys()


@pytest.mark.parametrize("name", VARIANTS)
def test_seed_alone_determines_the_start(name):
    first, again, other = (build_model(name, "smoke", seed=s).state_dict() for s in (3, 3, 4))
    assert all(value.equal(again[key]) for key, value in first.items())
    assert not first["token.weight"].equal(other["token.weight"])


def test_weights_start_with_gpt2s_standard_deviations():
    model = build_model("base-dot", "cpu")
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            into_stream = name.endswith(("mix.out", "mlp.2"))
            expected = 0.02 / math.sqrt(4) if into_stream else 0.02  # two layers
            assert module.weight.std().item() == pytest.approx(expected, rel=0.03), name
            assert module.weight.mean().abs() < 0.1 * expected, name


def test_untrained_model_guesses_uniformly():
    logits = build_model("base-dot", "smoke")(TOKENS)
    assert logits.shape == (3, 64, 65)
    loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), TOKENS[:, 1:].flatten())
    assert loss.item() == pytest.approx(math.log(65), abs=0.05)


@pytest.mark.parametrize("name", VARIANTS)
def test_gradient_reaches_every_learned_number(name):
    model = build_model(name, "smoke")
    loss = nn.functional.cross_entropy(model(TOKENS[:, :-1]).flatten(0, 1), TOKENS[:, 1:].flatten())
    loss.backward()
    learned = {key: parameter for key, parameter in model.named_parameters() if parameter.requires_grad}
    for key, parameter in learned.items():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key
        reached = parameter.grad != 0
        assert reached.all() if "mixer" in key else reached.any(), key


def test_learned_scales_are_reported_by_layer_and_head():
    layers = build_model("multifourier-qk", "smoke").scales()
    assert len(layers) == 2
    for layer in layers:
        assert layer["period"] == [pytest.approx(LADDER)] * 2


def test_dropout_acts_in_training_only():
    profile = PROFILES["smoke"].model_copy(update={"name": "smoke-dropout", "dropout": 0.5})
    model = build_model("base-dot", profile)
    assert not model(TOKENS).equal(model(TOKENS))
    model.eval()
    assert model(TOKENS).equal(model(TOKENS))


@pytest.mark.parametrize(
    ("get", "wrong", "near"),
    [
        (get_variant, "multifurier-qk", "multifourier-qk"),
        (get_variant, "base_dot", "base-dot"),
        (get_variant, "?", "base-dot"),
        (get_profile, "smok", "smoke"),
        (lambda name: build_model(name, "smoke"), "rotation", "rotation-shared"),
        (lambda name: build_model("base-dot", name), "papre", "paper"),
    ],
)
def test_unknown_name_is_refused_with_the_nearest(get, wrong, near):
    with pytest.raises(InputError) as refusal:
        get(wrong)
    assert repr(wrong) in str(refusal.value)
    assert near in str(refusal.value)


def test_registry_names_its_entries_and_every_paper_figure():
    assert all(name == variant.name for name, variant in VARIANTS.items())
    figures = {variant.paper for variant in VARIANTS.values() if variant.paper is not None}
    assert figures == {1.474, 1.031, 0.608, 0.309, 0.018}
