"""The page in a real browser: a simulation is started, a saved run replayed, a node of a real network lost."""

import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pytest

from omkl.dashboard import events
from tests.node_processes import CHECKPOINT, LIMIT, Daemon, as_json, daemons, omkl, samples, write_network

CHROMIUM = shutil.which("chromium")
if CHROMIUM is None:
    pytest.skip("there is no chromium", allow_module_level=True)
sync_api = pytest.importorskip("playwright.sync_api")

from playwright.sync_api import Browser, Locator, Page, expect  # noqa: E402

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
         "--disable-sync", "--no-first-run"]  # fmt: skip
FED = ("--input", "-")
REFUSED = "Failed to load resource: the server responded with a status of 400 (Bad Request)"  # the browser's words
DESK, PHONE = (1280, 800), (390, 844)
SOON = 30_000.0  # milliseconds after which what has not come will not come

Scheme: TypeAlias = Literal["light", "dark"]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_api.sync_playwright() as playwright:
        expect.set_options(timeout=SOON)
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield launched
        launched.close()


@contextmanager
def dashboard(*args: Any) -> Iterator[str]:
    """Give the address of a page that is served by a process of its own, which must have complained of nothing."""
    process = omkl("dashboard", "--port", 0, "--no-browser", *args, stderr=subprocess.PIPE)
    guard = threading.Timer(LIMIT, process.kill)
    guard.start()
    assert process.stderr
    with process:
        try:
            told = process.stderr.readline()
            yield told.split()[-1]
        finally:
            process.terminate()
            complaints = process.communicate()[1]
            guard.cancel()
    assert complaints == ""


@contextmanager
def visit(
    browser: Browser, url: str, size: tuple[int, int] = DESK, scheme: Scheme = "light", expected: Sequence[str] = ()
) -> Iterator[Page]:
    """Give a page that is open, whose console must be empty in the end, but for what is expected."""
    complaints: list[str] = []
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
    context.set_default_timeout(SOON)
    page = context.new_page()
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(url, wait_until="commit")
    try:
        yield page
    finally:
        context.close()
    assert complaints == list(expected)


def shoot(page: Page, folder: Path, name: str) -> None:
    place = Path(os.environ.get("OMKL_SCREENSHOTS", folder))
    place.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=place / f"{name}.png")


def shoot_both(page: Page, folder: Path, name: str) -> None:
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        expect(page.locator("html")).to_have_attribute("data-theme", scheme)
        shoot(page, folder, f"{name}-{scheme}")


def figure(page: Page, name: str) -> str:
    return page.locator(f"#figures div:has(dt:text-is('{name}')) dd").inner_text()


def colors(page: Page, name: str, condition: str) -> list[str]:
    """Return the nodes' colors once a headline figure, ``v``, is so."""
    found = page.wait_for_function(
        f"""() => {{
            const row = [...document.querySelectorAll("#figures div")].find((d) => d.textContent.startsWith("{name}"));
            const v = parseFloat(row?.lastChild.textContent.replace(",", ""));
            return {condition} && [...document.querySelectorAll("#network .dot")].map((d) => getComputedStyle(d).fill);
        }}"""
    )
    return list(found.json_value())


def node(page: Page, id: str) -> Locator:
    return page.locator(f'#network .node[data-id="{id}"]')


def go_to(page: Page, frame: int) -> None:
    page.locator("#slider").fill(str(frame))


def test_a_simulation_is_started_and_watched(browser: Browser, tmp_path: Path) -> None:
    with dashboard("--out", tmp_path / "runs") as url, visit(browser, url, expected=[REFUSED]) as page:
        form = page.locator("#form")
        expect(form.get_by_label("Topology")).to_have_value("geometric")
        assert form.evaluate("form => [...form.elements].every(one => one.tagName === 'BUTTON' || one.labels.length)")
        form.evaluate("form => { form.noValidate = true; form.elements.nodes.value = 1000; }")
        form.get_by_role("button", name="Start").click()
        expect(page.get_by_role("alert")).to_have_text(
            re.compile("nodes is 1000; it must be a whole number from . to 200")
        )
        form.get_by_label("Nodes").fill("20")
        page.get_by_role("button", name="Start a simulation").click()
        expect(page.get_by_role("alert")).to_be_hidden()
        expect(page.locator("#waiting")).to_contain_text("compiled")
        early = colors(page, "Recent loss", "v > 0.55")
        page.locator("#speed").select_option("4")
        shoot(page, tmp_path, "simulation-begins")
        late = colors(page, "Recent loss", "v < 0.35")
        assert len(early) == 20
        assert all(a != b for a, b in zip(early, late, strict=True))
        expect(page.locator("#status")).to_contain_text(re.compile(r"finished: 265 rounds; final loss 0\.2\d+ over"))
        expect(page.locator("#links")).to_have_text(re.compile("^up0 to"))
        expect(page.locator("#of-weights")).to_have_text("width of the prior40020")
        expect(page.locator("#where")).to_have_text("265 / 265")
        colors(page, "Round", "v === 265")
        each, whole = (float(figure(page, name).split()[0]) for name in ("A node a round", "Sent in all"))
        assert each == pytest.approx(1000 * whole / 265 / 20, abs=0.6)  # as the result has it
        expect(page.get_by_role("button", name="Play")).to_be_visible()
        node(page, "3").click()
        panel = page.get_by_role("dialog", name="Node 3")
        expect(panel.locator("#panel-facts")).to_contain_text(re.compile(r"alive.*265.*0\.\d+ mean 0\.2"))
        expect(panel.locator("#panel-chart .scatterlayer .trace")).to_have_count(2)
        expect(panel.locator("#panel-links li").first).to_contain_text("up")
        shoot_both(page, tmp_path, "simulation")
        page.keyboard.press("Escape")
        expect(panel).to_be_hidden()
        expect(node(page, "3")).to_be_focused()


