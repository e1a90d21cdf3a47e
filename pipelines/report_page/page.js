"use strict";
// Draws the charts from their specifications, and links them: one window of time, one engine, one theme for all.
// Texts of the inputs reach the page only as JSON data and as values that Vega draws as text; none becomes markup here.
(() => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const specs = read("specs");
  const tones = read("tones");
  const root = document.documentElement;
  const charts = [...document.querySelectorAll("[data-chart]")];
  const views = new Map();
  const state = { from: null, to: null, engine: null };

  // theme

  const systemIsDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme || (systemIsDark.matches ? "dark" : "light")) === "dark";
  const remember = (theme) => { try { localStorage.setItem("kvpressure-theme", theme); } catch { /* a file may have no storage */ } };
  const remembered = () => { try { return localStorage.getItem("kvpressure-theme"); } catch { return null; } };

  // What every specification needs before it is drawn: colours of the theme, a width, the window on show.

  const coloured = (value, key) => {
    if (typeof value === "string") return tones[value] || value;
    if (value === null || typeof value !== "object") return value;
    if (Array.isArray(value)) return value.map((each) => coloured(each));
    return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, coloured(each, name)]));
  };

  const toneColumns = (rows) => rows.map((row) => {
    const swapped = { ...row };
    if (row.tone) swapped.tone = tones[row.tone] || row.tone;
    return swapped;
  });

  const dressed = (spec) => {
    if (!isDark()) return { ...spec };
    const { datasets, ...rest } = spec;
    return { ...coloured(rest), datasets: Object.fromEntries(Object.entries(datasets).map(([name, rows]) => [name, toneColumns(rows)])) };
  };

  const sized = (spec, width) => {
    if (spec.vconcat) return { ...spec, vconcat: spec.vconcat.map((panel) => ({ ...panel, width: Math.max(120, width - spec.usermeta.margin) })) };
    return { ...spec, width, autosize: { type: "fit-x", contains: "padding" } };
  };

  const isLinked = (spec) => spec.usermeta.linked && (spec.params || []).some((param) => param.name === "from_ms");

  const windowed = (spec) => {
    const values = { engine: state.engine };
    if (isLinked(spec) && state.from !== null) Object.assign(values, { from_ms: state.from, to_ms: state.to });
    return { ...spec, params: (spec.params || []).map((param) => (values[param.name] == null ? param : { ...param, value: values[param.name] })) };
  };

  // A bucket's values that are not known are left out of its tooltip; the rest passes through Vega's own escaping.
  const formatTooltip = (value, escaped) => {
    const known = Object.entries(value).filter(([, text]) => !["NaN", "undefined", "null", ""].includes(String(text)));
    return `<table>${known.map(([name, text]) => `<tr><td class="key">${escaped(name)}</td><td class="value">${escaped(text)}</td></tr>`).join("")}</table>`;
  };

  const draw = async (element) => {
    const key = element.dataset.chart;
    const spec = windowed(sized(dressed(specs[key]), Math.floor(element.clientWidth)));
    const drawn = await vegaEmbed(element, spec, { actions: false, renderer: "svg", ast: true, tooltip: { theme: "custom", formatTooltip } });
    views.get(key)?.finalize();
    views.set(key, drawn);
    element.dataset.drawn = Math.round(performance.now()); // ms since the page was opened
    const svg = element.querySelector("svg"); // the figure has the label; what is inside is for the eye
    if (svg) { svg.removeAttribute("role"); svg.setAttribute("aria-hidden", "true"); }
    if (key === "timeline") element.classList.add("brushable");
    if (key === "engines") drawn.view.addEventListener("click", (_, item) => { choose(item?.datum?.engine); draw(timeline); });
  };

  const idle = window.requestIdleCallback || ((work) => setTimeout(work, 1));
  let round = 0;
  const drawAll = async () => {
    const mine = ++round;
    for (const element of charts) {
      if (mine !== round) return;
      await draw(element);
      await new Promise((resolve) => idle(resolve, { timeout: 200 }));
    }
    document.body.dataset.drawn = "true";
  };

  // the window on show

  const clock = (ms) => new Date(ms).toISOString().slice(11, 19);
  const day = (ms) => new Date(ms).toISOString().slice(0, 10);
  const span = (from, to) => (day(from) === day(to) ? `${clock(from)} to ${clock(to)} UTC` : `${day(from)} ${clock(from)} to ${day(to)} ${clock(to)} UTC`);
  const whole = () => {
    const params = Object.fromEntries((specs.timeline?.params || []).map((param) => [param.name, param.value]));
    return [params.from_ms, params.to_ms];
  };
  const tell = () => {
    const output = document.getElementById("shown");
    const [from, to] = state.from === null ? whole() : [state.from, state.to];
    if (output) output.textContent = span(from, to);
    for (const [id, at] of [["from", from], ["to", to]]) {
      const input = document.getElementById(id);
      if (input && input !== document.activeElement) input.value = clock(at);
    }
    list(state.from, state.to);
  };

  // The pauses of the time on show, in their order; of the whole run, the table that came with the page.
  const listed = document.querySelector("#pauses-listed tbody");
  const whenWhole = listed && { rows: [...listed.rows], summary: document.querySelector("#pauses-listed summary").textContent };
  const MOST_LISTED = 200;
  const lasting = (seconds) => (seconds < 0.9995 ? `${Math.round(1000 * seconds)} ms` : `${seconds.toFixed(seconds < 9.95 ? 1 : 0)} s`);
  const rowOf = (pause) => {
    const row = document.createElement("tr");
    [pause.who, clock(pause.started_at), lasting(pause.duration_s), pause.name, pause.tokens_before ?? "not known"].forEach((text, place) => {
      const cell = document.createElement(place ? "td" : "th");
      if (!place) { cell.scope = "row"; cell.className = "break"; }
      if (place === 2 || place === 4) cell.className = "n";
      cell.textContent = text;
      row.append(cell);
    });
    return row;
  };
  const list = (from, to) => {
    if (!listed) return;
    const summary = document.querySelector("#pauses-listed summary");
    if (from === null) { listed.replaceChildren(...whenWhole.rows); summary.textContent = whenWhole.summary; return; }
    const within = specs.pauses.datasets.rows.filter((pause) => pause.started_at < to && pause.ended_at > from).sort((one, other) => one.started_at - other.started_at);
    const requests = new Set(within.map((pause) => pause.who)).size;
    const cut = within.length > MOST_LISTED ? `; the first ${MOST_LISTED} are listed` : "";
    listed.replaceChildren(...within.slice(0, MOST_LISTED).map(rowOf));
    summary.textContent = `${within.length} pause${within.length === 1 ? "" : "s"} in ${requests} request${requests === 1 ? "" : "s"} from ${span(from, to)}${cut}`;
    document.getElementById("pauses-listed").open = true;
  };
  const show = async (from, to) => {
    const [first, last] = whole();
    const length = Math.max(1000, to - from);
    if (length >= last - first) { state.from = state.to = null; }
    else {
      state.from = Math.min(Math.max(from, first), last - length);
      state.to = state.from + length;
    }
    tell();
    for (const element of charts) if (element.dataset.chart === "timeline" || isLinked(specs[element.dataset.chart])) await draw(element);
  };
  const zooms = {
    in: (from, to) => [from + (to - from) / 4, to - (to - from) / 4],
    out: (from, to) => [from - (to - from) / 2, to + (to - from) / 2],
    earlier: (from, to) => [from - (to - from) / 2, to - (to - from) / 2],
    later: (from, to) => [from + (to - from) / 2, to + (to - from) / 2],
    all: () => whole(),
  };
  for (const button of document.querySelectorAll("[data-zoom]")) {
    button.addEventListener("click", () => show(...zooms[button.dataset.zoom](...(state.from === null ? whole() : [state.from, state.to]))));
  }
  const timeline = document.getElementById("chart-timeline");
  if (timeline) {
    document.querySelector(".toolbar").hidden = false;
    const [fromInput, toInput] = [document.getElementById("from"), document.getElementById("to")];
    // A time of day is that of the day on show, or else of the first day on which it lies in the run.
    const DAY = 86400000;
    const placed = (text, first, last) => {
      const time = Date.parse(`1970-01-01T${text.padStart(text.length < 6 ? 5 : 8, "0")}Z`);
      const begin = Date.parse(day(first));
      const days = [Date.parse(day(state.from ?? first)), ...Array.from({ length: 1 + Math.floor((last - begin) / DAY) }, (_, number) => begin + number * DAY)];
      return days.map((midnight) => midnight + time).find((at) => at >= first && at <= last);
    };
    const typed = () => {
      const first = 1000 * Math.floor(whole()[0] / 1000);
      const last = 1000 * Math.ceil(whole()[1] / 1000);
      const texts = [fromInput, toInput].map(({ value }) => value.trim());
      const [from, to] = texts.map((text) => placed(text, first, last));
      const later = to <= from && to + DAY <= last ? to + DAY : to;
      const unread = [fromInput, toInput].find(({ validity, value }) => !validity.valid || !value.trim());
      const outside = texts[[from, to].indexOf(undefined)];
      if (unread) say(`${unread.value.trim() || "Nothing"} is no time of day; type one such as ${clock(first)}`);
      else if (outside !== undefined) say(`${outside} is outside of the run, which is ${span(first, last)}`);
      else if (later <= from) say(`${texts[1]} is not after ${texts[0]}`);
      else show(from, later);
    };
    const say = (what) => { document.getElementById("shown").textContent = what; };
    for (const input of [fromInput, toInput]) input.addEventListener("change", typed);
    timeline.addEventListener("pointerdown", () => {
      window.addEventListener("pointerup", () => setTimeout(() => {
        const brushed = views.get("timeline")?.view.signal("brush") || {};
        const range = Object.values(brushed)[0];
        if (range && range[1] - range[0] > 0) show(+range[0], +range[1]);
      }, 30), { once: true });
    });
    tell();
  }
  const select = document.getElementById("engine");
  const choose = (engine) => {
    if (select && [...select.options].some((option) => option.value === engine)) state.engine = select.value = engine;
  };
  select?.addEventListener("change", () => { choose(select.value); draw(timeline); });
  for (const button of document.querySelectorAll("[data-from]")) {
    button.title = "Show in the timeline";
    button.addEventListener("click", async () => {
      const [from, to] = [Number(button.dataset.from), Number(button.dataset.to)];
      const margin = Math.max(2000, (to - from) / 6);
      choose(button.dataset.engine);
      document.getElementById("timeline").scrollIntoView();
      await show(from - margin, to + margin);
    });
  }

  // the rest of the page

  const themeButton = document.getElementById("theme");
  const nameTheme = () => {
    themeButton.textContent = isDark() ? "Light" : "Dark";
    themeButton.setAttribute("aria-label", isDark() ? "Switch to light" : "Switch to dark");
  };
  themeButton.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    remember(root.dataset.theme);
    nameTheme();
    drawAll();
  });
  systemIsDark.addEventListener("change", () => { nameTheme(); drawAll(); });
  if (["light", "dark"].includes(remembered())) root.dataset.theme = remembered();
  nameTheme();

  for (const button of document.querySelectorAll("[data-copy]")) {
    button.addEventListener("click", async () => {
      const code = button.closest("details").querySelector("code");
      try { await navigator.clipboard.writeText(code.textContent); button.textContent = "Copied"; }
      catch { getSelection().selectAllChildren(code); button.textContent = "Selected: copy it with the keyboard"; }
    });
  }

  const links = new Map([...document.querySelectorAll(".contents a")].map((link) => [link.hash.slice(1), link]));
  const watcher = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      for (const link of links.values()) link.removeAttribute("aria-current");
      links.get(entry.target.id)?.setAttribute("aria-current", "true");
    }
  }, { rootMargin: "-15% 0px -75% 0px" });
  for (const id of links.keys()) watcher.observe(document.getElementById(id));

  // Printing is on white: dark tones are swapped in place, since there is no time to draw again.
  const lights = Object.fromEntries(Object.entries(tones).map(([light, dark]) => [dark.toLowerCase(), light]));
  addEventListener("beforeprint", () => {
    if (!isDark()) return;
    for (const element of document.querySelectorAll(".chart svg *")) {
      for (const name of ["fill", "stroke"]) {
        const light = lights[(element.getAttribute(name) || "").toLowerCase()];
        if (light) element.setAttribute(name, light);
      }
    }
  });
  addEventListener("afterprint", () => { if (isDark()) drawAll(); });

  let width = innerWidth;
  let later = 0;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    clearTimeout(later);
    later = setTimeout(drawAll, 150);
  });

  drawAll();
})();
