"""What FlashAttention-4's tests import from the module of this name."""


class JITCache:
    pass
