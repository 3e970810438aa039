"""What a person sees: records become text, tables, pictures, pages and JSON documents.

Grouped as the commands are; `table`, `text`, `palette` and `json_text` are what all of them share.
"""
