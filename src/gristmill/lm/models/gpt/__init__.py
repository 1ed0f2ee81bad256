"""gpt: a decoder-only transformer that continues text.

options.py         GPTConfig: options and presets
attention.py       rotary positions, attention, and attention masks
block_mask.py      attention masks by blocks of tokens, on a GPU
network.py         GPT: feed-forward layer, block, and the whole network
kernel_step.py     KernelStep: the loss and its gradients, computed with Triton kernels
kernel_blocks.py   the two halves of a block with kernels
kernel_head.py     embedding, head and loss with kernels
kernel_linear.py   a weight and its products, in bfloat16 or in 8-bit floats
cache.py           cache of keys and values for text generation
decoding.py        GPTRows: many texts at once, with CUDA graphs on a GPU
llama.py           conversion of configs to and from transformers and llama.cpp
llama_weights.py   conversion of weights to and from transformers and llama.cpp
"""
