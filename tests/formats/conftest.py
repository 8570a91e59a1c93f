from tests.engines.local.conftest import local

__all__ = ["local"]
