"""CudaDriver without a GPU: which errors of CuPy become which errors of Gristmill, and where kernels come from."""

from __future__ import annotations

import builtins
import os
import sys
import threading
import types
from pathlib import Path

import pytest
from fake_cupy import CompileException, CUDADriverError, CUDARuntimeError, OutOfMemoryError, make_cupy

from gristmill.errors import DeviceError, DeviceMemoryError
from gristmill.gpu import cuda, devices, modules, variants
from gristmill.gpu.cuda import CudaDriver, CudaGpus
from gristmill.gpu.devices import Device, open_gpus

NO_DRIVER = "cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version"


@pytest.fixture
def found(monkeypatch):
    """Let this CuPy be imported, in a process that has used no GPU."""
    monkeypatch.setattr(devices, "gpus", CudaGpus())

    def use(cupy):
        monkeypatch.setitem(sys.modules, "cupy", cupy)
        return cupy

    return use


@pytest.fixture
def built(monkeypatch, tmp_path):
    """The folder of the binaries, without any."""
    monkeypatch.setattr(modules, "BUILT", tmp_path)
    return tmp_path


def raising(error):
    def fail(*_):
        raise error

    return fail


def test_every_gpu_is_a_driver(found):
    found(make_cupy(num_devices=3))
    drivers = open_gpus()
    assert [driver.name for driver in drivers] == [f"GPU of a test (GPU {i})" for i in range(3)]
    assert open_gpus() == drivers and open_gpus(most=1) == drivers[:1]
    assert (drivers[0].num_multiprocessors, drivers[0].shared_bytes) == (4, 227 << 10)


