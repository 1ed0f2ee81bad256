"""gpt: a decoder that continues text.

options.py         GPTConfig: its options, its presets
attention.py       rotary positions, attention, and who may attend to whom
block_mask.py      who may attend to whom by blocks of tokens, on a GPU
network.py         GPT: feed-forward, block and the whole network
cache.py           keys and values of the tokens so far, when it writes text
decoding.py        GPTRows: many texts at once, on a GPU by CUDA graphs
llama.py           its sizes in configs of transformers and llama.cpp, and back
llama_weights.py   its weights under their names, and back
"""
