"""Small trainings with real libraries. Each prints at its end how many steps it has done.

`python -m tests.training.programs` runs them all under a relay and writes their output to
`tests/data/training`. It needs torch, tqdm, transformers, accelerate and lightning.
"""
