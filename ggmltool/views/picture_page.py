"""A picture as a page of its own, for whoever has a browser and no viewer of SVG."""

from __future__ import annotations

import re
from html import escape

from ggmltool.views.palette import DARK, LIGHT
from ggmltool.views.text import printable

_PROLOG = re.compile(r"\A.*?(?=<svg\b)", re.DOTALL)
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def picture_page(svg: str, title: str) -> str:
    """The page: the drawing as it is, nothing that runs, nothing from elsewhere."""
    rules = (
        f":root{{color-scheme:light dark}}body{{margin:16px;background:{LIGHT.paper}}}svg{{max-width:100%;height:auto}}"
        f"@media screen and (prefers-color-scheme:dark){{body{{background:{DARK.paper}}}}}"
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>{escape(printable(title))}</title>\n<style>{rules}</style>\n</head>\n<body>\n<main>\n"
        f"{_PROLOG.sub('', svg, count=1).rstrip()}\n</main>\n</body>\n</html>\n"
    )
