"""What Python gets: `ggmltool.load(…)` and a method for each command, in the same words.

It asks inspect as the commands do and answers in frozen results, which show themselves by the same views.
"""
