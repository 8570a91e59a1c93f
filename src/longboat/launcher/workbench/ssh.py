"""ssh over a plain pair of streams: the sshd of the image in inetd mode, with keys made for this run alone.

No port is opened and nothing listens: one sshd serves one connection on its stdin and stdout, as the user of the run,
who can log in with the one key that was given and with nothing else.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys

from .inside import come_in
from .serve import FOLDER

PASSED = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER",
          "HIP_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "LONGBOAT_RUN", "LONGBOAT_CHECKPOINT_DIR",
          "LONGBOAT_ARTIFACTS_DIR")  # fmt: skip
"""What a login needs of the run: its Python and its GPUs. No secrets: they would be in a file."""
PLACES = "/usr/sbin:/usr/local/sbin:/sbin:/usr/bin:/usr/local/bin"
MISSING = (
    "longboat: there is no sshd here: the package is `openssh-server`; "
    "an image with it, or `--setup 'apt-get install -y openssh-server'` as root, brings it\n"
)


def serve_ssh(folder: str, words: list[str]) -> int:
    """`words`: the public key that may log in."""
    sshd = shutil.which("sshd", path=PLACES)
    keygen = shutil.which("ssh-keygen", path=PLACES)
    if sshd is None or keygen is None:
        sys.stderr.write(MISSING)
        return 127
    key = " ".join(words)
    if "\n" in key or not key.startswith(("ssh-", "ecdsa-", "sk-")):
        sys.stderr.write("longboat: not a public key of ssh\n")
        return 2
    come_in(folder)
    config = write_config(os.path.join(folder, FOLDER, "ssh"), keygen, key)
    if os.getuid() == 0:
        os.makedirs("/run/sshd", 0o755, exist_ok=True)  # without it sshd of root does not start
    os.execv(sshd, [sshd, "-i", "-e", "-f", config])
    return 126


def write_config(place: str, keygen: str, key: str) -> str:
    """Host key, the one key that may come in, and the settings of sshd; the path of these."""
    os.makedirs(place, 0o700, exist_ok=True)
    host_key = os.path.join(place, "host_key")
    if not os.path.exists(host_key):
        # Made beside and renamed: two who connect first at once get the same key.
        own = "%s.%d" % (host_key, os.getpid())
        subprocess.run([keygen, "-q", "-t", "ed25519", "-N", "", "-f", own], check=True, stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL)  # fmt: skip
        os.unlink(own + ".pub")
        try:
            os.link(own, host_key)
        except FileExistsError:
            pass
        os.unlink(own)
    keys, config = os.path.join(place, "authorized_keys"), os.path.join(place, "sshd_config")
    user = pwd.getpwuid(os.getuid()).pw_name
    lines = {
        "HostKey": host_key,
        "AuthorizedKeysFile": keys,
        "AllowUsers": user,
        "AuthenticationMethods": "publickey",
        "PermitRootLogin": "prohibit-password",
        "StrictModes": "no",  # the folder is the launcher's; parents of it may be anybody's in an image
        "UsePAM": "no",
        "PidFile": "none",
        "PrintMotd": "no",
        "LogLevel": "ERROR",
        "Subsystem": "sftp internal-sftp",
    }
    settings = "".join("%s %s\n" % pair for pair in lines.items()) + passed_line(dict(os.environ))
    for path, text in ((keys, key + "\n"), (config, settings)):
        own = "%s.%d" % (path, os.getpid())
        with open(os.open(own, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(text)
        os.replace(own, path)
    return config


def passed_line(environment: dict[str, str]) -> str:
    """sshd gives a login an environment of its own; one line, for it takes the first of several."""
    values = {name: environment[name] for name in PASSED if name in environment}
    safe = {name: value for name, value in values.items() if not set(value) & set('"\\\n')}
    return "SetEnv %s\n" % " ".join('%s="%s"' % pair for pair in safe.items()) if safe else ""
