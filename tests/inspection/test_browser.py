"""The page of a model's figures, in a real browser."""

import shutil

import pytest

from keras_vit.inspection.report import write_report
from keras_vit.models import vision_transformer
from tests.fixtures.tiny import TINY, images

pytestmark = pytest.mark.browser
# Chromium's own services ask for the network; root may not have its sandbox.
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--no-first-run"),
)


@pytest.fixture
def browser(tmp_path):
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    for flag in (*FLAGS, f"--user-data-dir={tmp_path / 'profile'}"):
        options.add_argument(flag)
    options.binary_location = shutil.which("chromium")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    yield driver
    driver.quit()


def test_the_page_shows_every_figure_without_errors(browser, tmp_path):
    model = vision_transformer(**{**TINY, "image_size": (8, 16)})
    page = write_report(model, images(2, 8, 16, 3), tmp_path / "seen")
    # Nothing but the page itself.
    sent = tmp_path / "sent.html"
    shutil.copy(page, sent)
    browser.get(sent.as_uri())
    shown = browser.execute_script(
        "return Array.from(document.images, i => i.complete && i.naturalWidth > 0)"
    )
    assert shown == [True] * 7
    assert browser.get_log("browser") == []
