"""The C interface of common/cuda/workbook.h in Python: the stages of a library, and calls of them by address.

Independent of numpy and PyTorch. One library is loaded per backend, "sim" or "cuda": the library given to load(), named
in WORKBOOK_LIBRARY (a file, or several separated by ":"), or built by ./workbook library in .workbook/library of this
clone of the book.
"""

import ctypes
import functools
import itertools
import os
import pathlib
import re
import stat
import struct
import threading

INTERFACE = 4
LONGEST_MEMORY = 4096  # maximum number of cached plans


class WorkbookError(RuntimeError):
    """The error message of a library call."""


class NotServed(WorkbookError, ValueError):
    """An argument that no stage of the library supports: the text names it, its value, and what is allowed."""


class Unavailable(WorkbookError):
    """This machine cannot run the stage, or there is no library for it."""


class OpenExercise(WorkbookError):
    """The code reached an exercise that is still open."""


class KernelFailed(WorkbookError):
    """A kernel failed, or the simulator reports mistakes in it: races, accesses outside a tensor, …"""


def refuse(name, value, allowed, why=""):
    """Raises NotServed."""
    if hasattr(value, "requires_grad"):  # a tensor: its numbers would wait for the device, and stop torch.compile
        value = tuple(value.shape), value.dtype
    text = " ".join(repr(value).split())  # on one line
    raise NotServed(f"{name} = {shortened(text)}: {why}allowed: {allowed}")


def shortened(text):
    return text if len(text) <= 100 else text[:99] + "…"


_LATER_PARTS = ("softcap", "alibi", "lengths", "rope", "dropout")
_BY_ARGUMENT = {"sink": "the argument sink", "cache": "flash_attn_with_kvcache()", "pages": "flash_attn_with_kvcache()"}

_COMPUTES_WITH = {"sim": "arrays, and tensors on the CPU", "cuda": "tensors on a GPU"}
_ERRORS = {1: NotServed, 2: Unavailable, 3: OpenExercise, 4: KernelFailed, 5: MemoryError}


class _Stage(ctypes.Structure):
    _fields_ = [
        ("chapter", ctypes.c_int),
        ("folder", ctypes.c_char_p),
        ("pass_", ctypes.c_char_p),
        ("element", ctypes.c_char_p),
        ("head_dims", ctypes.POINTER(ctypes.c_int)),
        ("head_dim_count", ctypes.c_int),
        ("masks", ctypes.POINTER(ctypes.c_char_p)),
        ("mask_count", ctypes.c_int),
        ("shared_heads", ctypes.c_int),
        ("deterministic", ctypes.c_int),
        ("compute", ctypes.c_int),
        ("compute_only", ctypes.c_int),
        ("lse_gradient", ctypes.c_int),
    ]


class _Problem(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("B", "H", "Hkv", "Nq", "Nk", "d")] + [
        ("scale", ctypes.c_float),
        ("deterministic", ctypes.c_int),
        ("mask", ctypes.c_char_p),
        ("lse_gradient", ctypes.c_int),
        ("page_size", ctypes.c_int64),
        ("pages", ctypes.c_int64),
        ("splits", ctypes.c_int),
    ]


def mask_text(causal, mask, sink):
    """The mask of a call in the syntax of workbook.h. The first part may be left out: "softcap=50"."""
    is_later = mask is not None and mask.partition("=")[0].partition("+")[0] in _LATER_PARTS
    if mask is None:
        mask = "causal" if causal else "none"
    elif causal:
        both = f", such as mask = causal+{mask}" if is_later else ""
        raise NotServed(f"causal = True, mask = {shortened(mask)}: allowed: only one of the two{shortened(both)}")
    elif is_later:
        mask = "none+" + mask
    for part in parts_of(mask):
        if part in _BY_ARGUMENT:
            raise NotServed(f"mask = {shortened(mask)}: allowed instead of {part}: {_BY_ARGUMENT[part]}")
    return mask if sink is None else mask + "+sink"


def with_lengths(mask, lengths):
    """The mask for packed sequences. Empty sequences have no rows, and a single one needs no mask."""
    lengths = [length for length in lengths if length > 0]
    # range() makes a constant of a number that torch.compile takes for a variable; str() alone would stop it.
    return mask if len(lengths) < 2 else mask + "+lengths=" + ",".join([str(len(range(n))) for n in lengths])


def starts_of(mask):
    """The starts of a mask's packed sequences or documents, then the end of the last; None if it has none."""
    lengths = re.search(r"(?:\+lengths|^documents)=([0-9,]+)", mask)
    return lengths and [0, *itertools.accumulate(int(length) for length in lengths[1].split(",") if length)]