def small_run(folder: Path, title: str, before: float) -> None:
    """Save a run of three nodes of a million, in ten rounds; b is gone in rounds 5 to 7."""
    first = events.network(
        source="network", title=title, nodes=1_000_000, ids=["a", "b", "c"],
        positions=[[0, 0], [1, 0], [2, 0]], edges=[[0, 1], [1, 2]], kernels=["gaussian 1", "gaussian 3"],
        rounds=None, loss="logistic", window="of one round", disagreement="by hand", states=["synced", "left out"],
        settings={"made": "by hand"},
    )  # fmt: skip
    lines = [first]
    for t in range(1, 11):
        away = 5 <= t <= 7
        if t in (5, 8):
            kind, text = ("fault", "b is gone") if away else ("recovered", "b is back")
            lines.append(events.note(t, t / 2, kind, text, 1))
        loss = before - 0.05 * t
        lines.append({
            "event": "frame", "round": t, "time": t / 2, "loss": loss, "spread": [loss - 0.1, loss + 0.1],
            "disagreement": 0.1, "weights": [0.75, 0.25], "bits": 80, "total": 240 * t, "alive": 3 - away,
            "node": {
                "loss": [loss - 0.1, None if away else loss, loss + 0.1], "disagreement": [0.1] * 3,
                "bits": [80, 0 if away else 80, 80], "alive": [1, int(not away), 1], "round": [t, t, t],
                "weights": [[0.75, 0.25]] * 3,
            },
            "edge": {"bits": [160, 160], "state": [int(away)] * 2},
        })  # fmt: skip
    lines.append(events.end(5.0, "ten rounds"))
    folder.mkdir()
    (folder / events.FILE).write_text("".join(map(events.line, lines)))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("saved")
    small_run(folder / "another", "three more", 0.9)
    small_run(folder / "by-hand", "three by hand", 0.8)
    with dashboard(folder) as url:
        yield f"{url}#run=by-hand"


def test_a_saved_run_is_replayed(browser: Browser, saved: str, tmp_path: Path) -> None:
    with visit(browser, saved, scheme="dark") as page:
        expect(page.get_by_role("heading", name="three by hand")).to_be_visible()
        expect(page.locator("#status")).to_have_text("saved: ten rounds")
        expect(page.locator("#where")).to_have_text("10")
        expect(page.locator("#window")).to_have_text("of one round")
        expect(page.locator("#story")).to_contain_text("From round 1 to round 10, 1,000,000 nodes have brought their")
        expect(page.locator("#story")).to_contain_text("Each now sends its neighbors 10 bytes a round")
        expect(page.locator("#sample")).to_contain_text("3 of 1,000,000 nodes are drawn")
        expect(page.locator("#settings")).to_have_text("madeby hand")
        expect(page.locator("#chart-loss .trace")).to_have_count(4)
        expect(page.locator("#of-weights")).to_have_text("width of the gaussian kernel13")
        expect(page.locator("#notes li")).to_have_text(["round 8recoveredb is back", "round 5faultb is gone"])
        assert [figure(page, name) for name in ("Round", "Recent loss", "Sent in all")] == ["10", "0.300", "300 bytes"]
        shoot(page, tmp_path, "saved-dark")

        go_to(page, 0)
        colors(page, "Round", "v === 1")
        assert [figure(page, name) for name in ("Recent loss", "Sent in all")] == ["0.750", "30 bytes"]
        expect(page.locator("#notes li")).to_have_count(0)
        go_to(page, 4)
        expect(node(page, "b")).to_have_attribute("aria-label", "node b: gone")
        expect(node(page, "b").locator(".cross")).to_be_visible()
        expect(node(page, "a").locator(".cross")).to_be_hidden()
        expect(page.locator('.edges .edge[data-state="left out"]')).to_have_count(2)
        expect(page.locator("#notes li")).to_have_count(1)

        node(page, "a").focus()
        page.keyboard.press("ArrowRight")
        expect(node(page, "b")).to_be_focused()
        page.keyboard.press("Enter")
        facts = page.get_by_role("dialog", name="Node b").locator("#panel-facts")
        expect(facts).to_contain_text(re.compile("Stategone.*Round5.*Loss– mean 0.550"))
        expect(page.locator("#panel-links li")).to_contain_text(["left out", "left out"])
        expect(page.locator("#panel-weights")).to_contain_text(re.compile("gaussian 10.750.*gaussian 30.250"))
        shoot(page, tmp_path, "saved-gone")
        page.keyboard.press("Escape")

        page.locator("#speed").select_option("0.25")
        go_to(page, 9)
        page.get_by_role("button", name="Play").click()
        expect(page.locator("#where")).to_have_text("2")
        expect(page.locator("#where")).to_have_text("10")

        page.get_by_role("link", name="three more").click()
        expect(page.get_by_role("heading", name="three more")).to_be_visible()
        expect(page.locator("#of-loss")).to_contain_text("0.400 (10 % to 90 % of nodes: 0.300 to 0.500)")
        assert page.url.endswith("/#run=another")
        page.go_back()
        expect(page.locator("#of-loss")).to_contain_text("0.300")

        page.get_by_role("button", name="theme").click()
        page.reload()
        expect(page.locator("html")).to_have_attribute("data-theme", "light")
        expect(page.get_by_role("heading", name="three by hand")).to_be_visible()


