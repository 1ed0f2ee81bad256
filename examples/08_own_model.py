"""Your own model in one file, without a change to Gristmill: a language model with a GRU instead of attention.

    gristmill train-model shards -o run --plugin examples/08_own_model.py --model gru --hidden-size 256
    gristmill generate run --plugin examples/08_own_model.py --prompt "Once upon a time"

The config declares the options, which become command-line options and keywords. Its base class selects windows of
tokens as training data. The network takes tokens and returns logits. Gristmill provides everything else: loss,
resuming, evaluation, report, text generation. Run as a script, the file trains the model on a sample corpus in half a
minute.
"""

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

import gristmill as gm


@dataclass(frozen=True, kw_only=True)
class GRUConfig(gm.lm.WindowModelConfig):
    """The options of the model."""

    hidden_size: int = 128
    """Width of the recurrent state."""
    num_layers: int = 1
    """Number of recurrent layers."""

    def check(self) -> None:
        """Raise an error for invalid sizes."""
        if self.hidden_size < 1 or self.num_layers < 1:
            raise gm.OptionError("hidden_size and num_layers must be at least 1.")


@gm.lm.register_model("gru", config=GRUConfig)
class GRUModel(gm.lm.Model):
    """An embedding, a GRU, and the embedding again as the output head."""

    def __init__(self, config: GRUConfig) -> None:
        super().__init__(config)
        self.embedding = nn.Embedding(config.required_vocab_size, config.hidden_size)
        self.gru = nn.GRU(config.hidden_size, config.hidden_size, config.num_layers, batch_first=True)
        nn.init.normal_(self.embedding.weight, std=0.02)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """Return the logits of the token after each of `tokens_BT`."""
        states_BTH, _ = self.gru(self.embedding(tokens_BT))
        return states_BTH @ self.embedding.weight.T


def main(folder: Path) -> None:
    """Train the model on a sample corpus, resume it, and generate text."""
    from gristmill.sample_corpus import write_sample_corpus

    write_sample_corpus(folder / "stories.txt", size=1_000_000, seed=0)
    tok = gm.train_tokenizer(folder / "stories.txt", vocab_size=1_000, progress=None)
    gm.encode_corpus(folder / "stories.txt", tok, out=folder / "shards", val_fraction=0.02, progress=None)
    options = {"model": GRUConfig(context_length=64, hidden_size=128), "batch_size": 16, "learning_rate": 1e-2}
    gm.lm.train(folder / "shards", out=folder / "run", max_steps=100, **options)
    result = gm.lm.train(folder / "shards", out=folder / "run", resume=True, max_steps=150)
    print(f"{result.num_parameters:,} parameters, perplexity {result.perplexity:.1f} after {result.num_steps} steps")
    print(gm.lm.generate(folder / "run", "Once upon a time", max_tokens=40, seed=0))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