def parts_of(mask):
    """The parts of a mask, by the names that stages use."""
    names = [part.partition("=")[0] for part in mask.split("+")]
    return ["packed" if name == "lengths" else name for name in names]


def _chapters_with(part):
    """The book's chapters that support a part of a mask."""
    found = []
    for file in sorted(pathlib.Path(__file__).resolve().parents[2].glob("chapters/*/chapter.toml")):
        masks = re.search(r"^masks = \[(.*)\]", file.read_text(encoding="utf-8"), re.MULTILINE)
        if masks and f'"{part}"' in masks[1]:
            found.append(str(int(file.parent.name.partition("_")[0])))
    return found


class Stage:
    """One pass of one chapter for one element type."""

    def __init__(self, index, c):
        self.index = index
        self.chapter, self.folder = c.chapter, c.folder.decode()
        self.pass_, self.element = c.pass_.decode(), c.element.decode()
        self.head_dims = tuple(c.head_dims[: c.head_dim_count])
        self.masks = tuple(mask.decode() for mask in c.masks[: c.mask_count])
        self.shared_heads, self.deterministic = bool(c.shared_heads), bool(c.deterministic)
        self.compute, self.compute_only = c.compute, bool(c.compute_only)
        self.lse_gradient = bool(c.lse_gradient)

    def __repr__(self):
        return (
            f"<stage {self.index}: chapter {self.chapter}, {self.pass_}, {self.element}, d in {self.head_dims}, "
            f"masks {', '.join(self.masks)}{', shared heads' if self.shared_heads else ''}"
            f"{', deterministic' if self.deterministic else ''}>"
        )


_with_cache = struct.Struct("Q8x QQ QQ Q8x Q8x 32x Q8x Q8x").pack


def _pack_with_cache(strides, Q, K, V, O, lse, lengths, table):
    address = ctypes.addressof(strides)
    return _with_cache(Q, K, address, V, address, O, lse, lengths, table)


class Plan:
    """The stage for a problem, and the bytes of device memory that it needs in addition to the tensors.

    of: the problem as arguments of Library.plan(), to get the other pass's plan. extras: whether a call has, after the
    addresses of the tensors, those of sinks and of packed sequences' starts, and in a backward pass those of dsink and
    dlse. A call with a cache has the addresses of Q, K, V, O, lse, the lengths and the page table.
    """

    __slots__ = ("stage", "of", "problem", "workspace", "start", "pack", "extras")

    def __init__(self, stage, of, problem, workspace, call, packs, strides=None):
        self.stage, self.of, self.problem, self.workspace = stage, of, problem, workspace
        self.extras = bool(problem.lse_gradient) or "+" in of[-1] or starts_of(of[-1]) is not None
        self.pack = packs[self.extras] if strides is None else functools.partial(_pack_with_cache, strides)
        self.start = functools.partial(call, stage.index, ctypes.addressof(problem))


_copies = {}  # of the files that were loaded, by path and version: descriptors of memory, which stay open


def _copy(name, code):
    """The path of a copy in memory, which no other file of the process ever has."""
    descriptor = os.memfd_create(name)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(code)
    return f"/proc/self/fd/{descriptor}"


def _load(path):
    """The library, from a copy of its file: a process ends whose file is overwritten, and for a path that it knows, the
    operating system's loader returns the first file again."""
    path = os.path.abspath(path)
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise OSError("not a regular file")
    version = path, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
    if version not in _copies:
        code = pathlib.Path(path).read_bytes()
        if code[:4] == b"\x7fELF" and len(code) >= 64:  # the table at its end; a file that ends before it would crash
            begin, size, count = struct.unpack_from("<Q10xHH", code, 40)
            if begin + size * count > len(code):
                raise OSError(f"the file ends after {len(code)} of {begin + size * count} bytes")
        _copies[version] = _copy(os.path.basename(path), code)
    try:
        return ctypes.CDLL(_copies[version])
    except OSError:  # also where nothing may run from such memory
        return ctypes.CDLL(path)


