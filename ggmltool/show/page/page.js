/* The page is put together: the document is read, every part begins, and the choice of the address is taken up. */

/** The maps, side by side where there are two, and what they have in common: the part of the program that is seen. */
function makeMaps(models, titles, first) {
  const both = models.length > 1;
  models.forEach((model) => model.placeColumns(both));
  const span = new Span(Math.max(...models.map((model) => model.xs[model.xs.length - 1])), 4);
  const asks = () => maps.forEach((map) => map.redraw());
  const maps = models.map((model, side) => {
    const root = el("div", { class: "map" });
    const head = both
      ? el(
          "h3",
          { class: "map-title", title: clean(titles[side]) },
          "AB"[side],
          " ",
          el("bdi", { text: clean(titles[side]) }),
        )
      : null;
    byId("maps").append(el("div", { class: "map-side" }, head, root));
    const map = new MemoryMap(root, model, side, span, asks);
    if (first) {
      const t = model.tensors[side === 0 ? first.a : first.b];
      map.mark = t ? t.column : -1;
    }
    return map;
  });
  byId("maps").classList.toggle("two", both);
  const zoom = (factor) => {
    const map = maps[store.side];
    span.zoom(factor, map.cursor((span.from + span.to) / 2));
    asks();
  };
  byId("map-in").addEventListener("click", () => zoom(0.6));
  byId("map-out").addEventListener("click", () => zoom(1 / 0.6));
  byId("map-all").addEventListener("click", () => {
    maps.forEach((map) => map.seeAll());
    asks();
  });
  byId("map-choice").addEventListener("click", () => maps[store.side].zoomToSelected());
  store.listen((changed) => {
    if (changed.has("tensor")) maps.forEach((map) => map.reveal());
    asks();
  });
  return maps;
}

function makeLegend(models, hasMark) {
  const backends = new Map();
  models.forEach((model) => model.backends.forEach((backend) => backends.set(backend.name, backend)));
  const item = (paints, text, kind) => {
    const square = el("span", { class: `legend-square ${kind}`, "aria-hidden": "true" });
    for (const [property, value] of Object.entries(paints)) square.style.setProperty(property, value);
    return el("li", {}, square, text);
  };
  const several = backends.size > 1;
  fill(
    byId("legend"),
    [...backends.values()].map((backend) =>
      item(
        { "--of": tint(backend), "--edge-of": backend.ink },
        `${clean(backend.name)}: results${several ? ", copies from it" : ""}`,
        "",
      ),
    ),
    item({}, "input or leaf", "leaf"),
    item({}, "computed in place", "taken"),
    item({}, "free", "free"),
    hasMark ? item({}, "first difference", "differs") : null,
  );
}

function followPrinting(redraw) {
  const set = (printing) => {
    if (theme.printing === printing) return;
    theme.printing = printing;
    applyTheme();
    redraw();
    tables.forEach((table) => table.again());
  };
  addEventListener("beforeprint", () => set(true));
  addEventListener("afterprint", () => set(false));
  matchMedia("print").addEventListener("change", (event) => set(event.matches));
}

/** Links of the navigation move there, and leave the address to the choice. */
function followLinks() {
  document.querySelector("nav").addEventListener("click", (event) => {
    const link = event.target.closest("a");
    if (!link) return;
    event.preventDefault();
    const section = document.querySelector(link.getAttribute("href"));
    show(section);
    const head = section.querySelector("h2");
    head.tabIndex = -1;
    head.focus({ preventScroll: true });
  });
}

function showHead(model) {
  const { data } = model;
  fill(byId("title"), el("bdi", { text: clean(data.title) }));
  const graphName = data.graph === null ? "" : ` ${clean(data.graph)}`;
  byId("summary").textContent =
    `ggml ${clean(data.ggml)} · ${clean(data.step)}${graphName} · ggmltool ${clean(data.version)}`;
}

function showSide() {
  const { model } = store;
  showHead(model);
  summarize(model);
  makeTables(model);
  showScenario(model);
}

function begin() {
  const data = JSON.parse(byId("document").textContent);
  const two = data.kind === "report_comparison";
  const models = (two ? [data.a, data.b] : [data]).map((of) => new Model(of));
  store.sides = models;
  store.event = models[0].lastEvent;
  applyTheme();
  showSide();
  const maps = makeMaps(models, data.titles, two ? data.divergences[0] : null);
  const legend = () => makeLegend(models, two && data.divergences.length > 0);
  legend();
  if (two) comparison.start(data);
  timeline.start();
  graph.start();
  story.start();
  liveTable.start();
  search.start();
  keys.start(maps);
  followLinks();
  store.listen((changed) => {
    if (changed.has("side")) showSide();
    else if (changed.has("tensor")) tables.forEach((table) => table.mark());
  });
  const redraw = () => {
    maps.forEach((map) => timed("map", () => map.draw()));
    timed("graph", () => graph.draw());
    liveTable.draw();
    legend();
  };
  theme.listeners.push(redraw);
  followPrinting(redraw);
  byId("theme").addEventListener("click", switchTheme);
  prefersDark.addEventListener("change", applyTheme);
  addEventListener("popstate", recall);
  addEventListener("hashchange", recall);
  recall();
  redraw();
  timeline.draw();
  story.draw();
  performance.mark("ready");
  document.documentElement.dataset.ready = "true";
}

begin();
