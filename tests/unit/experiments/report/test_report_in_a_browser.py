"""The report's page in a browser: on a phone, a desktop and paper, dark, by keyboard, without script."""

from __future__ import annotations

import base64
import io
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from PIL import Image
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from experiments.campaign.campaign import open_campaign
from experiments.report.narrow import NARROW, WIDE
from experiments.report.writer import write_report
from experiments.util.paths import REPOSITORY
from tests.unit.experiments.browser import CHROMEDRIVER, CHROMIUM, LACKING, Browser, chromium, pages
from tests.unit.experiments.kept_campaigns import THREE_STACKS
from tests.unit.experiments.made_up_page import STACKS, everything

pytestmark = pytest.mark.skipif(CHROMIUM is None or CHROMEDRIVER is None, reason=LACKING)

PHONE: Final = (390, 844)  # CSS pixels
DESK: Final = (1280, 900)
PAPER: Final = (718, 1047)  # A4 within margins of 1 cm, at 96 pixels per inch
FOLDED: Final = 15_000  # pixels of a page's height on a phone, while its details are folded
READABLE: Final = 4.5  # the contrast that WCAG 2.1 requires of text at level AA
TIMES: Final = "#times-quality-weights"
UNFOLD: Final = "document.querySelectorAll('details').forEach((each) => { each.open = true; });"
HEIGHT: Final = "return document.documentElement.scrollHeight;"

WIDTHS: Final = """
const page = document.documentElement;
return [innerWidth, page.clientWidth, page.scrollWidth];
"""
WIDER: Final = """
return [...document.querySelectorAll("body *")].filter((each) => {
  if (each.closest(".wide") && !each.matches(".wide")) return false;
  const box = each.getBoundingClientRect();
  return box.width && (box.right > document.documentElement.clientWidth + 0.5 || box.left < -0.5);
}).map((each) => each.outerHTML.slice(0, 200));
"""
SCROLLED: Final = """
return [...document.querySelectorAll("body *")].filter((each) =>
  getComputedStyle(each).display !== "inline" && each.scrollWidth > each.clientWidth + 1
).map((each) => each.outerHTML.slice(0, 200));
"""
ROWS: Final = """
return [...document.querySelectorAll("tbody tr")].map((row) => [row.innerText.trim(), row.offsetHeight]);
"""
COLUMN: Final = """
const table = document.querySelector(arguments[0] + " table");
const at = [...table.tHead.rows[0].cells].findIndex((head) => head.textContent.trim() === arguments[1]);
return [...table.tBodies[0].rows].map((row) => row.cells[at].textContent.trim());
"""
SORTED: Final = """
return [...document.querySelectorAll(arguments[0] + " th[aria-sort]")].map(
  (head) => [head.textContent.trim(), head.getAttribute("aria-sort")]);
"""
# Texts whose contrast with the opaque background behind them, as WCAG 2.1 defines it, is too low.
FAINT: Final = """
const channels = (colour) => (colour.match(/[\\d.]+/g) || []).map(Number);
const luminance = (colour) => channels(colour).slice(0, 3)
  .map((each) => each / 255)
  .map((each) => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4)
  .reduce((sum, each, at) => sum + each * [0.2126, 0.7152, 0.0722][at], 0);
const opaque = (colour) => colour.startsWith("rgb") && channels(colour).length < 4;
function ground(each) {
  for (let at = each; at; at = at.parentElement) {
    const colour = getComputedStyle(at).backgroundColor;
    if (opaque(colour)) return colour;
  }
  return "rgb(255, 255, 255)";
}
const found = [];
let looked = 0;
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (texts.nextNode()) {
  const parent = texts.currentNode.parentElement;
  if (!texts.currentNode.data.trim() || !parent.getClientRects().length) continue;
  const style = getComputedStyle(parent);
  const colour = parent.closest("svg") ? style.fill : style.color;
  const [light, dark] = [luminance(colour), luminance(ground(parent))].sort((left, right) => right - left);
  const contrast = (light + 0.05) / (dark + 0.05);
  looked += 1;
  if (contrast < arguments[0]) found.push([parent.outerHTML.slice(0, 100), colour, ground(parent), contrast]);
}
return [looked, found, getComputedStyle(document.body).backgroundColor];
"""
VISIBLE: Final = "return document.querySelector(arguments[0]).checkVisibility();"
MOVING: Final = """
return [...document.querySelectorAll("*")].filter((each) => {
  const style = getComputedStyle(each);
  return style.animationName !== "none" || parseFloat(style.transitionDuration) > 0;
}).length;
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with everything in it."""
    return write_report(everything(tmp_path_factory.mktemp("report")))[1]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(params=[PHONE, DESK], ids=["phone", "desk"])