class Library:
    """A shared library built by ./workbook library."""

    def __init__(self, path):
        try:
            self.path = os.fsdecode(path)
            self._c = c = _load(self.path)
            c.workbook_error.restype = c.workbook_backend.restype = ctypes.c_char_p
        except TypeError:
            refuse("path", path, "the path of a library")
        except (OSError, ValueError) as error:  # no file, and no path
            raise Unavailable(f"library {path}: {error}") from None
        except AttributeError as error:
            lacks = str(error).rpartition(": ")[2]
            raise Unavailable(f"library {path}: no {lacks}; allowed: libraries of ./workbook library") from None
        if c.workbook_interface() != INTERFACE:
            raise Unavailable(f"library {path}: its interface is {c.workbook_interface()}; allowed: {INTERFACE}")
        c.workbook_stage_at.argtypes = [ctypes.c_int, ctypes.POINTER(_Stage)]
        c.workbook_workspace.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)]
        self._calls = {}
        for name, tensors, extras, of_cache in (("forward", 5, 2, 2), ("backward", 9, 4, 0)):
            call = getattr(c, f"workbook_{name}")
            call.argtypes = [ctypes.c_int] + [ctypes.c_void_p] * 3 + [ctypes.c_size_t, ctypes.c_void_p]
            # For each tensor: its address, and no strides.
            formats = ("Q8x" * tensors + "16x" * (extras + of_cache), "Q8x" * (tensors + extras) + "16x" * of_cache)
            self._calls[name] = (call, [struct.Struct(each).pack for each in formats])
        self.backend = c.workbook_backend().decode()
        self.stages = []
        for index in range(c.workbook_stage_count()):
            stage = _Stage()
            self._check(c.workbook_stage_at(index, stage))
            self.stages.append(Stage(index, stage))
        self._plans = {}

    def __reduce__(self):  # pickle and deepcopy, since ctypes has neither for its functions
        return Library, (self.path,)

    def _check(self, status):
        if status != 0:
            raise _ERRORS.get(status, WorkbookError)(self._c.workbook_error().decode(errors="replace"))

    def plan(self, pass_, element, sizes, scale, mask, deterministic=False, lse_gradient=False, cache=None):
        """The plan of a problem, with the first stage that supports it.

        pass_: "forward" or "backward"; element: "float16", "bfloat16"; sizes: (B, H, Hkv, Nq, Nk, d); mask: in the
        syntax of workbook.h, "causal" or "window=256,0+softcap=50+alibi+sink+lengths=100,37"; lse_gradient: the loss
        depends on the LSE; cache: (page_size, pages, splits, strides) of a KV cache, with the strides of page, head, key
        and element. NotServed, with each stage's message, if no stage supports it; Unavailable if it cannot run here.
        """
        key = (pass_, element, sizes, scale, mask, deterministic, lse_gradient, cache)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._make_plan(*key)
            if len(self._plans) >= LONGEST_MEMORY:
                self._plans = {}
            self._plans[key] = plan
        return plan

    def head_dims(self, passes, element, parts, shared_heads=False, deterministic=False, lse_gradient=False):
        """The head dimensions for which stages declare all of these passes, with this element type, these parts of a
        mask and so on, in ascending order."""
        of = {name: set() for name in passes}
        for stage in self.stages:
            backward_fits = stage.deterministic >= deterministic and stage.lse_gradient >= lse_gradient
            if (
                stage.pass_ in of and stage.element == element and all(part in stage.masks for part in parts)
                and stage.shared_heads >= shared_heads and (backward_fits or stage.pass_ == "forward")
            ):  # fmt: skip
                of[stage.pass_].update(stage.head_dims)
        return tuple(sorted(set.intersection(*of.values())))

    def dims_to_pad_to(self, *problem):
        """head_dims(), first those with the gradient of the LSE if it is wanted."""
        return self.head_dims(*problem) + self.head_dims(*problem[:-1])

    def _make_plan(self, pass_, element, sizes, scale, mask, deterministic, lse_gradient, cache):
        of_pass = [stage for stage in self.stages if stage.pass_ == pass_]
        stages = [stage for stage in of_pass if stage.element == element]
        if not stages:
            allowed = ", ".join(sorted({stage.element for stage in of_pass})) or "none"
            raise NotServed(f"dtype = {element}: no {pass_} pass of {self.path} supports it; allowed: {allowed}")
        *of_cache, strides = cache or (0, 0, 0, None)
        problem = _Problem(*sizes, scale, int(deterministic), mask.encode(), int(lse_gradient), *of_cache)
        strides = strides and (ctypes.c_int64 * 4)(*strides)
        by_message, worst = {}, NotServed  # the chapters with the same message
        for stage in stages:
            needed = ctypes.c_size_t()
            try:
                self._check(self._c.workbook_workspace(stage.index, ctypes.addressof(problem), needed))
            except (NotServed, Unavailable) as error:
                by_message.setdefault(str(error), []).append(str(stage.chapter))
                worst = type(error)
                continue
            return Plan(stage, (element, sizes, scale, mask), problem, needed.value, *self._calls[pass_], strides)
        P = mask.partition("dropout=")[2].partition(",")[0]

        def as_given(message):  # P before it was rounded, not all of a long mask, and what a caller in Python writes
            message = re.sub("dropout=[0-9.]+", f"dropout={P}", message).replace(mask, shortened(mask))
            return message.replace(", +sink", "; sinks by the argument sink")

        refusals = [
            f"chapter{'s' if len(chapters) > 1 else ''} {', '.join(chapters)}, {pass_}: {as_given(message)}"
            for message, chapters in by_message.items()
        ]
        dims = {d for stage in stages for d in stage.head_dims}
        if cache is None and sizes[-1] not in dims and sizes[-1] > 0:
            larger = [d for d in sorted(dims) if d > sizes[-1]]
            pad = f"pad = True adds columns of zeros up to d = {larger[0]}, and " if larger else ""
            refusals.append(f"d = {sizes[-1]}: in attention() and flash_attn's functions {pad}fallback = True lets "
                            "PyTorch compute it, for tensors")  # fmt: skip
        for part in parts_of(mask) + ([] if cache is None else ["cache"]):
            if not any(part in stage.masks for stage in stages) and (chapters := _chapters_with(part)):
                serves = f"chapter {', '.join(chapters)}"
                refusals.append(f"mask = {mask}: {part} is supported by {serves}; allowed: a library with it")
        raise worst("\n".join(refusals))

    def run(self, plan, addresses, workspace=None, stream=None, keep=()):
        """Starts a stage. addresses: of the tensors in the order of workbook.h, without gaps, aligned to 16 bytes.
        If the plan has extras, the addresses of sinks and so on follow; 0 if the mask does not need one.
        KeyboardInterrupt ends a call on the simulator. keep: the tensors, referenced until the call ends."""
        if self.backend == "sim" and threading.current_thread() is threading.main_thread():
            return self._run_interruptibly(plan, addresses, keep)
        self._run(plan, addresses, workspace, stream)

    def _run(self, plan, addresses, workspace=None, stream=None):
        status = plan.start(plan.pack(*addresses), workspace, plan.workspace, stream)
        if status != 0:
            self._check(status)

    def _run_interruptibly(self, plan, addresses, keep):
        """Calls the library in another thread, since Python delays signal handlers until a call of the main thread
        returns."""
        errors, ended = [], threading.Event()  # Python 3.11 takes a thread for ended whose join() was interrupted

        def call(keep=keep):
            try:
                self._run(plan, addresses)
            except BaseException as error:
                errors.append(error)
            finally:
                ended.set()

        try:
            try:
                threading.Thread(target=call, daemon=True).start()
            except RuntimeError:  # no thread can be started; KeyboardInterrupt then waits for the call
                call()
            ended.wait()
        except BaseException:  # KeyboardInterrupt, or what another signal handler raises
            while not ended.wait(0.05):  # the call may not have begun
                self._c.workbook_interrupt()
            raise
        for error in errors:
            raise error

    def synchronize(self):
        """Waits for the device. Raises KernelFailed or OpenExercise for kernels launched since the last call."""
        self._check(self._c.workbook_synchronize())


