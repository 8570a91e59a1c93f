"""A small transformer in bf16 with a fixed seed; prints when it got how far, and how long every step took."""

import json
import os
import sys
import time


def say(event, **fields):
    print(json.dumps({"event": event, "time": time.time(), **fields}), flush=True)


say("started")
steps, warm = int(sys.argv[1]), 20

import torch  # noqa: E402

say("imported", torch=torch.__version__)
torch.manual_seed(7)
device = "cuda" if torch.cuda.is_available() else "cpu"
width, layers, words, batch = (1024, 8, 512, 32) if device == "cuda" else (64, 2, 32, 4)
block = torch.nn.TransformerEncoderLayer(width, 16, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
model = torch.nn.Sequential(torch.nn.Embedding(4096, width), torch.nn.TransformerEncoder(block, layers))
model.append(torch.nn.Linear(width, 4096))
model.to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=device == "cuda")
data = torch.randint(0, 4096, (8, batch, words + 1), device=device)
say("ready", device=torch.cuda.get_device_name(0) if device == "cuda" else "cpu")
taken, loss = [], None
for step in range(warm + steps):
    if device == "cuda":
        torch.cuda.synchronize()
    begin = time.perf_counter()
    words_in = data[step % 8]
    with torch.autocast(device, dtype=torch.bfloat16):
        out = model(words_in[:, :-1])
        loss = torch.nn.functional.cross_entropy(out.flatten(0, 1).float(), words_in[:, 1:].flatten())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    if device == "cuda":
        torch.cuda.synchronize()
    taken.append(time.perf_counter() - begin)
    if step == 0:
        say("first step")
taken = sorted(taken[warm:])
say(
    "ended",
    median_s=taken[len(taken) // 2],
    p10_s=taken[len(taken) // 10],
    loss=float(loss),
    run=os.environ.get("LONGBOAT_RUN"),
)
