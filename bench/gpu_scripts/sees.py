"""How many GPUs this rank can use: as it was started, and after it has set CUDA_VISIBLE_DEVICES to everything."""

import glob
import json
import os
import subprocess
import sys

COUNT = "import torch; print(torch.cuda.device_count() if torch.cuda.is_available() else 0)"


def count(environment):
    done = subprocess.run([sys.executable, "-c", COUNT], env=environment, capture_output=True, text=True, check=False)
    return int(done.stdout.strip() or -1)


wide = {**os.environ, "CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7", "NVIDIA_VISIBLE_DEVICES": "all"}
found = {
    "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
    "given": count(dict(os.environ)),
    "widened": count(wide),
    "devices": sorted(glob.glob("/dev/nvidia[0-9]*")),
}
print(json.dumps(found), flush=True)
