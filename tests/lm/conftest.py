"""Folders shared by the tests of training."""

import pytest


@pytest.fixture(scope="session")
def tiny_shards(tmp_path_factory):
    from lm.tiny_runs import build_shards

    return build_shards(tmp_path_factory.mktemp("tiny") / "shards")