def test_a_phone_shows_it_all(browser: Browser, saved: str, tmp_path: Path) -> None:
    with visit(browser, saved, PHONE) as page:
        expect(page.locator("#where")).to_have_text("10")
        expect(page.locator("#chart-total .trace")).to_have_count(2)
        shoot_both(page, tmp_path, "phone")
        node(page, "c").click()
        expect(page.get_by_role("dialog", name="Node c")).to_be_visible()
        expect(page.locator("#panel-chart .trace")).to_have_count(2)
        shoot_both(page, tmp_path, "phone-panel")
        assert page.evaluate("document.scrollingElement.scrollWidth") == PHONE[0]


def test_curves_follow_the_width_of_their_cards(browser: Browser, saved: str) -> None:
    with visit(browser, saved) as page:
        expect(page.locator("#chart-total .trace")).to_have_count(2)
        page.evaluate("document.querySelector('.charts').style.width = '300px'")  # no event of the window tells it
        page.wait_for_function("""() => [...document.querySelectorAll(".charts .chart .main-svg")].every(
            (svg) => svg.getBoundingClientRect().right <= svg.closest(".card").getBoundingClientRect().right)""")
        page.set_viewport_size({"width": 400, "height": 2200})
        page.wait_for_function("document.scrollingElement.scrollWidth === 400")


def test_who_watches_a_network_is_offered_no_simulation_for_which_there_are_no_data(
    browser: Browser, tmp_path: Path
) -> None:
    nothing = {"data": [], "topology": [], "method": [], "learner": [], "missing": "no data set is at hand; put one"}
    with dashboard(write_network(tmp_path)) as url, visit(browser, url) as page:
        expect(page.get_by_role("heading", name="New simulation")).to_be_visible()
        page.route("**/api/options", lambda route: route.fulfill(json=nothing))
        page.reload()
        expect(page.locator("#new")).to_be_hidden()
        expect(page.get_by_text("no data set is at hand")).to_be_hidden()


def test_a_lost_node_turns_and_comes_back(browser: Browser, tmp_path: Path) -> None:
    path = write_network(tmp_path, "abcd", deadline=1.0, tables=CHECKPOINT)
    with ExitStack() as stack:
        a, b, d = stack.enter_context(daemons(path, *"abd", args=FED))
        url = stack.enter_context(dashboard(path))
        page = stack.enter_context(visit(browser, url))
        synced = page.locator('.edges .edge[data-state="synced"]')
        with Daemon(path, "c", *FED) as c:
            expect(synced).to_have_count(3)
            for one in (a, b, c, d):
                one.write(as_json(samples(200)))
            colors(page, "Round", "v > 5")
            expect(node(page, "c")).to_have_attribute("data-alive", "true")
            node(page, "b").click()
            shoot(page, tmp_path, "network")
            c.process.send_signal(signal.SIGKILL)
        expect(node(page, "c")).to_have_attribute("data-alive", "false")
        expect(node(page, "c").locator(".cross")).to_be_visible()
        expect(synced).to_have_count(1)
        expect(page.locator("#panel-links li")).to_contain_text(["synced", re.compile("left out|connecting")])
        expect(page.locator("#notes")).to_contain_text("c is gone")
        assert figure(page, "Alive") == "3 of 4"
        shoot(page, tmp_path, "network-lost")
        with Daemon(path, "c", *FED):
            expect(node(page, "c")).to_have_attribute("data-alive", "true")
            expect(synced).to_have_count(3)
            expect(page.locator("#notes")).to_contain_text("c is back")
            shoot(page, tmp_path, "network-back")
