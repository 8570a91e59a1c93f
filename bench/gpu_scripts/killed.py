"""Rank 1 of 2 is killed while rank 0 works on."""

import os
import signal
import time

import torch

torch.zeros(1024, device="cuda" if torch.cuda.is_available() else "cpu")
print("works", flush=True)
if os.environ["RANK"] == "1":
    time.sleep(1)
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(60)
