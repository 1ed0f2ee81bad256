"""gpt: a decoder that continues text."""
