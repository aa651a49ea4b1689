"""The explorer in headless Chromium: what a user sees, types, and is told when something goes wrong.

The service behind it is a stand-in with generated nodes, whose answers a test can foretell and whose failures it can
ask for; one test runs the real app. All pages come with the policy that the service sends.
"""

from __future__ import annotations

import importlib.util
import json
import re
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import pytest

from gsparc.server.app import create_app

HERE = Path(__file__).resolve().parent
STATIC = HERE.parents[1] / "src" / "gsparc" / "server" / "static"
DRAWN = "performance.getEntriesByName('map-drawn').length > 0"


def _sibling(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


chromium, fake = _sibling("_chromium"), _sibling("_fake_service")
needs_chromium = pytest.mark.skipif(
    chromium.find_chromium() is None, reason="no Chromium on this machine; install it or name it in GSPARC_CHROMIUM"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium.Browser() as running:
        yield running


@pytest.fixture
def service() -> Iterator[Any]:
    with fake.FakeService() as running:
        yield running


@pytest.fixture
def page(browser: Any, service: Any) -> Iterator[Any]:
    """The explorer, loaded and drawn; a page that logged an error fails its test."""
    with browser.page() as opened:
        opened.open(service.url)
        opened.wait(DRAWN)
        yield opened
        complaints = [text for text in opened.complaints() if "status of" not in text]  # refusals asked for by a test
        assert complaints == []


def predict(page: Any, text: str) -> None:
    page.click("#field-description")
    page.type(text)
    page.click("#new-node [type=submit]")


def hash_of(page: Any, key: str, seconds: float = 5) -> str:
    """A value of the shareable link, once it is there: the link is written a moment after the change."""
    script = f"new URLSearchParams(location.hash.slice(1)).get({json.dumps(key)})"
    return page.wait(script, seconds)


def ink(page: Any) -> int:
    """How many pixels of the map are drawn on."""
    return page.run(
        """(() => {
          const gl = document.querySelector('#map canvas').getContext('webgl2');
          const bytes = new Uint8Array(4 * gl.drawingBufferWidth * gl.drawingBufferHeight);
          gl.readPixels(0, 0, gl.drawingBufferWidth, gl.drawingBufferHeight, gl.RGBA, gl.UNSIGNED_BYTE, bytes);
          let drawn = 0;
          for (let i = 3; i < bytes.length; i += 4) drawn += bytes[i] > 0;
          return drawn;
        })()"""
    )


def marks(page: Any) -> int:
    """How many pixels are drawn on over the nodes: names, rings and lines."""
    page.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return page.run(
        """(() => {
          const canvas = document.querySelectorAll('#map canvas')[1];
          const bytes = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
          let drawn = 0;
          for (let i = 3; i < bytes.length; i += 4) drawn += bytes[i] > 0;
          return drawn;
        })()"""
    )


# What is shipped


def test_shipped_files_are_small_and_ask_for_nothing_outside() -> None:
    files = [path for path in STATIC.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".html", ".js", ".css", ".svg", ".txt"}
    assert sum(path.stat().st_size for path in files) < 200_000
    for path in files:
        text = path.read_text(encoding="utf-8")
        outside = set(re.findall(r"https?://[\w.]+", text)) - {"http://www.w3.org"}  # names of XML, never fetched
        assert outside == set(), path.name
        assert not re.search(r"\beval\(|new Function|url\(", text), path.name


def test_index_has_nothing_inline_and_names_files_that_exist() -> None:
    text = (STATIC / "index.html").read_text(encoding="utf-8")
    assert "<style" not in text
    assert "style=" not in text
    assert re.findall(r"<script[^>]*>([^<]+)</script>", text) == []
    named = re.findall(r'(?:src|href)="\./([^"]+)"', text)
    assert len(named) == 3
    assert all((STATIC / name).is_file() for name in named)


# Load


@needs_chromium
def test_load_draws_the_map_without_an_outside_request(page: Any, service: Any) -> None:
    assert page.text("h1") == "Debian packages"
    assert "600 nodes" in page.text("header")
    assert page.text("#legend-list li:first-child .grow") == "libs"
    assert ink(page) > 1500
    assert page.outside(service.url) == []
    assert page.run("document.title") == "Debian packages · gsparc explorer"
    assert "Map loaded: 600 nodes" in page.run("document.querySelector('[aria-live]').textContent")


@needs_chromium
def test_everything_interactive_has_a_name(page: Any) -> None:
    tree = page.send("Accessibility.getFullAXTree")["nodes"]
    roles = {"button", "textbox", "combobox", "checkbox", "radio", "link", "tab", "application", "searchbox"}
    found = [node for node in tree if node.get("role", {}).get("value") in roles and not node.get("ignored")]
    unnamed = [node["role"]["value"] for node in found if not node.get("name", {}).get("value")]
    assert len(found) > 20
    assert unnamed == []


@needs_chromium
@pytest.mark.parametrize(("width", "height"), [(390, 844), (820, 1180), (1280, 800)])
def test_no_width_scrolls_sideways(browser: Any, service: Any, width: int, height: int) -> None:
    with browser.page(width, height) as page:
        page.open(service.url)
        page.wait(DRAWN)
        assert page.run("document.documentElement.scrollWidth") <= width
        assert page.run("document.querySelector('#map').clientHeight") >= 240


# Search and cards


@needs_chromium
def test_search_by_keyboard_opens_the_card(page: Any, service: Any) -> None:
    wanted = service.ids[40]
    page.press("/")
    assert page.focused() == "search"
    page.type(wanted[:-2])
    page.wait("document.querySelectorAll('#suggestions [role=option]').length > 0")
    page.run("1")
    page.type(wanted[-2:])
    page.wait(f"document.querySelector('#suggestions')?.innerText.startsWith({json.dumps(wanted)})")
    page.press("Enter")
    page.wait_text(wanted, ".card h2")
    assert hash_of(page, "node") == wanted
    card = service.node(40)
    assert page.text(".facts").split("\n")[-1] == str(card["degree"])
    assert page.run("document.querySelectorAll('.card section:first-of-type .chip').length") == card["degree"]
    page.press("Escape")
    page.wait_text("No node open", ".side")


@needs_chromium
def test_a_card_leads_to_the_neighbours(page: Any, service: Any) -> None:
    for index in (40, 19):  # without neighbours, with 19
        page.run(f"location.hash = 'node={service.ids[index]}'")
        page.wait_text(service.ids[index], ".card h2")
        page.wait("location.hash.includes('colour=') || location.hash.includes('view=')")  # the link is written anew
        if index == 40:
            assert "This node has no edges." in page.text(".card")
            assert page.text(".key") == ""
            alone = marks(page)
    linked = [other["id"] for other in service.node(19)["neighbours"]]
    assert page.text(".facts").split("\n")[-2:] == ["Known neighbours", "19"]
    assert page.text(".key") == "known edge"
    assert marks(page) > alone + 2000  # the lines to them
    assert page.text(".card section:first-of-type .chips").split("\n") == linked[:12]
    page.click(".card section:first-of-type .text-button")
    assert page.text(".card section:first-of-type .chips").split("\n") == linked
    page.mouse("mouseMoved", 5, 5)  # away from the list, which has grown under the pointer
    before = marks(page)
    page.run("document.querySelector('.card section:first-of-type .chip').focus()")
    assert marks(page) > before  # a ring around the one that is meant
    page.press("Enter")
    page.wait_text(linked[0], ".card h2")
    assert hash_of(page, "node") in (linked[0], service.ids[19])


@needs_chromium
def test_search_that_finds_nothing_says_so(page: Any) -> None:
    page.click("#search")
    page.type("no-such-package")
    page.wait_text("No node’s id contains “no-such-package”", "#suggestions")
    page.press("Enter")
    page.wait_text("Not found", ".side")
    assert "no node “no-such-package”" in page.text(".side")


@needs_chromium
def test_hover_and_click_find_the_node_under_the_pointer(page: Any, service: Any) -> None:
    page.run("document.querySelector('#map').focus()")
    page.press("+")
    x0, y0, x1, y1 = map(float, hash_of(page, "view").split(","))
    box = page.run("(b => [b.x, b.y, b.width, b.height])(document.querySelector('#map').getBoundingClientRect())")
    share = (service.place - [x0, y0]) / [x1 - x0, y1 - y0]
    middle = int(np.argmin(np.abs(share - 0.5).sum(1)))  # away from the legend
    x, y = box[0] + share[middle, 0] * box[2], box[1] + (1 - share[middle, 1]) * box[3]
    page.mouse("mouseMoved", x, y)
    page.wait_text(service.ids[middle], ".tooltip")
    assert f"{service.node(middle)['degree']} known neighbour" in page.text(".tooltip")
    page.click_at(x, y)
    page.wait_text(service.ids[middle], ".card h2")


@needs_chromium
def test_map_obeys_keys(page: Any) -> None:
    page.run("document.querySelector('#map').focus()")
    page.press("+")
    before = hash_of(page, "view")
    page.press("ArrowRight")
    after = page.wait(
        f"(v => v !== {json.dumps(before)} && v)(new URLSearchParams(location.hash.slice(1)).get('view'))"
    )
    assert float(after.split(",")[0]) > float(before.split(",")[0])
    page.press("0")
    page.press("Enter")  # the node nearest to the middle
    page.wait_text("Linked to", ".card")


@needs_chromium
def test_legend_hides_and_recolours(page: Any) -> None:
    all_of_it = ink(page)
    page.click("#legend-list li:nth-child(2) .only")
    page.wait("document.querySelectorAll('#legend-list [data-off]').length > 5")
    time.sleep(0.2)
    only = ink(page)
    assert 0 < only < all_of_it / 2
    page.click(".segmented label:nth-child(2)")
    page.wait_text("cluster 0", "#legend-list")
    page.wait("location.hash.includes('colour=cluster')")
    time.sleep(0.2)
    assert ink(page) > only


# A new node


@needs_chromium
def test_new_node_lands_with_its_answer(page: Any, service: Any) -> None:
    page.click("#field-installed_size")
    page.type("12.5")
    page.run("document.querySelector('#field-arch').value = 'any'")
    page.run("document.querySelector('#field-arch').dispatchEvent(new Event('change', {bubbles: true}))")
    predict(page, "tools for science")
    page.wait_text("Predicted class", ".result")
    expected = service.predict({"description": "tools for science"})
    assert service.asked[-1]["records"] == [{"description": "tools for science", "installed_size": 12.5, "arch": "any"}]
    assert expected["class"] == "science"
    assert "science" in page.text(".headline strong")
    assert page.run("document.querySelectorAll('.bars tbody tr').length") == 10
    assert page.run("document.querySelectorAll('.result .chip').length") == len(expected["set"])
    assert "new node" in page.text(".key")
    assert "Predicted class science" in page.run("document.querySelector('[aria-live]').textContent")
    link = expected["links"][0]["id"]
    page.click(".result .list button")
    page.wait_text(link, ".card h2")


@needs_chromium
def test_link_opens_the_same_prediction(browser: Any, page: Any, service: Any) -> None:
    predict(page, "graphics engine, 100 % free & #1")
    page.wait_text("graphics", ".headline")
    page.wait("location.hash.includes('asked=1')")
    link = page.run("location.href")
    view = parse_qs(link.partition("#")[2])["view"]
    with browser.page() as other:
        other.open(link)
        other.wait_text("graphics", ".headline")
        assert other.run("document.querySelector('#field-description').value") == "graphics engine, 100 % free & #1"
        time.sleep(0.4)
        assert parse_qs(other.run("location.hash").lstrip("#"))["view"] == view


@needs_chromium
def test_abstaining_is_said_plainly(page: Any) -> None:
    predict(page, "zzz zzz")
    page.wait_text("The model would rather not answer", ".result .notice")
    assert "far from every known node" in page.text(".notice")
    assert "Best guess" in page.text(".headline")


@needs_chromium
def test_known_neighbours_are_sent_along(page: Any, service: Any) -> None:
    page.click(".options summary")
    page.click("#known")
    page.type(f"{service.ids[3]}, {service.ids[5]}")
    predict(page, "games")
    page.wait_text("Predicted class", ".result")
    assert service.asked[-1]["edges"] == [[0, service.ids[3]], [0, service.ids[5]]]


# Errors and empty states


@needs_chromium
def test_empty_form_is_not_sent(page: Any, service: Any) -> None:
    page.click("#new-node [type=submit]")
    page.wait_text("Nothing typed yet", ".side")
    assert service.asked == []
    page.click("#new-node .quiet")
    assert "web server" in page.run("document.querySelector('#field-description').value")


@needs_chromium
@pytest.mark.parametrize(
    ("field", "text", "message"),
    [
        ("installed_size", "12 kB", "“12 kB” is not a number."),
        ("installed_size", "-1", "installed_size is -1, expected a number that is not negative."),
        ("embedding", "1, 2", "2 numbers were given, 3 are expected."),
    ],
)
def test_wrong_field_is_named_and_focused(page: Any, field: str, text: str, message: str) -> None:
    page.click(f"#field-{field}")
    page.type(text)
    page.click("#new-node [type=submit]")
    page.wait_text(message, f"#field-{field}-error")
    page.wait(f"document.activeElement.id === 'field-{field}'")
    assert page.run("document.activeElement.getAttribute('aria-invalid')") == "true"


@needs_chromium
def test_busy_service_can_be_asked_again(page: Any, service: Any) -> None:
    service.fail = {"/v1/predict": 429}
    predict(page, "games")
    page.wait_text("The service is busy", ".problem")
    assert "Try again in 1 s" in page.text(".problem")
    service.fail = {}
    page.click(".problem button")
    page.wait_text("Predicted class", ".result")
    assert page.text(".problem") == ""


@needs_chromium
def test_service_that_went_away_is_told(browser: Any) -> None:
    with fake.FakeService(50) as service, browser.page() as page:
        page.open(service.url)
        page.wait(DRAWN)
        service.stop()
        predict(page, "games")
        page.wait_text("No connection to the service", ".problem")


@needs_chromium
def test_failed_load_can_be_repeated(browser: Any, service: Any) -> None:
    service.fail = {"/v1/map": 500}
    with browser.page() as page:
        page.open(service.url)
        page.wait_text("The service failed", ".problem")
        service.fail = {}
        page.click(".problem button")
        page.wait(DRAWN)


@needs_chromium
def test_token_is_asked_for_until_it_is_right(browser: Any, service: Any) -> None:
    service.token = "right"
    with browser.page() as page:
        page.open(service.url)
        page.wait_text("This service asks for a token", "dialog[open]")
        page.click("dialog[open] input")
        page.type("wrong")
        page.press("Enter")
        page.wait_text("did not take that token", "dialog[open]")
        page.click("dialog[open] input")
        page.type("right")
        page.press("Enter")
        page.wait(DRAWN)
        assert page.run("document.querySelector('dialog[open]')") is None


@needs_chromium
def test_model_without_nodes_or_classes(browser: Any) -> None:
    with fake.FakeService(0) as service, browser.page() as page:
        page.open(service.url)
        page.wait_text("No nodes yet")
    with fake.FakeService(80, classes=0) as service, browser.page() as page:
        page.open(service.url)
        page.wait(DRAWN)
        assert page.text(".legend h2") == "Clusters"
        assert page.text("#legend-list li:first-child .grow").startswith("cluster")


@needs_chromium
def test_browser_without_webgl_still_predicts(browser: Any, service: Any) -> None:
    script = "const real = HTMLCanvasElement.prototype.getContext; HTMLCanvasElement.prototype.getContext = "
    script += "function (kind, ...rest) { return kind === 'webgl2' ? null : real.call(this, kind, ...rest); };"
    with browser.page() as page:
        page.send("Page.addScriptToEvaluateOnNewDocument", source=script)
        page.open(service.url)
        page.wait_text("The map needs WebGL 2")
        predict(page, "games")
        page.wait_text("Predicted class", ".result")


# Colours


@needs_chromium
def test_dark_follows_the_system_and_the_button(browser: Any, service: Any) -> None:
    background = "getComputedStyle(document.querySelector('.map-area')).backgroundColor"
    with browser.page(scheme="dark") as page:
        page.open(service.url)
        page.wait(DRAWN)
        assert page.run(background) == "rgb(16, 19, 25)"
        page.click("[aria-label^=Colours]")
        page.wait("document.documentElement.dataset.theme === 'light'")
        assert page.run(background) == "rgb(255, 255, 255)"
        page.run("location.reload()")
        page.wait("document.documentElement.dataset.theme === 'light'")


# The real service


@needs_chromium
def test_real_app_and_explorer_fit_together(browser: Any, folder: Path, model: Any) -> None:
    uvicorn = pytest.importorskip("uvicorn")
    app = create_app(folder, load=lambda _: model, watch_s=None)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        free.listen()
        thread = threading.Thread(target=server.run, args=([free],), daemon=True)
        thread.start()
        with browser.page() as page:
            page.open(f"http://127.0.0.1:{free.getsockname()[1]}/")
            page.wait(DRAWN)
            page.click("#search")
            page.type("zlib")
            page.wait_text("zlib1g", "#suggestions")
            page.press("Enter")
            page.wait_text("Linked to", ".card")
            page.click("#tab-new")
            page.click("#field-words")
            page.type("compression")
            page.click("#new-node [type=submit]")
            page.wait_text("Predicted class", ".result")
            assert "libs" in page.text(".headline")
            assert "75 % sure" in page.text(".headline")
            page.open(f"http://127.0.0.1:{free.getsockname()[1]}/docs")
            page.wait("document.querySelectorAll('#operations details').length > 5")
            assert page.run("getComputedStyle(document.body).fontFamily.includes('sans-serif')")
            assert page.complaints() == []
        server.should_exit = True
        thread.join(10)