def width(request: pytest.FixtureRequest, browser: Browser, page: Path) -> int:
    """Opens the page at this width, in CSS pixels, and all its sections."""
    browser.look(*request.param, color_scheme="light")
    browser.open(page)
    browser.ask(UNFOLD)
    return int(request.param[0])


def column(browser: Browser, name: str, where: str = TIMES) -> list[str]:
    """The texts of a column of the first table, from top to bottom."""
    return [str(text) for text in browser.ask(COLUMN, where, name)]


def numbers(texts: list[str]) -> list[float]:
    """The leading numbers of cells in the table of times; cells without a figure are left out."""
    known = [text for text in texts if text != "\N{EN DASH}"]
    return [float(text.split()[0].replace("\N{MINUS SIGN}", "-")) for text in known]


def press(browser: Browser, *keys: str) -> None:
    ActionChains(browser.driver).send_keys(*keys).perform()


def head(browser: Browser, name: str) -> Any:
    """The button in the header of a column in the table of times."""
    buttons = browser.driver.find_elements("css selector", f"{TIMES} thead button")
    return next(each for each in buttons if each.text.strip() == name)


def test_nothing_is_wider_than_the_page(browser: Browser, width: int) -> None:
    inner, seen, whole = browser.ask(WIDTHS)
    assert inner == width and whole <= seen
    assert browser.ask(WIDER) == []


def test_the_page_loads_nothing_complains_of_nothing_and_does_not_move(
    browser: Browser, page: Path, width: int
) -> None:
    browser.requests()
    browser.complaints()
    browser.open(page)
    asked = browser.requests()
    assert asked[0] == page.resolve().as_uri() and width
    assert len(asked) > 1 and all(address.startswith("data:image/") for address in asked[1:])
    assert browser.complaints() == []
    assert browser.ask(MOVING) == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_enough_contrast(browser: Browser, page: Path, width: int, scheme: str) -> None:
    browser.look(width, color_scheme=scheme)
    browser.open(page)
    browser.ask(UNFOLD)
    looked, faint, ground = browser.ask(FAINT, READABLE)
    assert looked > 1000 and faint == []
    assert (ground == "rgb(255, 255, 255)") is (scheme == "light")


@pytest.mark.parametrize(("scheme", "ground"), [("light", (255, 255, 255)), ("dark", (20, 23, 27))])
def test_plots_are_as_dark_as_the_page(
    browser: Browser, page: Path, scheme: str, ground: tuple[int, int, int]
) -> None:
    browser.look(*DESK, color_scheme=scheme)
    browser.open(page)
    browser.ask(UNFOLD)
    plots = browser.driver.find_elements("css selector", "figure img")
    assert len(plots) == 3
    for plot in plots:
        drawn = Image.open(io.BytesIO(plot.screenshot_as_png)).convert("RGB")
        colours = drawn.getcolors(drawn.width * drawn.height)
        assert colours is not None and max(colours)[1] == ground
        assert scheme == "light" or (0, 0, 0) not in {colour for _, colour in colours}  # unreadable there
        # Lines and letters contrast with the background.
        darkest, lightest = drawn.convert("L").getextrema()
        assert isinstance(darkest, int | float) and darkest < 30
        assert isinstance(lightest, int | float) and lightest > 225


