"""Screenshots of every page of the built book, whole, into _build/screenshots: light, dark, on a phone."""

import sys
from pathlib import Path

from browsing import chromium, draw_figures, new_page, open_page

HTML, SHOTS = Path("_build/html"), Path("_build/screenshots")
LOOKS = {
    "light": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 380, "height": 800}, "color_scheme": "light"},
}

pages = sorted([*HTML.glob("notebooks/*.html"), *HTML.glob("book/*.html"), *HTML.glob("search.html")])
if not pages:
    sys.exit("there is no book in _build/html; make book builds it")
with chromium() as browser:
    for look, options in LOOKS.items():
        for path in pages:
            page, _ = new_page(browser, **options)
            open_page(page, path.resolve().as_uri())
            draw_figures(page)
            shot = SHOTS / look / f"{path.stem}.png"
            page.screenshot(path=shot, full_page=True, animations="disabled")
            print(shot, flush=True)
            page.context.close()
