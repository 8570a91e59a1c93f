"""Which packages of this machine count as every host's."""

from __future__ import annotations

import re

from longboat.clusters.offline.dpkg_base import base_status

STATUS = """Package: dpkg
Essential: yes
Status: install ok installed
Priority: required
Version: 1.21
Pre-Depends: libc6 (>= 2.34), tar (>= 1.28-1) | busybox

Package: libc6
Status: install ok installed
Priority: optional
Version: 2.36
Depends: awk-like

Package: mawk
Status: install ok installed
Priority: optional
Provides: awk-like (= 1)
Version: 1.3
Description: text
 Depends: not a field

Package: nginx
Status: install ok installed
Priority: optional
Version: 1.22
Depends: libc6

Package: util-linux
Status: deinstall ok config-files
Priority: required
Version: 2.38
"""


def test_what_is_required_and_what_that_needs() -> None:
    assert re.findall(r"^Package: (.*)", base_status(STATUS), re.MULTILINE) == ["dpkg", "libc6", "mawk"]


def test_a_machine_without_packages() -> None:
    assert base_status("").strip() == ""