_loaded = {}
_lock = threading.Lock()


def load(path):
    """Loads a copy of a library, uses it for all later calls on its backend, and returns it. NotServed for what is no
    path, Unavailable for what is no library."""
    library = Library(path)
    _loaded[library.backend] = library
    return library


def library_for(backend):
    """The library of a backend, "sim" or "cuda". Unavailable, with the command that builds it, if there is none."""
    return library_with("8,9", backend)


def library_with(chapters, backend):
    """library_for(), with the chapters that the command names."""
    if not isinstance(backend, str) or backend not in ("sim", "cuda"):
        refuse("backend", backend, "'sim' and 'cuda'")
    library = _loaded.get(backend)
    if library is not None:
        return library
    with _lock:
        named = [path for path in os.environ.get("WORKBOOK_LIBRARY", "").split(os.pathsep) if path]
        for path in named:
            if not any(known.path == path for known in _loaded.values()):
                load(path)
        book = pathlib.Path(__file__).resolve().parents[2]
        default = book / ".workbook" / "library" / f"libworkbook_{backend}.so"
        if backend not in _loaded and default.exists():
            load(default)
    if backend not in _loaded:
        raise Unavailable(
            f"no library for the backend {backend}, which computes with {_COMPUTES_WITH[backend]}: ./workbook library "
            f"--chapters {chapters} --backend {backend} builds {default}; or name one in WORKBOOK_LIBRARY, which is "
            f"{os.pathsep.join(named) or 'empty'}"
        )
    return _loaded[backend]
