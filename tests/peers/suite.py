"""Runs a test suite that somebody else wrote, by pytest, against the book's package: which of its cases, for how long.

A suite is a file of a checkout, with shims: folders with modules of the names that it imports. Cases that ask for what
the book has not are left out before they run, counted by their reason; what is not run in time is counted too. The
order of the cases is shuffled, the same in every run, so that a short run takes some of every kind.
"""

import argparse
import ast
import collections
import importlib
import os
import pathlib
import random
import re
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
BOOK = HERE.parents[1]


class Selection:
    """A plugin of pytest. functions: what the names of the tests begin with. accepts(test, parameters): why a case is
    left out, or an empty text; without pytest's parameters, they are {"case": the name}. expected(case,
    why): the reason for which a failure with this error is counted apart, or an empty text."""

    def __init__(self, functions, accepts, limit, expected):
        self.functions, self.accepts, self.limit, self.expected = functions, accepts, limit, expected
        self.begin = time.monotonic()
        self.left_out, self.skipped = collections.Counter(), collections.Counter()
        self.results = collections.defaultdict(collections.Counter)
        self.failures, self.as_expected, self.late = [], [], set()

    def function_of(self, name):
        return next((function for function in self.functions if name.startswith(function)), "")

    def pytest_pycollect_makeitem(self, collector, name, obj):
        if name.startswith("test_") and not self.function_of(name):  # hundreds of thousands of cases are not even made
            return []
        return None

    def pytest_collection_modifyitems(self, items):
        chosen = []
        for item in items:
            name = self.function_of(item.name)
            reason = self.accepts(name, item.callspec.params if hasattr(item, "callspec") else {"case": item.name})
            if reason:
                self.left_out[f"{name}: {reason}"] += 1
            else:
                chosen.append(item)
                self.results[name]["chosen"] += 1
        random.Random(1).shuffle(chosen)
        items[:] = chosen
        self.begin = time.monotonic()

    def pytest_runtest_setup(self, item):
        if time.monotonic() - self.begin > self.limit:
            import pytest

            self.late.add(item.nodeid)
            pytest.skip(f"not run within {self.limit} s")

    def pytest_runtest_logreport(self, report):
        name = self.function_of(report.nodeid.partition("[")[0].rpartition("::")[2])
        if report.nodeid in self.late:
            if report.skipped:
                self.results[name]["late"] += 1
        elif report.skipped and report.when in ("setup", "call"):
            why = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            why = getattr(report, "wasxfail", "") or why
            self.results[name]["skipped"] += 1
            self.skipped[why.removeprefix("Skipped: ").splitlines()[0][:160]] += 1
        elif report.failed:
            text = str(report.longrepr).strip().splitlines()
            why = next((line[1:].strip() for line in text if line.startswith("E ")), text[-1] if text else "")
            case = report.nodeid.rpartition("::")[2]
            reason = self.expected(case, why)
            self.results[name]["expected" if reason else "failed"] += 1
            (self.as_expected if reason else self.failures).append((case, reason or why))
        elif report.when == "call":
            self.results[name]["passed"] += 1

    def report(self, title):
        """Prints the counts; gives whether cases ran and none failed."""
        print(f"\n{title}: {time.monotonic() - self.begin:.0f} s")
        total = collections.Counter()
        for name, counts in sorted(self.results.items()):
            total.update(counts)
            print(f"  {name}: {counts['chosen']} chosen; {counts['passed']} passed, {counts['failed']} failed, "
                  f"{counts['skipped']} skipped, {counts['late']} not run within {self.limit:g} s")  # fmt: skip
        for kind, counter in (("left out", self.left_out), ("skipped", self.skipped)):
            for reason, count in counter.most_common(20):
                print(f"  {kind}: {count} x {reason}")
        for case, why in self.failures[:40]:
            print(f"  FAILED {case}: {why[:300]}")
        for case, reason in self.as_expected:
            print(f"  expected by their rule: {case}: {reason}")
        print(f"{total['passed']} passed, {total['failed']} failed, {total['expected']} expected by their rule, "
              f"{total['skipped']} skipped, {total['late']} not run")  # fmt: skip
        return total["passed"] > 0 and total["failed"] == 0


def arguments(description, *more, files=()):
    """more: names of further arguments; files: those of the suite, of which --only chooses one."""
    parser = argparse.ArgumentParser(description=description)
    folder = lambda text: pathlib.Path(text).resolve()
    parser.add_argument("checkout", type=folder, help="a checkout of the repository that the suite is from")
    for name in more:
        parser.add_argument(name)
    parser.add_argument("--limit", type=float, default=600, help="seconds after which no further case of a file begins")
    parser.add_argument("--only", choices=files, help="one of the suite's files")
    parser.add_argument("--libraries", help="libraries of ./workbook library, with ':' between them")
    parser.add_argument("--list", action="store_true", help="count the cases and run none")
    given = parser.parse_args()
    if given.libraries:
        os.environ["WORKBOOK_LIBRARY"] = given.libraries
    return given


def cut(file, options=None):
    """A copy of a test file with fewer cases, since pytest makes all of them before any is left out: the grids have
    only the book's head dimensions, and for a parameter in `options` only these values."""
    text = file.read_text()
    for name, values in {"d": None, **(options or {})}.items():

        def replaced(found):
            return found[1] + str(values or [x for x in ast.literal_eval(found[2]) if x in (32, 64, 128)]) + ")"

        grid = rf'^( *@(?:pytest\.mark\.)?parametrize\(\s*"{name}",\s*)(\[.*?\]),?\s*\)$'
        text = re.sub(grid, replaced, text, flags=re.MULTILINE | re.DOTALL)
    copy = pathlib.Path(tempfile.mkdtemp()) / file.name
    copy.write_text(text)
    return copy


def run(title, given, file, functions, accepts, folders, shim=None, expected=None):
    """Runs the cases of `file`; `folders` come first on sys.path. The exit code: 0 if some passed and none failed but
    the expected ones, which Selection describes.

    shim: a module that is imported first, since pytest puts the folder of `file`, which may have the real one, first.
    """
    import pytest

    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    sys.path[:0] = [str(folder) for folder in (*folders, BOOK / "python")]
    if shim:
        importlib.import_module(shim)
    selection = Selection(functions, accepts, 0 if given.list else given.limit, expected or (lambda case, why: ""))
    options = ["-q", "-p", "no:cacheprovider", "--tb=short", "--no-header", "-W", "ignore",
               "--noconftest", "--show-capture=no", "-r", "N", "--rootdir", str(given.checkout)]  # fmt: skip
    code = pytest.main([*options, str(file)], plugins=[selection])
    passed = selection.report(title)
    if code not in (0, 1, 5):
        print(f"pytest ended with {int(code)}")
    return 0 if passed and code in (0, 1) else 1


def unserved(d, dtype, shared=False):
    """Why the libraries do not serve d with a dtype of PyTorch in both passes, on the GPU; or an empty text. shared:
    with H > Hkv."""
    import flash_attention_workbook as workbook

    name = str(dtype).removeprefix("torch.")
    stages = [s for s in workbook.stages("cuda") if s.element == name and d in s.head_dims]
    passes = {s.pass_ for s in stages if s.shared_heads or not shared}
    return "" if len(passes) == 2 else f"d = {d}{' with shared heads' if shared else ''}"


def masks():
    """The parts of masks that both passes of the libraries have, on the GPU."""
    sys.path.insert(0, str(BOOK / "python"))
    import flash_attention_workbook as workbook

    of = lambda pass_: {part for s in workbook.stages("cuda") if s.pass_ == pass_ for part in s.masks}
    return of("forward") & of("backward")
