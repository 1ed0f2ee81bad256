"""gpt: a decoder that continues text.

options.py   GPTConfig: its options, its presets
network.py   GPT: the network, in one file from top to bottom
"""
