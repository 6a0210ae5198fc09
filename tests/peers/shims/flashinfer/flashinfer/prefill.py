"""What FlashInfer's tests import from the module of this name."""

from . import single_prefill_with_kv_cache  # noqa: F401
