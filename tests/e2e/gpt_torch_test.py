"""Our GPT beside PyTorch's with transformers' GPT-2: the same weights, exchanged as safetensors both ways, give
the same loss, the same gradients and the same weights after AdamW, tied and untied, for several cuts.

Run by ctest with a Python that has torch, transformers, safetensors and numpy; exits 77 when it has not."""
import os
import subprocess
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
try:
    import numpy
    import torch
    from safetensors import safe_open
    from safetensors.torch import save_file
    from transformers import GPT2Config, GPT2LMHeadModel
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

DUMP = os.path.join(os.environ["PAWL_BUILD_DIR"], "tests", "e2e_model_dump")
LAYERS, HEADS, WIDTH, CONTEXT, VOCABULARY, BATCH = 5, 4, 64, 96, 211, 3


def model_new(tied, seed):
    torch.manual_seed(seed)
    config = GPT2Config(
        vocab_size=VOCABULARY, n_positions=CONTEXT, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, tie_word_embeddings=tied,
        bos_token_id=None, eos_token_id=None)
    model = GPT2LMHeadModel(config)
    with torch.no_grad():  # away from the zeros and ones of the start
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return model


def dump(weights, out, tokens, tied, stages, steps):
    sizes = [LAYERS, HEADS, WIDTH, CONTEXT, VOCABULARY, BATCH, int(tied), stages, steps]
    subprocess.run([DUMP, weights, out, tokens] + [str(n) for n in sizes], check=True)


def gradients_read(folder):
    with safe_open(os.path.join(folder, "gradients.safetensors"), "pt") as f:
        return {name: f.get_tensor(name) for name in f.keys()}, float(f.metadata()["loss"])


def short(name):
    return name.removeprefix("transformer.")


def loss_of(model, tokens, targets):
    logits = model(input_ids=tokens.long()).logits
    return torch.nn.functional.cross_entropy(logits.view(-1, VOCABULARY), targets.long().view(-1))


def assert_close(what, ours, theirs, tolerance):
    top = theirs.abs().max().item()
    error = (ours - theirs).abs().max().item()
    assert error <= tolerance * top, f"{what}: error {error:.3g}, largest value {top:.3g}"
    return error / top


def compare_gradients(model, folder):
    ours, loss = gradients_read(folder)
    model.zero_grad()
    theirs = loss_of(model, ours["tokens"], ours["targets"])
    theirs.backward()
    assert abs(loss - theirs.item()) <= 2e-6 * abs(loss), f"loss {loss} here, {theirs.item()} there"
    worst = 0
    names = [short(n) for n, _ in model.named_parameters()]
    assert sorted(names) == sorted(set(ours) - {"tokens", "targets"}), "not the same tensors"
    for name, parameter in model.named_parameters():
        worst = max(worst, assert_close(name, ours[short(name)], parameter.grad, 1e-4))
    return worst, ours


def determined(name, values):
    """Without the keys' bias: softmax cancels it, so its gradient is rounding noise, which Adam scales up."""
    if name.endswith("c_attn.bias"):
        return torch.cat([values[:WIDTH], values[2 * WIDTH:]])
    return values


def compare_adamw(model, folder, samples, steps):
    decay = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.01}, {"params": rest, "weight_decay": 0.0}],
                                  lr=1e-3, betas=(0.9, 0.999), eps=1e-8)
    start = {n: p.detach().clone() for n, p in model.named_parameters()}
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(model, samples["tokens"], samples["targets"]).backward()
        optimizer.step()
    ours = GPT2LMHeadModel.from_pretrained(folder)
    theirs = dict(model.named_parameters())
    for name, parameter in ours.named_parameters():
        # Where a gradient is near 0 the direction of Adam's step hangs on its rounding: means are compared.
        moved = determined(name, theirs[name] - start[name]).abs().mean()
        error = determined(name, parameter - theirs[name]).abs().mean()
        assert error <= 1e-3 * moved, f"{name} after {steps} steps: mean error {error:.3g}, moved {moved:.3g}"


def check(tied, stages, folder):
    tokens = os.path.join(folder, "tokens.bin")
    numpy.random.default_rng(stages).integers(0, VOCABULARY, CONTEXT * 40 + 1).astype("<u2").tofile(tokens)
    model = model_new(tied, stages)
    theirs, ours, out = (os.path.join(folder, n) for n in ("theirs", "ours", "out"))
    model.save_pretrained(theirs)  # transformers -> pawl
    dump(theirs, out, tokens, tied, stages, 0)
    worst, samples = compare_gradients(model, out)
    dump(theirs, ours, tokens, tied, stages, 5)  # pawl -> transformers
    compare_adamw(model, ours, samples, 5)
    loaded = GPT2LMHeadModel.from_pretrained(ours)
    assert loaded.config.tie_word_embeddings == tied
    dump(ours, out, tokens, tied, stages, 0)
    again, _ = compare_gradients(loaded, out)
    print(f"tied {tied}, {stages} stages: gradients within {max(worst, again):.1e} of each tensor's largest")


def check_prefixless(folder):
    """The names of GPT2Model's own files, without "transformer."."""
    model = model_new(True, 9)
    path = os.path.join(folder, "model.safetensors")
    save_file({short(n): p.detach() for n, p in model.named_parameters()}, path)
    tokens, out = os.path.join(folder, "tokens.bin"), os.path.join(folder, "out")
    numpy.arange(CONTEXT * 20 + 1, dtype="<u2").__mod__(VOCABULARY).astype("<u2").tofile(tokens)
    dump(path, out, tokens, True, 2, 0)
    compare_gradients(model, out)


def main():
    torch.set_num_threads(1)
    for tied in (True, False):
        for stages in (1, 2, 3):
            with tempfile.TemporaryDirectory() as folder:
                check(tied, stages, folder)
    with tempfile.TemporaryDirectory() as folder:
        check_prefixless(folder)


main()
