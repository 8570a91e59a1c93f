"""Device isolation: a mount namespace of this process in which some device files cannot be opened.

A hidden device is mounted over itself with `nodev`: opening it fails with EACCES ("Permission denied"), for root as
well, while its name, owner and number stay what they are, so that the driver's tools find nothing to repair. All other
files are those of the machine.

It keeps runs from each other's GPUs by mistake. It is no fence against root, who may mount and unmount.
"""

from __future__ import annotations

import os
import sys

from .libc import call

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000  # of linux/sched.h
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8  # of linux/mount.h
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE, MS_SLAVE = 1 << 5, 1 << 12, 1 << 14, 1 << 18, 1 << 19
_CAPABILITY_VERSION_3 = 0x20080522


def hide(devices: list[str]) -> None:
    """Make these files unopenable for this process and its children. Raises OSError, and then changes nothing.

    Must be called before there are threads. Without CAP_SYS_ADMIN it takes a user namespace of the user's own, in which
    programs do not become root (sudo, fusermount).
    """
    try:
        call("unshare", CLONE_NEWNS)
    except OSError:
        if os.geteuid() == 0:  # as root of a container: a user namespace would cost it the files of other users
            raise
        _join_child(devices)
        _drop_capabilities()
        return
    _mount_over(devices)


def _enter_user_namespace() -> None:
    """Enter a user namespace with the same user and group id. All other ids are unmapped in it."""
    user, group = os.geteuid(), os.getegid()
    call("unshare", CLONE_NEWUSER | CLONE_NEWNS)
    for name, text in (
        ("uid_map", "%d %d 1" % (user, user)),
        ("setgroups", "deny"),  # the kernel's condition for a map of the group
        ("gid_map", "%d %d 1" % (group, group)),
    ):
        descriptor = os.open("/proc/self/" + name, os.O_WRONLY)
        try:
            os.write(descriptor, text.encode("ascii"))
        finally:
            os.close(descriptor)


def _mount_over(devices: list[str]) -> None:
    for folder in sorted({os.path.dirname(device) for device in devices}):
        _keep_to_itself(folder)
    for device in devices:
        if not os.path.exists(device):
            continue
        path = os.fsencode(device)
        call("mount", path, path, None, MS_BIND, None)
        kept = os.statvfs(device).f_flag & (MS_RDONLY | MS_NOSUID | MS_NOEXEC)  # what a user may not take away
        call("mount", None, path, None, MS_BIND | MS_REMOUNT | MS_NODEV | kept, None)


def _keep_to_itself(folder: str) -> None:
    """Make mounts in this folder private to the namespace; others still propagate."""
    try:
        call("mount", None, os.fsencode(folder), None, MS_REC | MS_PRIVATE, None)
    except OSError:  # no mount of its own: then everything, but what the machine mounts later is still seen
        call("mount", None, b"/", None, MS_REC | MS_SLAVE, None)


def _drop_capabilities() -> None:
    """Drop the capabilities over the user namespace, which ranks do not have either."""
    call("capset", _CAPABILITY_VERSION_3.to_bytes(4, sys.byteorder) + bytes(4), bytes(24))


def _join_child(devices: list[str]) -> None:
    """Have a child create the namespaces, then enter them.

    From a user namespace there is no way back: where it gives no rights (AppArmor), only the child is in it.
    """
    said, say = os.pipe()
    joined, join = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(join)
        _make_for_parent(devices, say, joined)
    for descriptor in (say, joined):
        os.close(descriptor)
    try:
        code, _, text = os.read(said, 4096).decode("utf-8").partition(" ")
        if code != "0":
            raise OSError(int(code or 1), text or "the child that made the user namespace was killed")
        _enter(pid)
    finally:
        for descriptor in (said, join):
            os.close(descriptor)
        os.waitpid(pid, 0)


def _make_for_parent(devices: list[str], say: int, joined: int) -> None:
    """In the child: create the namespaces and live until the parent has entered them or is gone."""
    text = "0 "
    try:
        _enter_user_namespace()
        _mount_over(devices)
    except OSError as error:
        text = "%d %s" % (error.errno or 1, error.strerror or error)
    finally:
        os.write(say, text.encode("utf-8", "replace"))
        os.read(joined, 1)
        os._exit(0)


def _enter(pid: int) -> None:
    folder = os.getcwd()
    spaces = [os.open("/proc/%d/ns/%s" % (pid, name), os.O_RDONLY | os.O_CLOEXEC) for name in ("user", "mnt")]
    for descriptor in spaces:
        call("setns", descriptor, 0)
        os.close(descriptor)
    os.chdir(folder)  # entering mounts leads to their root