def test_a_machine_without_cupy_gets_the_command_that_installs_it(found, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(DeviceError, match=r'CuPy.* is not installed.*pip install "gristmill\[gpu\]"'):
        open_gpus()


@pytest.mark.parametrize(
    "rest", ["", "raise AttributeError('no product')", "raise ImportError('====\\n no libcuda \\n===')"]
)
def test_a_broken_cupy_is_an_error_and_not_a_crash(monkeypatch, tmp_path, rest):
    (tmp_path / "cupy.py").write_text(rest)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.setattr(devices, "gpus", CudaGpus())
    with pytest.raises(DeviceError, match=r"imported: (module 'cupy' has no|no product|no libcuda).*Uninstall"):
        open_gpus()
    sys.modules.pop("cupy", None)


def test_memory_is_released_without_waiting_for_another_thread():
    driver = CudaDriver(make_cupy(), 0)
    used = []
    with driver.active():
        thread = threading.Thread(target=lambda: used.append(driver.release()))
        thread.start()
        thread.join(20)
        assert used == [None]
    driver.release()
    assert driver._pool.is_free


def test_a_machine_without_a_gpu(found):
    found(make_cupy(num_devices=0))
    with pytest.raises(DeviceError, match=r"CUDA finds no GPU\."):
        open_gpus()


def test_a_machine_without_a_driver_learns_what_to_install(found):
    cupy = found(make_cupy())
    cupy.cuda.runtime.getDeviceCount = raising(CUDARuntimeError(35, NO_DRIVER))
    with pytest.raises(
        DeviceError, match=r"driver is missing, or too old for this version of CuPy \(cudaError.*update"
    ):
        open_gpus()
    cupy.cuda.runtime.getDeviceCount = raising(CUDARuntimeError(100, "cudaErrorNoDevice: no device"))
    with pytest.raises(DeviceError, match=r"CUDA finds no GPU: cudaErrorNoDevice: no device\.$"):
        open_gpus()


@pytest.mark.parametrize(
    ("capability", "shared_kib", "message"),
    [((6, 1), 96, r"has compute capability 6\.1, and Gristmill needs 7\.0"), ((7, 5), 64, r"64 KiB .* needs 96 KiB")],
)
def test_a_gpu_that_is_too_old_says_why(found, capability, shared_kib, message):
    found(make_cupy(capability, shared_kib))
    with pytest.raises(DeviceError, match=message):
        open_gpus()


def test_a_gpu_that_cannot_be_used_does_not_hide_the_others(found):
    cupy = found(make_cupy(num_devices=2))
    properties = cupy.cuda.runtime.getDeviceProperties

    def fail_for_the_first(index):
        if index == 0:
            raise CUDARuntimeError(46, "cudaErrorDevicesUnavailable: busy")
        return properties(index)

    cupy.cuda.runtime.getDeviceProperties = fail_for_the_first
    assert [driver.name for driver in open_gpus()] == ["GPU of a test (GPU 1)"]


def test_a_gpu_is_opened_only_if_it_is_used(found, monkeypatch):
    cupy = found(make_cupy(num_devices=3))
    opened = []
    properties = cupy.cuda.runtime.getDeviceProperties
    cupy.cuda.runtime.getDeviceProperties = lambda index: opened.append(index) or properties(index)
    Device.checked("cuda:2")
    assert opened == [2]
    monkeypatch.setattr(devices, "gpus", CudaGpus())
    monkeypatch.setattr(devices, "_may_have_gpu", lambda: True)
    (driver,) = Device.checked("auto").for_text(10**12, num_threads=2).drivers
    assert opened == [2, 0] and driver.name == "GPU of a test (GPU 0)"


def test_a_number_is_that_of_cuda_even_if_an_earlier_gpu_cannot_be_used(found):
    cupy = found(make_cupy(num_devices=2))
    properties = cupy.cuda.runtime.getDeviceProperties
    cupy.cuda.runtime.getDeviceProperties = lambda index: properties(index) | ({"major": 5} if index == 0 else {})
    assert Device.checked("cuda:1")._open()[0].name == "GPU of a test (GPU 1)"
    with pytest.raises(DeviceError, match=r"device='cuda:0' cannot be used: .*has compute capability 5\.0"):
        Device.checked("cuda:0")


def test_a_gpu_without_memory_is_tried_again(found, monkeypatch):
    cupy = found(make_cupy())
    stream = cupy.cuda.Stream
    cupy.cuda.Stream = lambda **_: raising(CUDARuntimeError(2, "cudaErrorMemoryAllocation: out of memory"))()
    with pytest.raises(DeviceMemoryError, match=r"device='cuda' cannot be used: .*memory.*pass device='cpu'"):
        Device.checked("cuda")
    monkeypatch.setattr(devices, "_may_have_gpu", lambda: True)
    device = Device.checked("auto")
    choice = device.for_text(10**12, num_threads=2)
    assert choice.drivers == () and "no GPU can be used: CUDA has not enough memory" in choice.reason
    cupy.cuda.Stream = stream
    assert len(device.for_text(10**12, num_threads=2).drivers) == 1
    Device.checked("cuda")


def test_a_forked_process_is_told_why_it_has_no_gpu(found):
    found(make_cupy())
    open_gpus()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            open_gpus()
        except DeviceError as error:
            os.write(write, str(error).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 999) == (
        b"CUDA cannot be used in this process, because it was forked from a process that uses a GPU. Start it with the "
        b"method 'spawn'."
    )
    assert len(open_gpus()) == 1


def test_a_gpu_whose_memory_others_use_is_a_memory_error():
    cupy = make_cupy()
    cupy.cuda.Stream = lambda **_: raising(CUDARuntimeError(2, "cudaErrorMemoryAllocation: out of memory"))()
    with pytest.raises(DeviceMemoryError, match=r"not enough memory on .* cudaErrorMemoryAllocation"):
        CudaDriver(cupy, 0)


@pytest.mark.parametrize("error", [FileNotFoundError, PermissionError])
def test_cupy_has_another_cache_if_it_cannot_make_its_own(found, monkeypatch, tmp_path, error):
    """CuPy makes the folder when it is imported, and its import fails if it cannot."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path / "file" / "cache"))
    cupy, folders = make_cupy(), []
    load = builtins.__import__

    def import_cupy(name, *others):
        if name != "cupy":
            return load(name, *others)
        folders.append(os.environ["CUPY_CACHE_DIR"])
        Path(folders[-1]).mkdir(parents=True, exist_ok=True)
        return cupy

    monkeypatch.setattr(builtins, "__import__", import_cupy)
    assert open_gpus()[0].name == "GPU of a test (GPU 0)"
    assert not folders[0].startswith(str(tmp_path)) and os.environ["CUPY_CACHE_DIR"].startswith(str(tmp_path))
    monkeypatch.setattr(devices, "gpus", CudaGpus())
    monkeypatch.setattr(cuda, "_temporary_cache", raising(error("no folder for temporary files")))
    with pytest.raises(DeviceError, match="cannot be imported: no folder"):
        open_gpus()


def test_kernels_are_kept_in_memory_where_the_cache_cannot_be_written(built, monkeypatch):
    monkeypatch.delenv("CUPY_CACHE_IN_MEMORY", raising=False)
    cupy = make_cupy()

    def write_cache(arguments):
        if "CUPY_CACHE_IN_MEMORY" not in os.environ:
            raise PermissionError(13, "Permission denied")

    cupy.compile = write_cache
    variants.load_merge(CudaDriver(cupy, 0), "u16", "smallest-ids")
    assert len(cupy.compiled) == 1 and "CUPY_CACHE_IN_MEMORY" not in os.environ
    assert "-DGRISTMILL_SHARED_KIB=227" in cupy.compiled[0]["options"]


def test_a_module_is_compiled_once(built):
    cupy = make_cupy()
    driver = CudaDriver(cupy, 0)
    assert variants.load_count(driver, "gpt2") is variants.load_count(driver, "gpt2")
    assert len(cupy.compiled) == 1
    assert variants.load_count(driver, "o200k") is not variants.load_count(driver, "gpt2")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (CompileException("kern.cu(1): error"), r"has failed: kern\.cu\(1\): error"),
        (
            RuntimeError('Failure finding "libnvrtc.so.12"'),
            r"NVRTC.* cannot be used: Failure finding .*gristmill\[gpu\]",
        ),
        (CUDADriverError("CUDA_ERROR_NO_BINARY_FOR_GPU"), "has failed: CUDA_ERROR_NO_BINARY_FOR_GPU"),
    ],
)
def test_kernels_that_cannot_be_compiled_are_a_device_error(built, error, message):
    cupy = make_cupy()
    cupy.compile = raising(error)
    driver = CudaDriver(cupy, 0)
    with pytest.raises(DeviceError, match=message), driver.active():
        variants.load_merge(driver, "u16", "first-seen")


@pytest.mark.parametrize(
    ("capability", "shared_kib", "built_for", "built_kib", "is_used"),
    [
        ((9, 0), 227, (9, 0), 227, True),
        ((10, 3), 227, (10, 0), 227, True),
        ((8, 9), 99, (8, 0), 96, True),
        ((8, 9), 99, (8, 0), 163, False),  # too much shared memory
        ((8, 0), 163, (8, 6), 163, False),  # a higher minor capability
        ((9, 0), 227, (8, 0), 227, False),
        ((12, 0), 99, (10, 0), 96, False),
    ],
)
def test_a_binary_of_the_same_major_capability_and_the_same_shape_is_used(
    built, capability, shared_kib, built_for, built_kib, is_used
):
    shape = next(shape for shape in variants.SHAPES if shape.shared_kib == built_kib)
    defines = variants.merge_defines(shape, "u32", "huggingface")
    path = modules.path_of_binary("merge", defines, built_for)
    path.touch()
    cupy = make_cupy(capability, shared_kib)
    variants.load_merge(CudaDriver(cupy, 0), "u32", "huggingface")
    (arguments,) = cupy.compiled
    assert arguments.get("path") == (str(path) if is_used else None)


def test_the_binary_for_the_exact_capability_comes_first(built):
    shape = variants.SHAPES[-1]
    paths = [modules.path_of_binary("count", variants.count_defines(shape, "gpt2"), (8, minor)) for minor in (0, 6, 9)]
    for path in paths:
        path.touch()
    cupy = make_cupy((8, 6), 99)
    variants.load_count(CudaDriver(cupy, 0), "gpt2")
    assert cupy.compiled[0]["path"] == str(paths[1])


def test_kernels_are_compiled_if_the_driver_refuses_a_binary(built):
    """A driver of CUDA 12 cannot load what the compiler of CUDA 13 has made."""
    modules.path_of_binary("count", variants.count_defines(variants.SHAPES[0], "gpt2"), (9, 0)).touch()
    cupy = make_cupy()

    def refuse_binaries(arguments):
        if "path" in arguments:
            raise CUDADriverError("CUDA_ERROR_INVALID_IMAGE: device kernel image is invalid")

    cupy.compile = refuse_binaries
    variants.load_count(CudaDriver(cupy, 0), "gpt2")
    assert [set(arguments) for arguments in cupy.compiled] == [{"code", "options"}]


def test_too_little_memory_is_a_memory_error():
    cupy = make_cupy()
    driver = CudaDriver(cupy, 0)
    message = "the memory of GPU of a test .* is full: Out of memory allocating 1,000"
    with pytest.raises(DeviceMemoryError, match=message), driver.active():
        driver._pool.malloc(1000)
    assert driver._pool.is_free
    with driver.active(), pytest.raises(DeviceMemoryError), driver.translated():
        raise OutOfMemoryError("full")


def test_a_lost_gpu_is_one_device_error_even_if_nothing_works_any_more():
    cupy = make_cupy()
    driver = CudaDriver(cupy, 0)
    lost = CUDARuntimeError(700, "cudaErrorIllegalAddress: an illegal memory access was encountered")
    later = CUDARuntimeError(999, "cudaErrorUnknown: of the clean-up")
    driver._copies.synchronize = driver._kernels.synchronize = driver._pool.free_all_blocks = raising(later)
    message = r"GPU of a test.*IllegalAddress.*Start a new process, or pass device='cpu'"
    with pytest.raises(DeviceError, match=message), driver.active(), driver.active():
        raise lost


def test_memory_is_freed_although_streams_fail():
    driver = CudaDriver(make_cupy(), 0)
    driver._copies.synchronize = raising(CUDARuntimeError(999))
    waited = []
    driver._kernels.synchronize = lambda: waited.append(1)
    with driver.active():
        pass
    assert waited and driver._pool.is_free


def test_ctrl_c_stays_ctrl_c_if_the_clean_up_fails():
    driver = CudaDriver(make_cupy(), 0)
    driver._pool.free_all_blocks = raising(CUDARuntimeError(999))
    with pytest.raises(KeyboardInterrupt), driver.active():
        raise KeyboardInterrupt


def test_errors_of_the_program_are_not_errors_of_the_gpu():
    driver = CudaDriver(make_cupy(), 0)
    with pytest.raises(ZeroDivisionError), driver.active():
        raise ZeroDivisionError


def test_installed_cupy_has_what_the_driver_uses():
    """Without a GPU, only that the names exist can be tested."""
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed", exc_type=ImportError)
    fake = make_cupy()
    for name, value in vars(fake.cuda).items():
        assert hasattr(cupy.cuda, name), name
        for inner in vars(value) if isinstance(value, types.SimpleNamespace) else ():
            assert hasattr(getattr(cupy.cuda, name), inner), f"{name}.{inner}"
    assert {"get_function", "compile"} <= set(dir(cupy.RawModule))
    assert {"kernel", "max_dynamic_shared_size_bytes"} <= set(dir(cupy.RawKernel))
    assert {"memset_async", "copy_from_host_async", "ptr"} <= set(dir(cupy.cuda.MemoryPointer))
    assert {"done", "record", "synchronize"} <= set(dir(cupy.cuda.Event))
    assert {"wait_event", "synchronize"} <= set(dir(cupy.cuda.Stream))
