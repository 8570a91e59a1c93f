"""Which GPUs a process reaches by the driver itself, without any framework: as it was started, and after it has asked
for all of them and made their device files by itself."""

import ctypes
import glob
import json
import os
import stat
import subprocess
import sys

MAJOR = 195  # of NVIDIA's devices
MOST = 8


def reached():
    """GPUs that libcuda counts in this process; -1 where there is no libcuda."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return -1
    number = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(number)) != 0:
        return 0
    return number.value


def opened(path):
    try:
        os.close(os.open(path, os.O_RDWR))
        return "opened"
    except OSError as error:
        return error.strerror


def made(number):
    """What becomes of a device file that the process makes by itself: who may do that may still not open it."""
    path = f"/tmp/nvidia{number}"
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(MAJOR, number))
    except OSError as error:
        return f"not made: {error.strerror}"
    try:
        return opened(path)
    finally:
        os.unlink(path)


if sys.argv[1:] == ["count"]:
    print(reached())
    sys.exit()

wide = {**os.environ, "CUDA_VISIBLE_DEVICES": ",".join(map(str, range(MOST))), "NVIDIA_VISIBLE_DEVICES": "all"}
again = subprocess.run([sys.executable, __file__, "count"], env=wide, capture_output=True, text=True, check=False)
files = sorted(glob.glob("/dev/nvidia[0-9]*"))
answer = {
    "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
    "given": reached(),
    "widened": int(again.stdout.strip() or -1),
    "devices": files,
    "opened": {path: opened(path) for path in files},
    "made by itself": {str(number): made(number) for number in range(MOST)},
    "uid": os.getuid(),
}
print(json.dumps(answer), flush=True)
