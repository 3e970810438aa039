"""Questions: a folder each, with what is asked, the record that answers it, and a module for each way to show it."""
