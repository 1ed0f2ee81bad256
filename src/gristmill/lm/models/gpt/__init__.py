"""gpt: a decoder that continues text.

options.py         GPTConfig: its options, its presets
attention.py       rotary positions, attention, and who may attend to whom
network.py         GPT: the network, in one file from top to bottom
cache.py           keys and values of the tokens so far, when it writes text
llama.py           its sizes in configs of transformers and llama.cpp, and back
llama_weights.py   its weights under their names, and back
"""
