"""A program that decodes with llama.cpp, greedily, and prints the tokens.

python -m tests.attach.decode MODEL.gguf 2,818,5279,529,7001,563
"""

from __future__ import annotations

import argparse
import sys

from ggmltool.sources.llama.capture.options import CaptureOptions
from tests.sources.reference import Reference


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("tokens")
    parser.add_argument("-n", type=int, default=4, help="how many tokens follow")
    parser.add_argument("--library", default="", metavar="PACKAGE", help="whose llama.cpp it is")
    options = parser.parse_args()
    tokens = [int(token) for token in options.tokens.split(",")]
    llama = Reference(CaptureOptions(n_ctx=512, program="library", library=options.library))
    llama.load(options.model)
    batch, at = tokens, 0
    for _ in range(options.n):
        llama._decode("prompt", at, batch, len(batch) - 1)
        at += len(batch)
        batch = [int(llama.logits(1)[0].argmax())]
        sys.stdout.write(f"{batch[0]}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
