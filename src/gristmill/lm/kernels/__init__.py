"""Triton kernels of a training step on a GPU: each does in one pass over memory what torch does in several.

    float8.py         conversion to 8-bit floats, and their transposes
    scales.py         the scale of each tensor that is converted, from the largest number of the step before
    rms_norm.py       addition to the residual stream, and its norm
    rope.py           norm and rotation of queries and keys; the gradient of q, k and v in one matrix
    swiglu.py         silu(gate) * up
    cross_entropy.py  the loss, with its gradient written over the logits
    embedding.py      the gradient of the embedding
    adamw.py          AdamW for all weights of a parameter group in one launch
    tables.py         the tensors that AdamW updates together
    weight_copies.py  the copies of weights that products read
    products.py       matrix products of these tensors
    launching.py      where kernels run

A function in plain torch next to a kernel, named `plain_…`, is its specification, and tests compare the two. The
backward kernels of rms_norm.py, rope.py and swiglu.py have none: tests compare them with autograd of the `plain_…`
function of the forward kernel, and the transpose in float8.py with torch's. Kernels add numbers in a fixed order, so
the same step gives the same bits; the one exception is in embedding.py.

This package needs Triton, which the CUDA builds of torch install. `lm/models/gpt/kernel_step.py` uses it.

Letters in shapes: N tokens, D d_model, F d_ff, H query heads and G key heads of size K, V vocabulary size.
"""
