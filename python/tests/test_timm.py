"""timm's RoPE-ViT with mixed frequencies, which it learns: the model by copes against the model as it is."""

import copes
import pytest
import torch

timm = pytest.importorskip("timm")
from timm.layers import attention  # noqa: E402

GRID = (6, 4)
SIZE = tuple(16 * length for length in GRID)


def made():
    torch.manual_seed(0)
    settings = dict(img_size=SIZE, embed_dim=64, num_heads=4, depth=2, num_classes=10)
    model = timm.create_model("vit_small_patch16_rope_mixed_224", **settings)
    with torch.no_grad():  # as it is, attention would hardly depend on positions
        for block in model.blocks:
            block.attn.qkv.weight *= 8
    return model


def results(model, images):
    model.zero_grad()
    o = model(images)
    torch.nn.functional.cross_entropy(o.double(), torch.arange(len(images))).backward()
    return {"o": o.detach().double(), **{name: p.grad.double() for name, p in model.named_parameters()}}


def pictures():
    return torch.randn(4, 3, *SIZE, generator=torch.Generator().manual_seed(1))


def turn_by_copes(model, monkeypatch):
    """A block's theta is (2, heads, angles): x, then y. Rows come first in copes's grid."""
    rope = model.rope

    def turn(x, theta, half=False):
        assert not half
        return copes.lrpe_rotate(x.transpose(1, 2), theta.flip(0), grid=GRID, pairing="interleaved").transpose(1, 2)

    monkeypatch.setattr(rope, "get_embed", lambda *_, **__: rope.freqs.unbind(1))
    monkeypatch.setattr(attention, "apply_rot_embed_cat", turn)


def test_values_and_gradients(monkeypatch):
    """Values and the gradient of every parameter, theta among them."""
    model, images = made(), pictures()
    untouched = results(model, images)
    turn_by_copes(model, monkeypatch)
    for name, value in results(model, images).items():
        assert (value - untouched[name]).norm() <= 1e-5 * untouched[name].norm(), name
    assert untouched["rope.freqs"].abs().min() > 0


def test_learns(monkeypatch):
    """Some steps of an optimizer give the same theta."""
    images, learned = pictures(), []
    for by_copes in (False, True):
        model = made()
        before = model.rope.freqs.detach().clone()
        if by_copes:
            turn_by_copes(model, monkeypatch)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(5):
            results(model, images)
            optimizer.step()
        learned.append(model.rope.freqs.detach() - before)
    assert learned[0].norm() > 0 and (learned[1] - learned[0]).norm() <= 1e-3 * learned[0].norm()
