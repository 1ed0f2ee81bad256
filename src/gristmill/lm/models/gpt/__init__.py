"""gpt: a decoder that continues text.

options.py     GPTConfig: its options, its presets
attention.py   rotary positions, attention, and who may attend to whom
block_mask.py  who may attend to whom by blocks of tokens, on a GPU
network.py     GPT: the network, in one file from top to bottom
cache.py       keys and values of the tokens so far, when it writes text
"""
