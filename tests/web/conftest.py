"""A dashboard over a real embedded engine in a folder of its own."""

from __future__ import annotations

import pytest

pytest.importorskip("starlette", reason="the extra ui is not installed")
