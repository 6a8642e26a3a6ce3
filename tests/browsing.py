"""Headless Chromium without a network, for the tests and the screenshots of the book's pages."""

import shutil
from contextlib import contextmanager

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextmanager
def chromium():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield browser
        browser.close()


def new_page(browser, **options):
    """A page in a context of its own, offline, and a list that takes in whatever goes wrong on it."""
    page, problems = browser.new_context(offline=True, **options).new_page(), []
    page.on("console", lambda message: message.type == "error" and problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("requestfailed", lambda request: problems.append(request.url))
    page.set_default_timeout(300_000)
    return page, problems


# A frame has been drawn, and the main thread has nothing left to do.
IDLE = "new Promise((idle) => requestAnimationFrame(() => requestIdleCallback(idle)))"


def open_page(page, address):
    """Open it, until its files have loaded, what is in view is drawn and the main thread is idle."""
    page.goto(address)
    page.evaluate(IDLE)


def draw_figures(page):
    """Come by every figure, as a reader does: each is drawn when it is near."""
    page.evaluate(
        f"""async () => {{
            for (const div of document.querySelectorAll(".plotly-graph-div")) {{
                div.scrollIntoView({{ behavior: "instant" }});
                await {IDLE};
            }}
            scrollTo({{ top: 0, behavior: "instant" }});
            await {IDLE};
        }}"""
    )


def serious(page, within="html"):
    """What axe-core calls serious or critical, text's contrast included: each rule with its first element."""
    # Without a preload: it would ask for the style sheets again, which a page from disk may not.
    options = {"resultTypes": ["violations"], "preload": False}
    found = Axe().run(page, context=within, options=options).response["violations"]
    return [f"{v['id']}: {v['nodes'][0]['html']}" for v in found if v["impact"] in ("serious", "critical")]
