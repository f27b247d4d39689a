// The page itself: what is chosen, what is drawn anew, and how its server is asked.

const live = JSON.parse(document.getElementById("live").textContent);
const canvas = document.getElementById("map");
const picture = { data: null, byNode: new Map(), root: null, node: "", at: null, old: "", got: 0,
  number: 0 };

function matching() {
  const words = document.getElementById("search").value.toLowerCase();
  const state = document.getElementById("state").value;
  return (picture.data.volumes || []).filter((one) => (!state || one.state === state)
    && (!words || [one.name, one.claim, one.node, one.class]
      .some((text) => (text || "").toLowerCase().includes(words))));
}

function describe(leaf) {
  if (!leaf) return "";
  if (leaf.depth === 1) return `${leaf.data.name}: ${several(leaf.children.length, "volume", "volumes")}`;
  const one = leaf.data;
  return `${one.name}, ${one.state}, ${size(one.capacityBytes)}, class ${one.class}, node ${one.node}`
    + (one.claim ? `, claim ${one.claim}` : "");
}

function paint() {
  const scale = window.devicePixelRatio || 1, volumes = matching();
  const key = picture.at && picture.at.data.name;
  if (picture.node && !picture.byNode.has(picture.node)) picture.node = "";
  canvas.width = Math.round(canvas.clientWidth * scale);
  canvas.height = Math.round(canvas.clientHeight * scale);
  picture.root = laidOut(volumes, picture.node, canvas.clientWidth, canvas.clientHeight);
  picture.at = key ? picture.root.leaves().find((one) => one.data.name === key) || null : null;
  draw(canvas, picture.root, picture.at);
  const drawn = picture.root.leaves().filter((one) => one.depth === 2).length;
  const text = picture.data.volumes === null ? "volumes are not known"
    : `${several(drawn, "volume", "volumes")} ${picture.node ? `of ${picture.node}` : "by node"}`;
  canvas.setAttribute("aria-label", `Picture of ${text}; arrow keys choose one, Enter explains it`);
  const where = d3.select("#where");
  where.text("");
  if (picture.node) {
    where.append("button").attr("type", "button").attr("class", "link").attr("id", "all-nodes")
      .text("All nodes").on("click", () => enter(""));
    where.append("span").text(` › ${picture.node}: `);
  }
  where.append("span").attr("class", "quiet").text(picture.node ? `${several(drawn, "volume",
    "volumes")}, each as large as it is` : `${text}, each as large as it is`);
  if (!document.getElementById("table").hidden) volumeTable(volumes, Date.parse(picture.data.time));
}

function enter(node) {
  picture.node = node;
  picture.at = null;
  show("picture");
  document.getElementById("volumes-title").scrollIntoView({ block: "start" });
}

function show(view) {
  document.getElementById("picture").hidden = view !== "picture";
  document.getElementById("table").hidden = view !== "table";
  document.getElementById("as-picture").setAttribute("aria-pressed", String(view === "picture"));
  document.getElementById("as-table").setAttribute("aria-pressed", String(view === "table"));
  paint();
}

function render(data) {
  picture.data = data;
  picture.byNode = new Map();
  for (const volume of data.volumes || []) {
    if (!picture.byNode.has(volume.node)) picture.byNode.set(volume.node, []);
    picture.byNode.get(volume.node).push(volume);
  }
  const now = Date.parse(data.time);
  document.querySelector("main").hidden = false;
  d3.select("#unknown").property("hidden", !data.unknown.length).selectAll("li")
    .data(data.unknown).join("li").text((one) => `Not known: ${one.what}: ${one.reason}`);
  d3.select("#state").selectAll("option").data([{ name: "" }, ...data.states]).join("option")
    .attr("value", (one) => one.name).text((one) => one.name || "Every state");
  tiles(data);
  states(data);
  paint();
  lists(data, now);
  tick();
}

// How old the picture is, by this machine's clock since it came: two clocks may differ.
function tick() {
  const asof = document.getElementById("asof"), stale = document.getElementById("stale");
  if (!picture.data) { stale.textContent = picture.old; stale.hidden = !picture.old; return; }
  const time = `${picture.data.time.replace("T", " ").replace("Z", "")} UTC`;
  const seconds = (performance.now() - picture.got) / 1000;
  if (live.every && !picture.old && seconds > 3 * live.every + 30) {
    picture.old = "Nothing new has come.";
  }
  asof.className = live.every ? (picture.old ? "old" : "live") : "";
  asof.textContent = live.every ? `${picture.old ? "Old" : "Live"}, as of ${time}` : `As of ${time}`;
  stale.hidden = !picture.old;
  const text = picture.old ? `This picture is old, of ${time}. ${picture.old}` : "";
  if (stale.textContent !== text) stale.textContent = text;
  document.body.classList.toggle("old-picture", Boolean(picture.old));
}