def test_plots_on_a_phone_are_whole_and_as_large_as_can_be_read(browser: Browser, page: Path) -> None:
    for size, narrow in ((PHONE, True), (DESK, False)):
        browser.look(*size)
        browser.open(page)
        browser.ask(UNFOLD)
        for plot in browser.driver.find_elements("css selector", "figure img"):
            inches = browser.ask("return arguments[0].naturalWidth;", plot) / 96
            assert inches == pytest.approx(NARROW if narrow else WIDE, abs=0.02)
            # Letters of 9 points, 12 pixels, stay over 9 pixels high, and nothing has to be scrolled.
            assert 12 * plot.size["width"] / (96 * inches) > 9
            assert plot.location["x"] + plot.size["width"] <= size[0]


def test_a_kept_campaigns_page_is_not_endless_on_a_phone(browser: Browser, tmp_path: Path) -> None:
    kept = Path(shutil.copytree(THREE_STACKS, tmp_path / THREE_STACKS.parent.name / THREE_STACKS.name))
    browser.look(*PHONE)
    browser.open(write_report(open_campaign(kept))[1])
    assert PHONE[1] < browser.ask(HEIGHT) < FOLDED


def test_long_tables_are_folded_on_a_phone_and_open_elsewhere(browser: Browser) -> None:
    reports = [*REPOSITORY.glob("docs/why/*/report.html"), *REPOSITORY.glob("docs/speed/*/report.html")]
    assert len(reports) > 10
    browser.look(*PHONE)
    for kept in (*reports, REPOSITORY / "docs" / "why" / "answer" / "answer.html"):
        browser.open(kept)
        assert PHONE[1] < browser.ask(HEIGHT) < FOLDED, kept
    for size, shown in ((PHONE, False), (DESK, True)):
        browser.look(*size)
        browser.open(REPOSITORY / "docs" / "why" / "launch" / "report.html")
        (summary,) = browser.driver.find_elements("css selector", f"{TIMES} summary")
        assert summary.text == "34 rows"
        assert browser.ask(VISIBLE, f"{TIMES} table") is shown
        summary.click()
        assert browser.ask(VISIBLE, f"{TIMES} table") is not shown


def test_a_click_sorts_numbers_as_numbers_and_another_one_turns_them(browser: Browser, page: Path) -> None:
    browser.look(*DESK)
    browser.open(page)
    written = column(browser, "train_s")
    assert "±" in written[0] and written[-1] == "\N{EN DASH}" and numbers(written) != sorted(numbers(written))
    for name in ("train_s", "train_s over ddp", "runs", "efficiency"):
        head(browser, name).click()
        upwards = column(browser, name)
        assert browser.ask(SORTED, TIMES) == [[name, "ascending"]]
        assert numbers(upwards) == sorted(numbers(upwards))
        head(browser, name).click()
        downwards = column(browser, name)
        assert browser.ask(SORTED, TIMES) == [[name, "descending"]]
        assert numbers(downwards) == sorted(numbers(downwards), reverse=True)
        lacking = upwards.count("\N{EN DASH}")
        if name != "runs":  # every row has those
            assert lacking and set(upwards[-lacking:] + downwards[-lacking:]) == {"\N{EN DASH}"}
    head(browser, "stack").click()
    stacks = column(browser, "stack")
    assert stacks == sorted(stacks) and set(STACKS) < set(stacks)


def test_tables_are_sorted_by_keyboard(browser: Browser, page: Path) -> None:
    browser.look(*DESK)
    browser.open(page)
    contents = browser.driver.find_elements("css selector", "nav a")
    press(browser, *[Keys.TAB] * (len(contents) + 2))  # the table's number of rows comes before it
    assert browser.ask("return document.activeElement.closest('th').textContent.trim()") == "stack"
    outline = "return getComputedStyle(document.activeElement).outlineStyle"
    assert browser.ask(outline) == "solid"
    press(browser, Keys.TAB, Keys.ENTER)
    assert browser.ask(SORTED, TIMES) == [["workers", "ascending"]]
    press(browser, Keys.SPACE)
    assert browser.ask(SORTED, TIMES) == [["workers", "descending"]]
    assert numbers(column(browser, "workers")) == sorted(numbers(column(browser, "workers")), reverse=True)


