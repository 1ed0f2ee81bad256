"""Importing this module makes batches small, so that a short run reads many of them."""

from gristmill.corpus import batches

batches.BATCH_BYTES = 20_000
batches.MIN_STRETCH_BYTES = 1_000
