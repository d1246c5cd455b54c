#!/usr/bin/env python3
"""Train a small model from Python, watch its loss, let it talk.

    PYTHONPATH=examples/python python3 examples/python/train_tiny.py [texts.jsonl] [--steps N] [--out DIRECTORY]

Each `# %%` is a cell: editors that know notebooks run them one by one. Without a file of {"text": …} rows it makes up
some sentences. The loss curve is drawn in the terminal and as loss.svg; with matplotlib also as loss.png.
"""
from __future__ import annotations

# %% What there is to learn
import argparse
import itertools
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))   # a checkout needs no installation
import minimind

parser = argparse.ArgumentParser(description="Train a small model from Python and plot its loss.")
parser.add_argument("texts", nargs="?", help='JSON lines of {"text": …}')
parser.add_argument("--steps", type=int, default=150, help="batches to train on (150)")
parser.add_argument("--out", default="out/train_tiny", help="where model and pictures go (out/train_tiny)")
arguments = parser.parse_args()
out = pathlib.Path(arguments.out)
out.mkdir(parents=True, exist_ok=True)

texts = arguments.texts
if texts is None:
    texts = out / "texts.jsonl"
    people, deeds = ["Ann", "Ben", "Cid", "Dora"], ["sings", "sleeps", "reads", "waits"]
    places = ["at home", "in the garden", "by the sea"]
    with open(texts, "w", encoding="utf-8") as file:
        for who, does, where in itertools.product(people, deeds, places):
            file.write(json.dumps({"text": f"{who} {does} {where}, and then {who} {does} no more."}) + "\n")
dataset = minimind.Dataset(texts)
print(f"libminimind {minimind.version()}: {len(dataset)} rows, the first is {dataset.text(0)[:60]!r}")

# %% A tokenizer from the first rows, and batches of 8 rows
sample = (dataset.text(row) for row in range(min(len(dataset), 2000)))
tokenizer = minimind.Tokenizer.train(sample, vocab_size=400)
loader = minimind.Loader(dataset, tokenizer, batch=8, max_length=65, form=minimind.MM_ROWS_PACK)

# %% A model: a preset with a few fields changed
config = minimind.Config("minimind2-small", vocab_size=tokenizer.vocab_size, hidden_size=96, num_hidden_layers=3,
                         num_attention_heads=6, num_key_value_heads=2, max_position_embeddings=128)
model = minimind.Model(config, seed=42)
model.tokenizer = tokenizer
print(f"{config.parameters()['total']} parameters")

# %% Training by hand: forward, backward, step. (minimind.Trainer does the same with checkpoints.)
losses = []
epochs = itertools.chain.from_iterable(itertools.repeat(loader))
with minimind.Context(model, train=True, max_batch=8, max_length=loader.length) as context, \
        minimind.Optimizer(model) as optimizer:
    for step, batch in enumerate(itertools.islice(epochs, arguments.steps)):
        context.zero_grad()
        losses.append(context.forward(batch, train=True, seed=step).loss)
        context.backward()
        rate = minimind.schedule_lr(minimind.MM_SCHEDULE_COSINE, step, arguments.steps, 3e-3, warmup=10)
        norm = optimizer.step(context, rate, max_grad_norm=1.0)
        if step % 25 == 0 or step == arguments.steps - 1:
            print(f"step {step + 1:4}  loss {losses[-1]:.4f}  |gradient| {norm:.3f}")
model.save_pretrained(out / "model")


# %% The loss curve
def ascii_plot(values: list[float], width: int = 72, height: int = 14) -> str:
    """Columns of means, one character high steps."""
    count = min(width, len(values))
    cuts = [len(values) * i // count for i in range(count + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in zip(cuts, cuts[1:])]
    top, bottom = max(means), min(means)
    rows = [round((top - mean) / ((top - bottom) or 1) * (height - 1)) for mean in means]
    lines = ["".join("*" if row == y else " " for row in rows) for y in range(height)]
    labels = {0: f"{top:8.3f}", height - 1: f"{bottom:8.3f}"}
    return "\n".join(f"{labels.get(y, ''):>8} |{line}" for y, line in enumerate(lines)) + f"\n{'':8} +{'-' * count}"


def svg_plot(values: list[float], width: int = 640, height: int = 320, margin: int = 40) -> str:
    """One polyline, with the ends of both axes named."""
    top, span = max(values), (max(values) - min(values)) or 1
    x = lambda i: margin + i / max(1, len(values) - 1) * (width - 2 * margin)
    y = lambda value: margin + (top - value) / span * (height - 2 * margin)
    points = " ".join(f"{x(i):.1f},{y(value):.1f}" for i, value in enumerate(values))
    text = lambda at_x, at_y, content, anchor: (f'<text x="{at_x}" y="{at_y}" font-size="12" font-family="sans-serif" '
                                                f'text-anchor="{anchor}">{content}</text>')
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<path d="M{margin},{margin} V{height - margin} H{width - margin}" fill="none" stroke="black"/>',
        f'<polyline points="{points}" fill="none" stroke="#1f77b4" stroke-width="1.5"/>',
        text(margin - 4, margin + 4, f"{top:.2f}", "end"), text(margin - 4, height - margin, f"{top - span:.2f}", "end"),
        text(width - margin, height - margin + 16, f"step {len(values)}", "end"), text(margin, margin - 12, "loss", "start"),
        "</svg>", ""])


print(ascii_plot(losses))
(out / "loss.svg").write_text(svg_plot(losses), encoding="utf-8")
try:
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
except ImportError:
    pass
else:
    pyplot.plot(losses)
    pyplot.xlabel("step")
    pyplot.ylabel("loss")
    pyplot.savefig(out / "loss.png")

# %% What it has learnt: load it again and stream its text
with minimind.Model.from_pretrained(out / "model") as trained:
    prompt = dataset.text(0)[:3]
    print(prompt, end="")
    for piece in trained.generate(prompt, bos=True, max_new_tokens=40, temperature=0.5, seed=1):   # packed rows begin with it
        print(piece, end="", flush=True)
    print()
    norm = trained.weights["model.norm.weight"]
    print(f"the final norm's weights, as numpy sees them: mean {norm.mean():.3f}, {norm.size} of them, none copied")
