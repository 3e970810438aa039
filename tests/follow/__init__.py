"""What another ggml does otherwise than a release of ggmltool: `python -m tests.follow --library PATH`."""