// Rows are made anew: who had a button chosen by keyboard has its successor.
function keepingFocus(act) {
  const before = document.activeElement, place = before && before.closest("section");
  const key = place && before.dataset.key;
  act();
  if (!key || document.activeElement === before) return;
  const next = [...place.querySelectorAll("[data-key]")].find((one) => one.dataset.key === key);
  if (next) next.focus();
}

async function ask() {
  try {
    const answer = await fetch(`data?have=${picture.number}`, { cache: "no-store", signal: AbortSignal.timeout(120000) });
    if (!answer.ok) throw new Error(`localvolume ui answers ${answer.status}`);
    const found = await answer.json();
    picture.old = found.error;
    picture.got = performance.now() - found.age * 1000;
    if (found.data) {
      picture.number = found.number;
      keepingFocus(() => render(found.data));
    } else if (picture.data && found.time) picture.data.time = found.time;
  } catch (error) {
    picture.old = `localvolume ui does not answer; is it still running? (${error.message})`;
  }
  tick();
  setTimeout(ask, live.every * 1000);
}

async function explain(about) {
  const dialog = d3.select("#why");
  dialog.text("");
  const head = dialog.append("div").attr("class", "bar");
  head.append("h2").attr("id", "why-title").text(about);
  head.append("button").attr("type", "button").attr("class", "more").attr("id", "close")
    .text("Close").on("click", () => dialog.node().close());
  const place = dialog.append("div");
  place.append("p").attr("class", "verdict quiet").text("…");
  if (!dialog.node().open) dialog.node().showModal();
  let why = picture.data.whys[about];
  let missing = "This file has no explanation of it.";
  if (!why && live.every) {
    try {
      const answer = await fetch(`why?about=${encodeURIComponent(about)}`, { cache: "no-store" });
      why = answer.ok ? await answer.json() : null;
      missing = answer.ok ? "" : await answer.text();
    } catch (error) {
      missing = `localvolume ui does not answer (${error.message}).`;
    }
  }
  place.text("");
  if (!why) {
    const [, name, claim] = about.split("/");
    const words = claim ? `pvc/${claim} -n ${name}` : about;
    place.append("p").attr("class", "verdict").text(missing);
    place.append("p").text(`localvolume why ${words} asks the cluster.`);
    return;
  }
  place.append("p").attr("class", "verdict").text(why.reason);
  // Words about an old picture are old too.
  place.append("p").attr("class", "quiet").text(document.getElementById("asof").textContent);
  pairs(place, [{ name: "Next", value: why.next }, { name: "Who", value: why.who }]);
  place.append("h3").text("What this is based on");
  pairs(place, why.facts);
  if (why.events.length) place.append("h3").text("Events, newest first");
  const now = Date.parse(picture.data.time);
  pairs(place, why.events.map((one) => ({
    name: `${since(one.time, now)} ago${one.count > 1 ? ` ×${one.count}` : ""}`,
    value: `${one.reason}, ${whom(one)}: ${one.message}`,
  })));
}

function pairs(place, rows) {
  const list = place.append("dl");
  for (const row of rows) {
    list.append("dt").text(row.name);
    list.append("dd").text(row.value);
  }
}

function point(leaf) {
  picture.at = leaf && leaf.depth === 2 ? leaf : null;
  document.getElementById("pointed").textContent = describe(leaf);
  draw(canvas, picture.root, picture.at);
}

function under(event) {
  const box = canvas.getBoundingClientRect();
  return at(picture.root, event.clientX - box.left, event.clientY - box.top);
}

canvas.addEventListener("mousemove", (event) => point(under(event)));
canvas.addEventListener("click", (event) => {
  const leaf = under(event);
  if (!leaf) return;
  // With many nodes a volume is too small to be hit: first its node, then the volume.
  const nodes = (picture.root.children || []).length;
  if (leaf.depth === 1 || (nodes > HEADED && !picture.node)) {
    enter(leaf.depth === 1 ? leaf.data.name : leaf.data.node);
  } else explain(`pv/${leaf.data.name}`);
});
canvas.addEventListener("keydown", (event) => {
  const all = picture.root.leaves().filter((one) => one.depth === 2);
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (step && all.length) {
    event.preventDefault();
    const now = picture.at ? all.indexOf(picture.at) : (step > 0 ? -1 : 0);
    point(all[(now + step + all.length) % all.length]);
  } else if (event.key === "Enter" && picture.at) explain(`pv/${picture.at.data.name}`);
});
document.getElementById("search").addEventListener("input", paint);
document.getElementById("state").addEventListener("change", paint);
document.getElementById("as-picture").addEventListener("click", () => show("picture"));
document.getElementById("as-table").addEventListener("click", () => show("table"));
window.addEventListener("resize", () => { if (picture.data) paint(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  if (picture.data) paint();
});

const first = JSON.parse(document.getElementById("data").textContent);
if (first) { picture.got = performance.now(); render(first); }
if (live.every) { setInterval(tick, 1000); ask(); }
