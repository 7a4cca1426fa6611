"""Experiments: thin Hydra entry points over ``bo_tuner``. The only room that knows Hydra."""
