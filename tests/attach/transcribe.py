"""A program that has whisper.cpp write down what it hears in a second of noise."""

import sys

import numpy as np
from pywhispercpp.model import Model

model = Model(sys.argv[1], n_threads=1, max_tokens=8, temperature_inc=0.0, print_progress=False)
noise = np.random.default_rng(0).normal(0, 0.1, 16000).astype(np.float32)
for segment in model.transcribe(noise):
    print(segment.text)
