"""The package in a process that forks, that can start no thread or allocate no memory, that is interrupted by Ctrl-C,
and whose library is replaced.

test_python.cpp runs it with WORKBOOK_LIBRARY, a library of chapters 8 and 9, and with another library as its argument.
It ends with 1 at the first check that fails.
"""

import os
import pathlib
import resource
import shutil
import signal
import sys
import tempfile
import threading
import time
from unittest import mock

import flash_attention_workbook as workbook
import numpy as np
from numpy_arrays import normal


def fork():
    """A forked child computes, also if the parent has launched kernels before."""
    Q = normal(1, 2, 64, 64)
    O = workbook.attention(Q, Q, Q)
    child = os.fork()
    if child == 0:
        signal.alarm(120)  # ends a child that waits forever
        os._exit(0 if np.array_equal(workbook.attention(Q, Q, Q), O) else 1)
    assert os.waitpid(child, 0)[1] == 0, "the child"
    assert np.array_equal(workbook.attention(Q, Q, Q), O), "the parent"

    # While another thread computes.
    results = []
    thread = threading.Thread(target=lambda: results.append(workbook.attention(Q, Q, Q)))
    thread.start()
    child = os.fork()
    if child == 0:
        signal.alarm(120)
        os._exit(0 if np.array_equal(workbook.attention(Q, Q, Q), O) else 1)
    thread.join()
    assert os.waitpid(child, 0)[1] == 0, "the child of a process that computes"
    assert np.array_equal(results[0], O)

    print("fork")


@mock.patch("threading.Thread.start", side_effect=RuntimeError("can't start new thread"))
def limits(_):
    """Calls without another Python thread, and with little memory: right, or an error."""
    Q = normal(1, 2, 64, 64)
    O = workbook.attention(Q, Q, Q)
    ended = []
    for spare in range(0, 40 << 20, 1 << 20):
        child = os.fork()
        if child == 0:
            signal.alarm(120)
            used = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + spare, resource.RLIM_INFINITY))
            try:
                os._exit(0 if np.array_equal(workbook.attention(Q, Q, Q), O) else 1)
            except MemoryError:
                os._exit(2)
            except workbook.WorkbookError as error:
                said = "not enough memory", "the simulator cannot start a thread: "
                os._exit(2 if str(error).startswith(said) else 3)
        ended.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    assert set(ended) == {0, 2}, ended
    print("limits")


def interrupt():
    """Ctrl-C ends a call that would take many minutes, and the next call is right."""
    Q = normal(1, 2, 64, 64)
    O = workbook.attention(Q, Q, Q)
    long = np.broadcast_to(normal(1, 1, 1, 64), (4, 16, 2048, 64))
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        workbook.attention(long, long, long)
    except KeyboardInterrupt:
        pass
    else:
        raise AssertionError("Ctrl-C was not heard")
    timer.join()
    time.sleep(1)
    assert len(sys._current_frames()) == 1, "the interrupted call goes on in its thread"
    assert np.array_equal(workbook.attention(Q, Q, Q), O), "after Ctrl-C"

    errors = []  # what another thread's call returns that is interrupted

    def call():
        try:
            workbook.attention(long, long, long)
        except workbook.WorkbookError as error:
            errors.append(str(error))

    thread = threading.Thread(target=call)
    thread.start()
    while thread.is_alive():
        workbook.library_for("sim")._c.workbook_interrupt()
        thread.join(0.05)
    assert errors == ["the simulation was interrupted"], errors
    assert np.array_equal(workbook.attention(Q, Q, Q), O), "after an interrupted call"
    print("interrupt")


def reload(other):
    """load() of a file that has been replaced returns the new file's stages, by rename or in place."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "library.so"
        shutil.copy(os.environ["WORKBOOK_LIBRARY"], path)
        first = workbook.load(path)
        assert {stage.chapter for stage in first.stages} == {6, 8, 9}, first.stages
        shutil.copy(other, path.with_suffix(".new"))
        path.with_suffix(".new").rename(path)
        second = workbook.load(path)
        assert {stage.chapter for stage in second.stages} == {15, 16}, second.stages
        assert workbook.library_for("sim") is second
        Q = normal(1, 2, 70, 64)
        O = workbook.attention(Q, Q, Q, mask="window=20,0")
        path.unlink()
        shutil.copy(os.environ["WORKBOOK_LIBRARY"], path)
        third = workbook.load(path)
        assert {stage.chapter for stage in third.stages} == {6, 8, 9}, third.stages
        O_of_third = workbook.attention(Q, Q, Q, causal=True)
        shutil.copy(other, path)  # in place
        assert np.array_equal(workbook.attention(Q, Q, Q, causal=True), O_of_third), "a library that is overwritten"
        assert {stage.chapter for stage in workbook.load(path).stages} == {15, 16}
        plan = second.plan("forward", "float16", (1, 2, 2, 70, 70, 64), 0.125, "window=20,0")
        again, lse = np.empty_like(O), np.empty((1, 2, 70), np.float32)
        second.run(plan, [x.ctypes.data for x in (Q, Q, Q, again, lse)])
        assert np.array_equal(again, O), "a library whose file is gone"
    print("reload")


if __name__ == "__main__":
    fork()
    limits()
    interrupt()
    reload(sys.argv[1])
