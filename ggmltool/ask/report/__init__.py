"""One page that explains a graph to somebody who was not there."""
