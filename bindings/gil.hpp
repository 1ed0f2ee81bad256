// The GIL, let go and taken back in a way that survives an interpreter that exits.
//
// Native work may run on a daemon thread, and the interpreter may exit meanwhile. A thread that then asks for the GIL
// never gets it: Python 3.14 blocks the thread for good, earlier versions end it by pthread_exit(). With glibc that
// unwinds the stack like an exception, and to unwind through a destructor, a noexcept function or a handler that does
// not rethrow is std::terminate(). Other systems free the stack, which other threads of the core still use. So the
// thread is blocked here, as 3.14 does it, and the process exits around it.
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

// Returns what `call()` returns, a function of Python's C API. These throw nothing: what unwinds from them is the end
// of this thread.
template <class Call>
auto call_python(const Call& call) noexcept -> decltype(call()) {
    try {
        return call();
    } catch (...) {
        block_until_exit();
    }
}

// Lets go of the GIL for as long as it lives; takes the place of nb::gil_scoped_release.
class GilReleased {
  public:
    GilReleased() : was_exiting_(interpreter_exits()), state_(PyEval_SaveThread()) {}
    GilReleased(const GilReleased&) = delete;
    GilReleased& operator=(const GilReleased&) = delete;
    ~GilReleased() { take(); }

    // Calls `work()` with the GIL, on the thread that let it go.
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
        // Only the thread that ends the interpreter has had the GIL since it began to: that one may have it again.
        if (!was_exiting_ && interpreter_exits()) block_until_exit();
        call_python([this] { PyEval_RestoreThread(state_); });
    }

    const bool was_exiting_;
    PyThreadState* state_;
};

}  // namespace gristmill::bindings
