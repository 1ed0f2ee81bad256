// Releases and reacquires the GIL in a way that survives the exit of the interpreter.
//
// Native work may run on a daemon thread while the interpreter exits. A thread that then requests the GIL never gets
// it: Python 3.14 blocks the thread forever, earlier versions end it with pthread_exit(). In glibc that unwinds the
// stack like an exception, and unwinding through a destructor, a noexcept function or a handler that does not rethrow
// calls std::terminate(). Other systems free the stack, which other threads of the core still use. So the thread is
// blocked here, as in Python 3.14, and the process exits without it.
#pragma once

#include <Python.h>
#include <unistd.h>

namespace gristmill::bindings {

[[noreturn]] inline void block_until_exit() {
    for (;;) ::pause();
}

inline bool interpreter_exits() {
#if PY_VERSION_HEX >= 0x030d0000
    return Py_IsFinalizing() != 0;
#else
    return _Py_IsFinalizing() != 0;
#endif
}

// Returns the result of `call()`, a function of Python's C API. These functions never throw; an unwinding from them is
// the end of this thread.
template <class Call>
auto call_python(const Call& call) noexcept -> decltype(call()) {
    try {
        return call();
    } catch (...) {
        block_until_exit();
    }
}

// Releases the GIL during its lifetime; replaces nb::gil_scoped_release.
class GilReleased {
  public:
    GilReleased() : was_exiting_(interpreter_exits()), state_(PyEval_SaveThread()) {}
    GilReleased(const GilReleased&) = delete;
    GilReleased& operator=(const GilReleased&) = delete;
    ~GilReleased() { take(); }

    // Calls `work()` with the GIL, on the thread that released it.
    template <class Work>
    void with_gil(const Work& work) {
        take();
        struct LetGoAgain {
            ~LetGoAgain() { state = PyEval_SaveThread(); }
            PyThreadState*& state;
        } const again{state_};
        work();
    }

  private:
    void take() noexcept {
        // Once finalization has begun, only the finalizing thread has held the GIL, and only it may take it again.
        if (!was_exiting_ && interpreter_exits()) block_until_exit();
        call_python([this] { PyEval_RestoreThread(state_); });
    }

    const bool was_exiting_;
    PyThreadState* state_;
};

}  // namespace gristmill::bindings
