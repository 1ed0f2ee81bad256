"""Triton kernels of a training step on a GPU: each does in one pass over memory what torch does in several.

    float8.py         conversion to 8-bit floats, and their transposes
    scales.py         the scale of each tensor that is converted, from the largest number of the step before
    rms_norm.py       addition to the residual stream, and its norm
    rope.py           norm and rotation of queries and keys; the gradient of q, k and v in one matrix
    swiglu.py         silu(gate) * up
    cross_entropy.py  the loss, with its gradient written over the logits
    embedding.py      the gradient of the embedding
    adamw.py          AdamW for all weights in one launch
    tables.py         the tensors that AdamW updates together
    weight_copies.py  the copies of weights that products read
    products.py       matrix products of these tensors
    launching.py      where kernels run

Every kernel has a function in plain torch next to it, named `plain_…`, which is its specification. Tests compare the
two. Kernels add numbers in a fixed order, so the same step gives the same bits; the one exception is in embedding.py.

This package needs Triton, which the CUDA builds of torch install. `lm/models/gpt/kernel_step.py` uses it.

Letters in shapes: N tokens, D d_model, F d_ff, H query heads and G key heads of size K, V vocabulary size.
"""
