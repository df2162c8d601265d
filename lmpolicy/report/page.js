"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { texts, lists, pictures, runs } = data;
  const main = document.getElementById("main");
  const MINUS = "\u2212";
  const MOST_BARS = 10;
  const MOST_POINTS = 2000;
  const ROLES = ["system", "observation", "answer"];

  // Small helpers. Text goes into the page as text only: there is no innerHTML here.

  function make(name, attributes, ...children) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) {
      if (value !== null && value !== undefined && value !== false) element.setAttribute(key, value === true ? "" : value);
    }
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  }

  function draw(name, attributes, ...children) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
    element.append(...children);
    return element;
  }

  function number(value, digits = 4) {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(value);
    let text;
    if (size !== 0 && (size < 1e-4 || size >= 1e7)) text = value.toExponential(2);
    else text = Number(value.toPrecision(digits)).toLocaleString("en-US", { maximumFractionDigits: 6 });
    return text.replace("-", MINUS);
  }

  const whole = (value) => value.toLocaleString("en-US");
  const shorter = (value, small) => (Math.abs(value) >= 1e6 ? `${number(value / 1e6, 3)}M` : Math.abs(value) >= 1e4 ? `${number(value / 1e3, 3)}k` : small(value));
  const steps = (value) => shorter(value, whole);
  const percent = (share) => (share === null || share === undefined ? "–" : share > 0 && share < 0.001 ? "<0.1%" : `${(100 * share).toFixed(1)}%`);
  const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
  const several = runs.length > 1;
  const SUB = several ? "h4" : "h3";
  const paint = (place) => `run${place % 4}`;

  function ticks(low, high, count) {
    const step0 = (high - low || 1) / count;
    const power = 10 ** Math.floor(Math.log10(step0));
    const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((one) => one >= step0 * 0.999);
    const found = [];
    for (let tick = Math.ceil(low / step - 1e-9) * step; tick <= high + step * 1e-6; tick += step) found.push(Math.abs(tick) < step * 1e-9 ? 0 : tick);
    return found;
  }

  // Charts.

  const WIDTH = 340, HEIGHT = 170, LEFT = 48, RIGHT = 6, TOP = 10, BOTTOM = 22;
  const charts = [];

  function range(values) {
    let low = Infinity, high = -Infinity;
    for (const value of values) if (value !== null) { low = Math.min(low, value); high = Math.max(high, value); }
    if (low > high) return [0, 1];
    if (low === high) return [low - (Math.abs(low) * 0.1 || 1), high + (Math.abs(high) * 0.1 || 1)];
    return low > 0 && low < 0.5 * high ? [0, high] : [low, high];
  }

  // As in the curves of a comparison (figures.py): logarithmic where a linear axis would show only the worst value.

  const LINEAR = 10, WIDE = 20;
  const spansMagnitudes = (low, high) => -low >= WIDE * Math.max(Math.abs(high), LINEAR);
  const magnitude = (y) => (Math.abs(y) <= LINEAR ? y / LINEAR : Math.sign(y) * (1 + Math.log10(Math.abs(y) / LINEAR)));

  function powers(low, high) {
    const found = [];
    for (let tick = -LINEAR; tick >= low; tick *= 10) if (tick <= high) found.unshift(tick);
    return high >= 0 ? [...found, 0] : found;
  }

  function chart(title, series, bounds) {
    const used = series.filter((one) => one.x.length);
    const last = Math.max(1, ...used.map((one) => one.x[one.x.length - 1]));
    const [low, high] = bounds || range(used.flatMap((one) => one.y));
    const wide = spansMagnitudes(low, high);
    const scale = wide ? magnitude : (y) => y;
    const toX = (x) => LEFT + (x / last) * (WIDTH - LEFT - RIGHT);
    const toY = (y) => TOP + ((scale(high) - scale(y)) / (scale(high) - scale(low))) * (HEIGHT - TOP - BOTTOM);
    const svg = draw("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" });
    const ends = used.map((one) => `${one.name}: from ${number(one.y[0])} to ${number(one.y[one.y.length - 1])}`);
    svg.setAttribute("aria-label", `${title} over env steps${wide ? ", logarithmic axis" : ""}. ${ends.join("; ")}.`);
    for (const tick of wide ? powers(low, high) : ticks(low, high, 3)) {
      svg.append(draw("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: toY(tick), y2: toY(tick) }));
      svg.append(draw("text", { x: LEFT - 6, y: toY(tick) + 4, "text-anchor": "end" }, shorter(tick, (one) => number(one, 3))));
    }
    for (const tick of ticks(0, last, 4)) svg.append(draw("text", { x: toX(tick), y: HEIGHT - 6, "text-anchor": tick > last * 0.95 ? "end" : "middle" }, steps(tick)));
    const here = draw("line", { class: "here", y1: TOP, y2: HEIGHT - BOTTOM, x1: -9, x2: -9, visibility: "hidden" });
    svg.append(here);
    for (const one of used) {
      const points = one.x.map((x, place) => [x, one.y[place]]).filter(([, y]) => y !== null);
      if (points.length === 1) svg.append(draw("circle", { class: `dot ${one.paint}`, cx: toX(points[0][0]), cy: toY(points[0][1]), r: 2.5 }));
      const path = points.map(([x, y], place) => `${place ? "L" : "M"}${toX(x).toFixed(1)} ${toY(y).toFixed(1)}`).join("");
      svg.append(draw("path", { class: `curve ${one.paint}`, d: path }));
    }
    const readout = make("output", {});
    const figure = make("figure", {}, make("figcaption", {}, make("span", {}, wide ? `${title}, logarithmic` : title), readout), svg);
    const show = (step) => {
      here.setAttribute("visibility", step === null ? "hidden" : "visible");
      if (step !== null) { here.setAttribute("x1", toX(Math.min(step, last))); here.setAttribute("x2", toX(Math.min(step, last))); }
      const values = used.map((one) => make("span", { class: `ink ${one.paint}` }, number(one.y[step === null ? one.y.length - 1 : nearest(one.x, step)])));
      readout.replaceChildren(...values, ...(step === null || !hovered ? [] : [`at ${steps(Math.round(step))}`]));
    };
    let hovered = false;
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const x = ((event.clientX - box.left) / box.width) * WIDTH;
      hovered = true;
      show(clamp(((x - LEFT) / (WIDTH - LEFT - RIGHT)) * last, 0, last));
    });
    svg.addEventListener("pointerleave", () => { hovered = false; show(figure.step); });
    figure.step = null;
    figure.mark = (step) => { figure.step = step; if (!hovered) show(step); };
    figure.mark(null);
    return figure;
  }

  function nearest(values, wanted) {
    let best = 0;
    values.forEach((value, place) => { if (Math.abs(value - wanted) <= Math.abs(values[best] - wanted)) best = place; });
    return best;
  }

  function series(names) {
    return runs.map((run, place) => {
      const [name, sign] = names.map((one) => (one.startsWith("-") ? [one.slice(1), -1] : [one, 1])).find(([one]) => run.curves[one]) || [null, 1];
      const [x, y] = name ? run.curves[name] : [[], []];
      return { name: run.name, paint: paint(place), x, y: sign < 0 ? y.map((value) => (value === null ? null : -value)) : y };
    });
  }

  const SHOWN = [
    ["Return per episode", ["rollout/ep_rew_mean"]],
    ["Return in evaluation", ["eval/mean_reward"]],
    ["Entropy, nats", ["lm/entropy", "-train/entropy_loss"]],
    ["KL of an update", ["train/approx_kl"]],
    ["Value error", ["train/value_loss", "train/critic_loss"]],
    ["Env steps per second", ["time/env_steps_per_second", "time/fps"]],
    ["Share of parse errors", ["lm/parse_error_rate"]],
    ["KL to the reference", ["train/kl_to_reference"]],
  ];

  function curvesSection() {
    const section = make("section", { id: "curves", "aria-labelledby": "curves-title" }, make("h2", { id: "curves-title" }, "How it learnt"));
    const all = [...new Set(runs.flatMap((run) => Object.keys(run.curves)))].sort();
    if (!all.length) {
      section.append(make("p", {}, "No log was found. Train with tensorboard_log=, or with the logger format csv, to see curves here."));
      return section;
    }
    section.append(make("p", {}, "Over env steps of the training. A number is the last value, or that at the dotted line, which stands where the episode below was played."));
    if (several) {
      section.append(make("ul", { class: "keys" }, ...runs.map((run, place) => make("li", { class: paint(place) }, make("span", { class: "swatch" }), run.name))));
    }
    const grid = make("div", { class: "charts" });
    const taken = new Set();
    for (const [title, names] of SHOWN) {
      const lines = series(names);
      if (lines.every((one) => !one.x.length)) continue;
      names.forEach((name) => taken.add(name.replace("-", "")));
      charts.push(chart(title, lines));
      grid.append(charts[charts.length - 1]);
    }
    section.append(grid);
    const rest = all.filter((name) => !taken.has(name));
    if (rest.length) section.append(folded(`All other numbers of the log (${rest.length})`, () => {
      const more = make("div", { class: "charts" });
      for (const name of rest) more.append(chart(name, series([name])));
      return more;
    }));
    section.append(folded("The same as a table", () => table(all)));
    return section;
  }

  function folded(title, fill) {
    const details = make("details", {}, make("summary", {}, title));
    details.addEventListener("toggle", () => { if (details.open && details.childElementCount === 1) details.append(fill()); });
    return details;
  }

  function table(names) {
    const head = make("tr", {}, make("th", { scope: "col" }, "number"), ...runs.flatMap((run) => [`first${several ? `, ${run.name}` : ""}`, `last${several ? `, ${run.name}` : ""}`]).map((text) => make("th", { scope: "col" }, text)));
    const rows = names.map((name) => make("tr", {}, make("th", { scope: "row" }, name), ...runs.flatMap((run) => {
      const y = (run.curves[name] || [[], []])[1];
      return [y[0], y[y.length - 1]].map((value) => make("td", {}, number(value)));
    })));
    return make("table", { tabindex: "0" }, make("caption", { class: "hidden" }, "First and last value of each logged number"), make("thead", {}, head), make("tbody", {}, ...rows));
  }

  // What was read, and how likely each phrase was.

  function messages(flat) {
    const pairs = [];
    for (let place = 0; place < flat.length; place += 2) pairs.push([flat[place], texts[flat[place + 1]]]);
    const now = pairs.pop();
    const box = make("div", {});
    const system = pairs.length && pairs[0][0] === 0 ? pairs.shift() : null;
    const block = (name, text) => make("div", { class: "message" }, make(SUB, { class: "label" }, name), scrolled("pre", text));
    const fold = (name, blocks) => make("details", { class: "message" }, make("summary", {}, name), ...blocks);
    box.append(make("div", { class: "message now" }, make(SUB, { class: "label" }, "What it read"), scrolled("pre", now[1])));
    if (pairs.length) box.append(fold(`History: ${pairs.length / 2} earlier turn${pairs.length > 2 ? "s" : ""}`, pairs.map(([role, text]) => block(ROLES[role], text))));
    if (system) box.append(fold("System prompt", [scrolled("pre", system[1])]));
    return box;
  }

  function scrolled(name, text, attributes) {
    const element = make(name, { dir: "auto", ...attributes }, text);
    if (text.length > 600) element.tabIndex = 0;
    return element;
  }

  function keepOpen(holder, fill) {
    const open = [...holder.querySelectorAll("details")].map((one) => [one.firstChild.textContent.split(":")[0], one.open]);
    holder.replaceChildren(...fill());
    for (const one of holder.querySelectorAll("details")) one.open = open.some(([name, was]) => was && one.firstChild.textContent.startsWith(name));
  }

  function bars(list, shares, action) {
    const phrases = lists[list].map((text, place) => ({ text, share: shares[place], taken: text === action }));
    if (!phrases.length) return null;
    const item = (one) => {
      const fill = make("div", { class: "fill" });
      fill.style.width = `${100 * (one.share || 0)}%`;
      return make("li", { class: one.taken ? "taken" : null },
        make("span", { class: "phrase" }, texts[one.text], one.taken ? make("span", { class: "tick", role: "img", "aria-label": "taken" }, "✓") : null),
        make("div", { class: "track" }, fill), make("span", { class: "share" }, percent(one.share)));
    };
    if (phrases.length <= MOST_BARS + 2) return make("div", {}, make("ol", { class: "bars" }, ...phrases.map(item)));
    const best = [...phrases].sort((one, other) => (other.share || 0) - (one.share || 0));
    const first = new Set(best.slice(0, MOST_BARS));
    const shown = best.filter((one) => first.has(one) || one.taken);
    const rest = best.filter((one) => !shown.includes(one));
    return make("div", {}, make("ol", { class: "bars" }, ...shown.map(item)), make("details", {}, make("summary", {}, `Less likely: ${rest.length} phrases`), make("ol", { class: "bars" }, ...rest.map(item))));
  }

  function facts(pairs) {
    return make("dl", { class: "facts" }, ...pairs.filter(Boolean).map(([name, value, long]) => make("div", { class: long ? "long" : null }, make("dt", {}, name), make("dd", {}, value))));
  }

  let count = 0;
  function slider(name, last, changed) {
    const id = `slider${count += 1}`;
    const input = make("input", { type: "range", id, min: 0, max: last, step: 1, value: 0 });
    const output = make("output", { for: id });
    const back = make("button", { type: "button", "aria-label": `${name}: back` }, "‹");
    const on = make("button", { type: "button", "aria-label": `${name}: on` }, "›");
    const buttons = make("div", { class: "buttons" }, back, on);
    const row = make("div", { class: "slide" }, make("label", { for: id }, name), input, buttons, output);
    const set = (value) => { input.value = clamp(value, 0, +input.max); changed(+input.value); };
    input.addEventListener("input", () => changed(+input.value));
    back.addEventListener("click", () => set(+input.value - 1));
    on.addEventListener("click", () => set(+input.value + 1));
    const show = (text) => {
      output.textContent = text;
      input.setAttribute("aria-valuetext", text);
      back.disabled = +input.value === 0;
      on.disabled = input.value === input.max;
      row.hidden = false;
    };
    return { row, input, buttons, set, show };
  }

  // Episodes, turn by turn.

  class Pane {
    constructor(run, place, others) {
      this.run = run; this.others = others; this.episode = run.episodes.length - 1; this.turn = 0; this.timer = null;
      this.element = make("article", { class: `pane ${paint(place)}`, "aria-label": `Episodes of ${run.name}` });
      if (several) this.element.append(make("h3", {}, make("span", { class: "swatch" }), run.name));
      if (!run.episodes.length) {
        this.element.append(make("p", { class: "empty" }, "No episodes were recorded. WatchLearning records them in training, and lmpolicy.record_episodes afterwards."));
        return;
      }
      this.episodes = slider("Episode", run.episodes.length - 1, (value) => this.choose(value));
      this.episodes.input.value = this.episode;
      this.turns = slider("Turn", 0, (value) => this.go(value));
      this.play = make("button", { type: "button", class: "wide" }, "Play");
      this.play.addEventListener("click", () => (this.timer ? this.stop() : this.start()));
      this.turns.buttons.append(this.play);
      this.strip = make("figure", { class: "strip" });
      this.picture = make("img", { class: "picture", alt: "", hidden: true });
      this.read = make("div", {});
      this.decided = make("div", {});
      this.element.append(this.episodes.row, this.turns.row, this.strip, make("div", { class: "turn" }, make("div", {}, this.picture, this.read), this.decided));
      this.strip.addEventListener("click", (event) => {
        const box = this.strip.querySelector("svg").getBoundingClientRect();
        this.go(Math.floor(((event.clientX - box.left) / box.width) * this.current.m.length));
      });
      this.choose(this.episode, 0, true);
    }

    get current() { return this.run.episodes[this.episode]; }

    choose(place, turn = 0, quiet = false) {
      if (!this.episodes) return;
      this.stop();
      this.episode = clamp(place, 0, this.run.episodes.length - 1);
      this.episodes.input.value = this.episode;
      const one = this.current, length = one.m.length;
      this.turns.input.max = length - 1;
      const parts = [`${whole(this.episode + 1)} of ${whole(this.run.episodes.length)}`];
      parts.push(one.step ? `at ${whole(one.step)} env steps` : "not trained", `return ${number(one.ret)}`, `${whole(length)} turn${length === 1 ? "" : "s"}${one.cut ? ", cut off" : ""}`);
      if (one.env) parts.push(one.env);
      if (one.greedy !== null) parts.push(one.greedy ? "most likely actions" : "sampled actions");
      this.episodes.show(parts.join(" · "));
      this.drawStrip();
      this.go(turn, true);
      if (!quiet) { for (const figure of charts) figure.mark(one.step); follow(this, (other) => other.choose(other.closest(one.step), 0, true)); }
    }

    closest(step) { return nearest(this.run.episodes.map((one) => one.step), step); }

    drawStrip() {
      const one = this.current, length = one.m.length, values = one.v || one.r, known = values.filter((value) => value !== null);
      const [low, high] = range(known.length ? known : [0]);
      const toX = (place) => ((place + 0.5) / length) * 1000, toY = (value) => 46 - ((value - low) / (high - low)) * 42;
      const svg = draw("svg", { viewBox: "0 0 1000 50", preserveAspectRatio: "none", "aria-hidden": "true" });
      const every = Math.ceil(length / MOST_POINTS);
      const path = values.map((value, place) => (value === null || place % every ? "" : `${toX(place).toFixed(1)} ${toY(value).toFixed(1)}`)).filter(Boolean).join("L");
      svg.append(draw("path", { class: "line", d: path ? `M${path}` : "" }));
      this.mark = draw("line", { class: "mark", y1: 0, y2: 50 });
      this.toX = toX;
      svg.append(this.mark);
      this.strip.replaceChildren(svg, make("figcaption", {}, make("span", {}, one.v ? "Value over the episode" : "Reward over the episode"), make("span", {}, `${number(low, 3)} to ${number(high, 3)}`)));
    }

    go(place, quiet = false) {
      if (!this.episodes) return;
      const one = this.current;
      this.turn = clamp(place, 0, one.m.length - 1);
      this.turns.input.value = this.turn;
      this.turns.show(`${whole(this.turn + 1)} of ${whole(one.m.length)}`);
      this.mark.setAttribute("x1", this.toX(this.turn));
      this.mark.setAttribute("x2", this.toX(this.turn));
      this.show(one, this.turn);
      if (!quiet) follow(this, (other) => other.go(this.turn, true));
    }

    show(one, turn) {
      const at = (name) => (one[name] ? one[name][turn] : null);
      const picture = at("g");
      this.picture.hidden = picture === null;
      if (picture !== null) { this.picture.src = `data:image/png;base64,${pictures[picture]}`; this.picture.alt = `What the env shows at turn ${turn + 1}`; }
      keepOpen(this.read, () => [messages(one.m[turn])]);
      let total = 0;
      for (let place = 0; place <= turn; place += 1) total += one.r[place] || 0;
      const action = at("a"), answer = at("w"), how = at("e");
      const named = action === null ? null : `“${texts[action]}”`;
      const result = how === 1 ? `It names no legal action.${named ? ` The env was given ${named}.` : ""}` : how === 2 ? `A number was out of bounds, and was clipped.${named ? ` Taken: ${named}.` : ""}` : named ? `Taken: ${named}.` : "Read as an action of the env.";
      const shares = bars(one.k[turn], one.p[turn], action);
      const legal = lists[one.k[turn]];
      keepOpen(this.decided, () => [
        answer === null ? null : make("div", { class: "message now" }, make(SUB, { class: "label" }, "What it wrote"), scrolled("pre", texts[answer])),
        shares ? make(SUB, { class: "label" }, one.p[turn].every((share) => share === null) ? "What was legal" : "How likely each phrase was") : null,
        shares,
        facts([
          answer === null && !legal.length ? ["Taken", named || "–", true] : null,
          answer === null ? (legal.length && action === null ? ["Taken", "no legal phrase", true] : null) : ["How it was read", result, true],
          ["Value", number(at("v"))],
          one.d ? ["Advantage", number(at("d"))] : null,
          ["Reward", number(at("r"))],
          ["Return so far", number(total)],
        ]),
      ].filter(Boolean));
    }

    start() {
      if (this.turn === this.current.m.length - 1) this.go(0);
      this.play.textContent = "Pause";
      this.timer = setInterval(() => { this.go(this.turn + 1); if (this.turn === this.current.m.length - 1) this.stop(); }, 200);
    }

    stop() {
      if (this.timer) clearInterval(this.timer);
      this.timer = null;
      if (this.play) this.play.textContent = "Play";
    }
  }

  const panes = [];
  let together = null, active = null;

  function follow(pane, move) {
    active = pane;
    if (together && together.checked) for (const other of panes) if (other !== pane) move(other);
  }

  function episodesSection() {
    const section = make("section", { id: "episodes", "aria-labelledby": "episodes-title", tabindex: "-1" }, make("h2", { id: "episodes-title" }, "What it does, turn by turn"));
    const hint = make("p", {}, "Keys: ", make("kbd", {}, "←"), " ", make("kbd", {}, "→"), " for turns, with ", make("kbd", {}, "Shift"), " for episodes. Advantages and values are in the units that the critic learns.");
    section.append(hint);
    if (several) {
      together = make("input", { type: "checkbox", id: "together" });
      together.checked = true;
      section.append(make("div", { class: "check" }, together, make("label", { for: "together" }, "Move both together")));
      if (runs.length > 2) section.querySelector("label").textContent = "Move all together";
    }
    runs.forEach((run, place) => panes.push(new Pane(run, place)));
    active = panes.find((pane) => pane.episodes) || null;
    section.append(make("div", { class: several ? "panes two" : "panes" }, ...panes.map((pane) => pane.element)));
    return section;
  }

  document.addEventListener("keydown", (event) => {
    const target = event.target;
    const typing = target.closest && target.closest("input, select, textarea, [tabindex='0']");
    if (typing || event.altKey || event.ctrlKey || event.metaKey || !active) return;
    const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!by) return;
    event.preventDefault();
    if (event.shiftKey) active.choose(active.episode + by);
    else active.go(active.turn + by);
  });

  // The same prompts, earlier and later.

  function promptPane(run, place) {
    const element = make("article", { class: `pane ${paint(place)}`, "aria-label": `The same prompts, ${run.name}` });
    if (several) element.append(make("h3", {}, make("span", { class: "swatch" }), run.name));
    if (!run.prompts.length) {
      element.append(make("p", { class: "empty" }, "No prompts were asked about again and again. WatchLearning does so in training."));
      return element;
    }
    let prompt = 0, time = run.prompts[0].t.length - 1;
    const which = slider("Prompt", run.prompts.length - 1, (value) => { prompt = value; open(); });
    const when = slider("Trained", time, (value) => { time = value; show(); });
    const read = make("div", {}), decided = make("div", {}), over = make("div", { class: "over" });
    element.append(which.row, when.row, make("div", { class: "turn" }, read, make("div", {}, decided, over)));
    let figure = null;
    const open = () => {
      const one = run.prompts[prompt];
      time = Math.min(time, one.t.length - 1);
      when.input.max = one.t.length - 1;
      when.input.value = time;
      which.show(`${prompt + 1} of ${run.prompts.length}`);
      const phrases = lists[one.k[0]];
      const last = one.p[one.p.length - 1];
      const best = phrases.map((text, at) => at).sort((a, b) => last[b] - last[a]).slice(0, 4).sort((a, b) => a - b);
      figure = phrases.length ? chart("Probabilities over the training", best.map((at, order) => ({ name: texts[phrases[at]], paint: paint(order), x: one.t, y: one.p.map((row) => row[at]) })), [0, 1]) : one.v ? chart("Value over the training", [{ name: "value", paint: paint(place), x: one.t, y: one.v }]) : null;
      const keys = phrases.length ? make("ul", { class: "keys" }, ...best.map((at, order) => make("li", { class: paint(order) }, make("span", { class: "swatch" }), texts[phrases[at]]))) : null;
      if (figure) figure.querySelector("output").hidden = true;
      over.replaceChildren(...[figure, keys].filter(Boolean));
      keepOpen(read, () => [messages(one.m)]);
      show();
    };
    const show = () => {
      const one = run.prompts[prompt];
      const at = (name) => (one[name] ? one[name][time] : null);
      when.show(`${whole(one.t[time])} env steps`);
      if (figure) figure.mark(one.t[time]);
      const answer = at("w"), shares = bars(one.k[time], one.p[time], at("a"));
      keepOpen(decided, () => [
        answer === null ? null : make("div", { class: "message now" }, make(SUB, { class: "label" }, "What it writes"), scrolled("pre", texts[answer])),
        shares ? make(SUB, { class: "label" }, "How likely each phrase is") : null,
        shares,
        facts([["Value", number(at("v"))]]),
      ].filter(Boolean));
    };
    when.input.value = time;
    open();
    return element;
  }

  function promptsSection() {
    if (runs.every((run) => !run.prompts.length)) return null;
    const section = make("section", { id: "prompts", "aria-labelledby": "prompts-title" }, make("h2", { id: "prompts-title" }, "The same prompts, earlier and later"));
    section.append(make("p", {}, "What the policy said at each point of the training about the same few prompts of its first rollout. The tick marks its most likely phrase."));
    section.append(make("div", { class: several ? "panes two" : "panes" }, ...runs.map(promptPane)));
    return section;
  }

  function header() {
    const lines = runs.map((run) => {
      const last = Math.max(0, ...Object.values(run.curves).map(([x]) => x[x.length - 1] || 0), ...run.episodes.map((one) => one.step));
      const turns = run.episodes.reduce((sum, one) => sum + one.m.length, 0);
      const parts = [last ? `${whole(last)} env steps` : null, `${whole(run.episodes.length)} recorded episode${run.episodes.length === 1 ? "" : "s"}, ${whole(turns)} turns`];
      const returns = run.curves["rollout/ep_rew_mean"];
      if (returns) parts.push(`mean return of the last episodes of training ${number(returns[1][returns[1].length - 1])}`);
      return (several ? `${run.name}: ` : "") + parts.filter(Boolean).join(" · ");
    });
    document.getElementById("facts").replaceChildren(...[...lines, ...data.notes].map((line) => make("span", {}, line)));
  }

  main.classList.toggle("several", several);
  header();
  main.replaceChildren(...[curvesSection(), episodesSection(), promptsSection()].filter(Boolean));
  if (active) for (const figure of charts) figure.mark(active.current.step);
  document.documentElement.dataset.ready = "true";
})();
