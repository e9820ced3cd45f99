"""Makes the models of this folder that README.md says it made, with what transformers computes for
them. Needs torch and transformers; run in this folder: python make.py [NAME...]"""
import json
import pathlib
import sys

import torch
import transformers
from safetensors.torch import save_file

VOCAB, ROWS, LENGTH = 131, 2, 17
SMALL = dict(vocab_size=VOCAB, hidden_size=36, intermediate_size=50, num_attention_heads=6,
             num_key_value_heads=2, max_position_embeddings=64, bos_token_id=None, eos_token_id=None,
             pad_token_id=None)

MODELS = {
    # Odd layers whole, even layers windows; caps that are felt; a scale of its own.
    "gemma2": lambda: transformers.Gemma2Config(
        **SMALL, num_hidden_layers=3, head_dim=8, sliding_window=5, query_pre_attn_scalar=12,
        attn_logit_softcapping=3.0, final_logit_softcapping=4.0, rms_norm_eps=1e-5),
    "phi3": lambda: transformers.Phi3Config(**SMALL, num_hidden_layers=2, sliding_window=7),
    "olmo2": lambda: transformers.Olmo2Config(**SMALL, num_hidden_layers=3),
    # Every bias, rope stretched by a line, and what SmolLM has: a tied head, narrow and deep.
    "llama_bias_linear": lambda: transformers.LlamaConfig(
        **SMALL, num_hidden_layers=4, attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
        rope_parameters={"rope_type": "linear", "factor": 3.0, "rope_theta": 300.0}),
    # Windows in the layers from the second on.
    "qwen2_window": lambda: transformers.Qwen2Config(
        **SMALL, num_hidden_layers=3, use_sliding_window=True, sliding_window=4,
        max_window_layers=1, tie_word_embeddings=True),
}


def make_batch(seed):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, VOCAB, (ROWS, LENGTH), generator=generator)
    labels = ids.clone()
    labels[0, :4] = -100
    labels[1, 6] = -100
    labels[1, 12:15] = -100
    return ids, labels


def sum_loss(model, ids, labels):
    logits = model(input_ids=ids).logits
    loss = torch.nn.functional.cross_entropy(
        logits[:, :-1].reshape(-1, VOCAB).float(), labels[:, 1:].reshape(-1), ignore_index=-100,
        reduction="sum")
    return logits, loss


def gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return {name: p.grad.detach().clone() for name, p in model.named_parameters()}


def train(model, ids, labels, count):
    """Losses before each of five AdamW steps and after them."""
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1},
                                   {"params": others, "weight_decay": 0.0}],
                                  lr=1e-3, betas=(0.9, 0.95), eps=1e-8)
    losses = []
    for _ in range(5):
        loss = sum_loss(model, ids, labels)[1] / count
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    with torch.no_grad():
        losses.append((sum_loss(model, ids, labels)[1] / count).item())
    return losses


def greedy(model, prompt, tokens):
    ids = prompt.clone()
    with torch.no_grad():
        for _ in range(tokens):
            ids = torch.cat([ids, model(input_ids=ids[None]).logits[0, -1].argmax()[None]])
    return ids[len(prompt):]


def make(name, seed):
    torch.manual_seed(seed)
    config = MODELS[name]()
    config._attn_implementation = "eager"
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        for parameter in model.parameters():  # norms and biases that are felt
            parameter.add_(0.3 * torch.randn(parameter.shape))
    folder = pathlib.Path(name)
    folder.mkdir(exist_ok=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    ids, labels = make_batch(seed)
    count = int((labels[:, 1:] != -100).sum())
    logits, loss = sum_loss(model, ids, labels)
    found = {"input_ids": ids, "labels": labels, "logits": logits.detach(),
             "loss_sum": loss.detach(), "loss_mean": (loss / count).detach()}
    for key, value in gradients(model, loss / count).items():
        found["grad." + key] = value
    found["prompt"] = ids[1, :5].clone()
    found["greedy"] = greedy(model, found["prompt"], 16)
    found["adamw_losses"] = torch.tensor(train(model, ids, labels, count))
    save_file({k: v.contiguous() for k, v in found.items()}, folder / "expected.safetensors")
    print(name, json.dumps({"loss": float(found["loss_mean"]), "targets": count}))


for number, name in enumerate(MODELS):
    if len(sys.argv) == 1 or name in sys.argv[1:]:
        make(name, 1000 + number)
print(f"torch {torch.__version__}, transformers {transformers.__version__}")
