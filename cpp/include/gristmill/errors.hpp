// Exceptions that any stage may throw, in addition to the standard ones.
#pragma once

#include <cstring>
#include <stdexcept>
#include <string>

namespace gristmill {

// A file that grew, shrank or was replaced between its first and its last read.
struct InputChanged : std::runtime_error {
    InputChanged(const std::string& file_path, const std::string& how)
        : std::runtime_error(file_path + " changed while it was read: " + how +
                             ". Nothing was kept; run again when the file is complete."),
          path(file_path) {}
    std::string path;
};
// open(), read() or write() failed. Carries errno and the path for Python's OSError.
struct FileError : std::runtime_error {
    FileError(int error_code, const std::string& file_path)
        : std::runtime_error(file_path + ": " + std::strerror(error_code)), code(error_code), path(file_path) {}
    int code;
    std::string path;
};
// memory_limit is too small even for the result.
struct MemoryLimitExceeded : std::runtime_error {
    using std::runtime_error::runtime_error;
};

}  // namespace gristmill
