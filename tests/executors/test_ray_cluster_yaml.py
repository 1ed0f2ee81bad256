"""The cluster file for Ray's launcher: Ray accepts it, and it installs the version of this package."""

from __future__ import annotations

from pathlib import Path

import pytest

import gristmill as gm

yaml = pytest.importorskip("yaml")
pytest.importorskip("ray")
jsonschema = pytest.importorskip("jsonschema")

EXAMPLE = Path(__file__).parents[2] / "examples" / "ray_cluster.yaml"


def test_ray_accepts_the_cluster_file_and_it_installs_this_version():
    from ray.autoscaler._private.util import prepare_config, validate_config

    config = prepare_config(yaml.safe_load(EXAMPLE.read_text(encoding="utf-8")))
    validate_config(config)
    assert config["available_node_types"]["head"]["resources"] == {"CPU": 0}
    assert any(f"'gristmill[ray]=={gm.__version__}'" in command for command in config["setup_commands"])
    wrong = {**config, "max_worker": 3}
    with pytest.raises(jsonschema.ValidationError, match="max_worker"):  # the check can fail
        validate_config(wrong)
