"""What FlashInfer's tests import from the module of this name."""

import collections

filename_safe_dtype_map = collections.defaultdict(str)
