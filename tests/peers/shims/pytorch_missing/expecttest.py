"""What torch.testing imports at its top, where the package of this name is not installed: no case here uses more."""

import unittest


class TestCase(unittest.TestCase):
    pass


def assert_expected_inline(*arguments, **options):
    raise NotImplementedError("the package expecttest is not installed")