def test_cards_are_sorted_by_a_list_above_them(browser: Browser, page: Path) -> None:
    browser.look(*PHONE)
    browser.open(page)
    browser.driver.find_element("css selector", f"{TIMES} summary").click()
    written = column(browser, "train_s")
    chosen = browser.driver.find_element("css selector", f"{TIMES} .sorting select")
    turn = browser.driver.find_element("css selector", f"{TIMES} .sorting button")
    assert not turn.is_displayed()
    chosen.send_keys("train_s")
    upwards = numbers(column(browser, "train_s"))
    assert upwards == sorted(upwards) and turn.text == "ascending"
    turn.click()
    assert numbers(column(browser, "train_s")) == upwards[::-1] and turn.text == "descending"
    chosen.send_keys("as written")
    assert column(browser, "train_s") == written and not turn.is_displayed()


def printed_pages(browser: Browser) -> int:
    """How many pages of A4 the page is, as it is now."""
    printed = browser.command("Page.printToPDF", paperWidth=8.27, paperHeight=11.69, printBackground=True)
    return pages(base64.b64decode(printed["data"]))


def test_a_kept_report_is_a_few_pages_on_paper(browser: Browser) -> None:
    for kept in (*REPOSITORY.glob("docs/why/*/report.html"), *REPOSITORY.glob("docs/speed/*/report.html")):
        browser.command("Emulation.clearDeviceMetricsOverride")
        browser.open(kept)
        assert 1 < printed_pages(browser) <= 8, kept


def test_tables_that_are_folded_on_a_phone_are_printed(browser: Browser) -> None:
    browser.look(*PHONE)
    browser.open(REPOSITORY / "docs" / "why" / "launch" / "report.html")
    assert not browser.ask(VISIBLE, f"{TIMES} table")
    printed_pages(browser)
    assert browser.ask(VISIBLE, f"{TIMES} table")


def test_details_are_folded_until_their_name_is_chosen(browser: Browser, page: Path) -> None:
    browser.look(*PHONE)
    browser.open(page)
    folded = browser.ask(HEIGHT)
    links = browser.driver.find_elements("css selector", "nav a")
    sections = browser.ask(
        "return [...document.querySelectorAll('section h2')].map((each) => each.textContent);"
    )
    assert sections[0] == "In one minute" and [link.text for link in links] == sections[1:]
    (records,) = [link for link in links if link.text == "Records"]
    shown = "return document.querySelector('#records table').checkVisibility();"
    assert not browser.ask(shown)
    records.click()
    assert browser.ask(shown)
    browser.ask(UNFOLD)
    assert browser.ask(HEIGHT) > 3 * folded


def test_nothing_is_cut_on_paper(browser: Browser, page: Path) -> None:
    browser.look(*PAPER, media="print", color_scheme="dark")
    browser.open(page)
    browser.ask(UNFOLD)
    assert browser.ask(SCROLLED) == []
    assert browser.ask(WIDER) == []
    _, faint, ground = browser.ask(FAINT, READABLE)
    assert faint == [] and ground == "rgb(255, 255, 255)"
    browser.command("Emulation.clearDeviceMetricsOverride")
    whole = printed_pages(browser)
    browser.open(page)
    folded = printed_pages(browser)
    assert 1 < folded <= 8 and folded + 3 < whole


def test_the_page_is_whole_without_script(browser: Browser, page: Path, width: int) -> None:
    with_script = browser.ask(ROWS)
    browser.command("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.open(page)
        browser.ask(UNFOLD)
        without = browser.ask(ROWS)
        assert browser.driver.find_elements("css selector", ".sorting, thead button") == []
    finally:
        browser.command("Emulation.setScriptExecutionDisabled", value=False)
    assert [text for text, _ in without] == [text for text, _ in with_script] and len(without) > 60
    assert all(text and height > 0 for text, height in without) and width
