"""What is raised while C runs: by callbacks, and by the handlers of signals."""
from __future__ import annotations

import functools
import os
import sys
import threading
import _signal   # `signal` makes enums of all numbers, which takes thirty times as long
import _thread
from typing import Any, Callable

from .errors import CancelledError


class Caught:
    """What callbacks raise, which can't go through C: it waits here until the call has returned.

        caught = Caught()
        options = struct(…, on_step=caught.callback(_ffi.mm_train_fn, told))
        with caught:
            lib.mm_trainer_run(…)     # then raises what `told` has raised

    So does what the handlers of signals raise, such as KeyboardInterrupt, where it would go through C: they run where Python
    does, and in a call that is where a callback begins or ends, outside of any `try` of it."""

    _inside: list[Caught] = []   # calls of the main thread, the innermost last
    _forks_from_main = True

    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self.in_python = False   # within a callback, whose `try` sees to what is raised

    def callback(self, kind: Any, function: Callable[..., int], failed: int = 1) -> Any:
        """`function` for C; once anything was raised it is called no more, and C is told `failed`."""

        def called(*arguments: Any) -> int:
            if self.errors:
                return failed
            try:
                self.in_python = True
                return function(*arguments)
            except BaseException as error:
                self.in_python = False
                self.errors.append(error)
                return failed
            finally:
                self.in_python = False

        return kind(called)

    def __enter__(self) -> None:
        self.errors.clear()
        if threading.current_thread() is not threading.main_thread():
            return
        for number in _SIGNALS:
            handler = _signal.getsignal(number)
            if callable(handler) and not isinstance(handler, _Guarded):
                _set_handler(number, _Guarded(handler))
        Caught._inside.append(self)   # from here on nothing is raised, so that it is taken out again

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        try:
            if threading.current_thread() is threading.main_thread():
                Caught._inside.remove(self)
                if not Caught._inside:
                    for number in _SIGNALS:   # a guard that is left does nothing
                        handler = _signal.getsignal(number)
                        if isinstance(handler, _Guarded):
                            _set_handler(number, handler.handler)
            self.errors.sort(key=lambda one: isinstance(one, Exception))   # KeyboardInterrupt before others
            if self.errors:
                raise self.errors[0] from (None if isinstance(error, CancelledError) else error)
        finally:
            self.errors.clear()
            del error, trace   # they hold this frame


class PutOff(Caught):
    """For the end of a generator, which may be that of its last reference: what is raised there Python only prints. The
    handlers of signals that come meanwhile run when this object is gone, with the generator's frame if it is a local of it."""

    def __init__(self) -> None:
        super().__init__()
        self.signals: dict[int, Any] = {}

    def put_off(self, number: int) -> None:
        """Let a signal come again later, once however often it came."""
        if number not in self.signals:   # one that is replaced would end here
            self.signals[number] = _again(number)()

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        super().__exit__(kind, error, trace)
        if error is not None:   # whoever keeps it keeps the frame
            self.signals.clear()


@functools.lru_cache(maxsize=None)
def _again(number: int) -> type:
    """Objects that send a signal with their end. In a __del__ of Python's the handler would run at once; this one is C."""
    # From 3.10 on raise_signal() runs the handler too; before, interrupt_main() took no number.
    send = _thread.interrupt_main if sys.version_info >= (3, 10) else _signal.raise_signal
    return type("_Again", (), {"__slots__": (), "__del__": staticmethod(functools.partial(send, number))})


class _Guarded:
    """A signal's handler whose exceptions wait for the call that they would be lost in."""

    def __init__(self, handler: Callable[..., Any]) -> None:
        self.handler = handler

    def __call__(self, number: int, frame: Any) -> None:
        for call in Caught._inside:
            if isinstance(call, PutOff):
                call.put_off(number)
                return
        try:
            self.handler(number, frame)
        except BaseException as error:
            if not Caught._inside or Caught._inside[-1].in_python:
                raise
            Caught._inside[-1].errors.append(error)


def _about_to_fork() -> None:
    Caught._forks_from_main = threading.current_thread() is threading.main_thread()


def _forget_calls() -> None:
    """In a child: the main thread's calls are there only if it was that which forked."""
    if not Caught._forks_from_main:
        Caught._inside.clear()


os.register_at_fork(before=_about_to_fork, after_in_child=_forget_calls)
_SIGNALS = tuple(int(number) for number in _signal.valid_signals())


def _set_handler(number: int, handler: Callable[..., Any]) -> None:
    try:
        _signal.signal(number, handler)
    except ValueError:   # not the main interpreter
        pass
