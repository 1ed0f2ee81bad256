// Translates native exceptions to Python: OSError with errno and path, and the classes of gristmill.errors.
#include "gristmill/errors.hpp"

#include <cerrno>
#include <new>
#include <stdexcept>
#include <system_error>

#include "bindings.hpp"

namespace gristmill::bindings {
namespace {

void raise_ours(const char* name, const char* message) {
    const nb::object type = nb::module_::import_("gristmill.errors").attr(name);
    const nb::object text = nb::steal(PyUnicode_DecodeFSDefault(message));  // may not be UTF-8
    PyErr_SetObject(type.ptr(), text.ptr());
}

void translate(const std::exception_ptr& pointer, void*) {
    try {
        std::rethrow_exception(pointer);
    } catch (const InputChanged& e) {
        raise_ours("InputChangedError", e.what());
    } catch (const MemoryLimitExceeded& e) {
        raise_ours("MemoryLimitError", e.what());
    } catch (const FileError& e) {
        errno = e.code;
        PyErr_SetFromErrnoWithFilename(PyExc_OSError, e.path.c_str());
    } catch (const Cancelled& e) {
        PyErr_SetString(PyExc_InterruptedError, e.what());
    } catch (const std::length_error& e) {
        raise_ours("CorpusError", e.what());
    } catch (const OutOfMemory& e) {
        PyErr_SetString(PyExc_MemoryError, e.what());
    } catch (const std::bad_alloc&) {
        PyErr_SetString(PyExc_MemoryError, "out of memory");
    } catch (const std::overflow_error& e) {
        raise_ours("CountOverflowError", e.what());
    } catch (const std::system_error& e) {
        errno = e.code().value();
        PyErr_SetFromErrno(PyExc_OSError);
    }
}

}  // namespace

void register_errors(nb::module_&) { nb::register_exception_translator(translate); }

}  // namespace gristmill::bindings
