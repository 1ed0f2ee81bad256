"""gpu: the stages count and merge on a GPU, with the same results as on the CPU.

    devices.py        which device runs a stage: the request of a caller, and the choice
    driver.py         what the stages need of a GPU, and errors
    cuda.py           that, for CUDA: CuPy's arrays, streams and modules
    modules.py        the CUDA sources of this package as modules, compiled before or at run time
    variants.py       which variant of a module a GPU needs, and its sizes
    state.py          the structs that kernels and host share
    counting.py       count: texts -> a word table in the memory of the GPU
    chunks.py         the text of a count in the memory of one GPU
    word_counts.py    a chunk -> words in the table of its GPU
    word_table.py     that table: it grows, spills to disk, and is listed
    count_kernels.py  the kernels and the state of both
    spilled.py        tables that the memory of a GPU has no room for
    merging.py        merge: words -> ordered merges
    kernels/          the CUDA sources; count.cu and merge.cu have the entry points

Only `cuda.py` imports CuPy, which the extra `gpu` installs. The tests also run the host code with the emulator of
`cpp/tests/cuda_emulator.hpp` in the place of a GPU.
"""
