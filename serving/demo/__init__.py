"""The demo checkpoints: two tiny MiMo-style models with an MTP layer, and everything that makes them.

`questions` says what they can answer, `train` builds them, `measure` says how well they do it.
"""
