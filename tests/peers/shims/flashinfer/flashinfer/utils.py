"""What FlashInfer's tests import from the module of this name."""


class GPUArchitectureError(Exception):
    pass


def is_sm90a_supported(device):
    return True


def has_flashinfer_jit_cache():  # then no fixture compiles FlashInfer's kernels
    return True


def get_compute_capability(device):
    return 9, 0
