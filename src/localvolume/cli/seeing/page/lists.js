// Tables and bars. A table shows its first rows, and more on demand: 10,000 rows would be slow.

const FIRST = 50;
const shownRows = {};

function tag(cell, health, text) {
  cell.append("span").attr("class", `tag ${HEALTH[health].tag}`).text(`${HEALTH[health].mark} ${text}`);
}

function asking(cell, about, text) {
  if (!about) { cell.append("span").text(text); return; }
  cell.append("button").attr("type", "button").attr("class", "link")
    .attr("data-key", about).text(text)
    .on("click", () => explain(about));
}

// `columns` are pairs of a title and a function that fills a cell from a row.
function table(place, key, rows, columns) {
  const limit = shownRows[key] || FIRST;
  place.selectAll("table, .more").remove();
  if (!rows.length) return;
  const made = place.append("table");
  made.append("thead").append("tr").selectAll("th").data(columns).join("th")
    .attr("scope", "col").text((one) => one[0]);
  const body = made.append("tbody");
  for (const row of rows.slice(0, limit)) {
    const line = body.append("tr");
    for (const [title, fill] of columns) {
      fill(line.append("td").attr("data-title", title), row);
    }
  }
  if (rows.length > limit) {
    place.append("button").attr("type", "button").attr("class", "more")
      .text(`Show more (${rows.length - limit} left)`)
      .on("click", () => { shownRows[key] = limit + 4 * FIRST; table(place, key, rows, columns); });
  }
}

function plain(get) { return (cell, row) => cell.text(get(row)); }

// `rows` null: they are not known, and `unknown` says why.
function section(id, title, rows, columns, none, unknown = "Not known: it could not be read.") {
  const place = d3.select(`#${id}`);
  place.selectAll("h2, .empty").remove();
  const head = place.insert("h2", ":first-child").text(`${title} `);
  head.append("span").attr("class", "count").text(rows === null ? UNKNOWN : rows.length);
  table(place, id, rows || [], columns);
  if (rows === null || !rows.length) {
    place.append("p").attr("class", "quiet empty")
      .text(rows === null ? unknown : none);
  }
}

// `parts` have a class, a size and a text.
function stack(place, parts, text) {
  place.attr("class", "stack").attr("role", "img").attr("aria-label", text).attr("title", text);
  place.selectAll("span").data(parts.filter((one) => one.size > 0)).join("span")
    .attr("class", (one) => one.look)
    .each(function grow(one) { this.style.flexGrow = one.size / 2 ** 20; });
}

function tiles(data) {
  const sum = data.summary, agents = sum.agents || {};
  const agentsKnown = sum.nodes !== null && !data.unknown.some((one) => one.what === "pods");
  const ready = agents.ready || 0, notReady = (agents["not ready"] || 0) + (agents.missing || 0);
  const controller = data.controller;
  const bad = data.states.filter((one) => one.health === "bad")
    .reduce((all, one) => all + ((sum.volumes || {})[one.name] || 0), 0);
  const free = (data.volumes || []).filter((one) => one.state === "available")
    .reduce((all, one) => all + (one.capacityBytes || 0), 0);
  const list = [
    ["Volumes", count(sum.volumeCount), sum.volumes === null ? "not known"
      : bad ? `${bad} to look at` : data.unknown.length ? "others are not known" : "all well", bad > 0],
    ["Capacity", size(sum.capacityBytes), sum.volumes === null ? "of all volumes"
      : `${size(free)} available`, false],
    ["Nodes", count(sum.nodes), !agentsKnown ? "agents: not known" : `${several(ready, "agent", "agents")} ready` + (notReady ? `, ${notReady} not` : "")
      + (agents.unknown ? `, ${agents.unknown} not known` : ""), notReady > 0],
    ["Waiting claims", count(sum.claimsWaiting), controller.pods === null ? "controller: not known"
      : !controller.pods ? "no controller was found" : `controller: ${controller.ready} of ${controller.pods} ready`, false],
    ["Cleanings", count(data.cleanings === null ? null : data.cleanings.length), "under way", false],
    ["Problems", count(sum.problems), data.unknown.length ? "others are not known"
      : sum.problems ? "listed below" : "none known", sum.problems > 0],
  ];
  const made = d3.select("#tiles").selectAll("div").data(list).join((enter) => {
    const one = enter.append("div");
    one.append("dt");
    one.append("dd").attr("class", "figure");
    one.append("dd").attr("class", "note");
    return one;
  });
  made.attr("class", (one) => (one[3] ? "bad" : ""));
  made.select("dt").text((one) => one[0]);
  made.select(".figure").text((one) => one[1]);
  made.select(".note").text((one) => one[2]);
}

function states(data) {
  const counts = data.summary.volumes;
  const kinds = data.states.map((one) => ({
    ...one, look: look({ health: one.health, state: one.name }),
    number: counts === null ? null : counts[one.name],
  })).filter((one) => one.number);
  const text = kinds.map((one) => `${one.number} ${one.name}`).join(", ");
  stack(d3.select("#states"), kinds.map((one) => ({ look: one.look, size: one.number * 2 ** 20 })),
    text || "no volumes are known");
  const items = d3.select("#legend").selectAll("li").data(kinds).join((enter) => {
    const one = enter.append("li");
    one.append("i");
    one.append("span");
    return one;
  });
  items.select("i").attr("class", (one) => one.look);
  items.select("span").text((one) => `${MARKS[one.name]} ${one.number} ${one.name}`);
}

// What is free in pools: as classes may share a pool, at least the largest figure is.
function roomOf(node) {
  if (node.rooms === null) return null;
  return node.rooms.reduce((most, one) => Math.max(most, one.roomBytes || 0), 0);
}

function nodeBar(cell, node) {
  const own = picture.byNode.get(node.name) || [];
  const parts = ["bad-state", "busy", "bound", "available"].map((kind) => ({
    look: kind, size: own.filter((one) => look(one) === kind)
      .reduce((all, one) => all + (one.capacityBytes || 0), 0),
  }));
  parts.push({ look: "free-room", size: roomOf(node) || 0 });
  const free = parts[3].size, room = roomOf(node);
  const text = `${size(node.promisedBytes)} promised, ${size(node.classes === null ? null : free)} `
    + "free in prepared volumes"
    + (node.rooms === null ? ", room in pools not known"
      : node.rooms.length ? `, at least ${size(room)} free in pools` : "");
  const place = cell.attr("class", "wide").append("div");
  stack(place.append("div"), parts, text);
  place.append("div").attr("class", "quiet").text(text);
}

// What is used, what is promised beyond that, and the rest: together as large as the pool is.
function poolBar(place, pool) {
  const total = pool.totalBytes, used = pool.usedBytes;
  const promised = Math.min(Math.max((pool.promisedBytes || 0) - used, 0), total - used);
  const text = `${size(used)} used, ${size(pool.promisedBytes)} promised, ${size(total - used)} free `
    + `of ${size(total)}`;
  stack(place.append("div"), [
    { look: "bound", size: used }, { look: "promised", size: promised },
    { look: "free-room", size: total - used - promised },
  ], `pool ${pool.name}: ${text}`);
  place.append("div").attr("class", "quiet").text(text);
}

function poolsOf(cell, node) {
  const place = cell.attr("class", "wide").append("div");
  if (node.pools === null) { place.text(UNKNOWN); return; }
  for (const pool of node.pools) {
    const one = place.append("div").attr("class", "pool");
    const held = several(pool.volumeCount, "volume", "volumes");
    if (pool.usedBytes === null || pool.totalBytes === null) {
      one.text(`${pool.name}: ${held}, ${size(pool.promisedBytes)} promised`
        + (pool.totalBytes === null ? "" : ` of ${size(pool.totalBytes)}`));
    } else {
      one.append("div").text(`${pool.name}: ${held}`);
      poolBar(one, pool);
    }
  }
  for (const room of node.rooms || []) {
    place.append("div").attr("class", "quiet").text(`class ${room.class}: `
      + `room for ${size(room.roomBytes)}, largest volume ${size(room.largestBytes)}`);
  }
  if (node.disks !== null) {
    place.append("div").attr("class", "quiet")
      .text(several(node.disks.length + node.disksLeftOut, "raw disk", "raw disks"));
  }
  if (node.lastDiskEvent) {
    place.append("div").attr("class", "quiet")
      .text(`raw disks: ${node.lastDiskEvent.reason}: ${node.lastDiskEvent.message}`);
  }
}

const VERDICTS = { done: "good", format: "busy", link: "busy", mount: "busy", hold: "warning" };

function disksOf(data) {
  const unread = data.unknown.some((one) => one.what === "csistoragecapacities");
  const told = data.nodes.filter((node) => node.disks !== null);
  const known = !unread && (told.length || !data.nodes.length);
  section("disks", "Raw disks", known
    ? told.flatMap((node) => node.disks.map((disk) => ({ ...disk, node: node.name }))) : null, [
    ["Node", plain((row) => row.node)],
    ["Disk", (cell, row) => {
      const place = cell.append("div");
      place.append("div").text(row.path);
      place.append("div").attr("class", "quiet")
        .text([row.device === row.path ? "" : row.device, row.model, row.serial]
          .filter((text) => text).join(", "));
    }],
    ["Size", plain((row) => size(row.capacityBytes))],
    ["For class", plain((row) => row.class)],
    ["Verdict", (cell, row) => {
      const health = VERDICTS[row.verdict];
      if (health) tag(cell, health, row.verdict); else cell.append("span").text(row.verdict);
    }],
    ["Why", plain((row) => row.reason)],
  ], "No node has any.", unread ? undefined
    : "Not known: no agent reports any. An agent does so if its configuration has the key disks.");
  const more = told.filter((node) => node.disksLeftOut)
    .map((node) => `${node.name}: ${node.disksLeftOut} more`);
  if (more.length) {
    d3.select("#disks").append("p").attr("class", "quiet empty").text(more.join(", "));
  }
}

function nodeState(cell, node) {
  const place = cell.append("div");
  tag(place, node.health, HEALTH[node.health].text);
  const there = node.exists === false ? "no such Node" : node.ready === null ? "node not known"
    : node.ready ? "" : "node not ready";
  const agent = node.agent.state === "ready" ? "" : `agent ${node.agent.state}: ${node.agent.reason}`;
  for (const text of [there, agent]) {
    if (text) place.append("div").attr("class", "quiet").text(text);
  }
}

function lists(data, now) {
  const heard = !data.unknown.some((one) => one.what === "events");
  section("problems", "Problems", data.problems, [
    ["Problem", (cell, row) => tag(cell, row.severity === "error" ? "bad" : "warning",
      row.severity)],
    ["About", (cell, row) => asking(cell, row.ask, row.about)],
    ["Node", plain((row) => row.node)],
    ["What", plain((row) => row.reason)],
    ["Said", plain((row) => (row.said ? `${since(row.said, now)} ago` : ""))],
    ["Do", plain((row) => row.do)],
  ], data.unknown.length ? "None of what could be read." : "None known.");
  section("claims", "Waiting claims", data.claims, [
    ["Claim", (cell, row) => asking(cell, `pvc/${row.namespace}/${row.name}`,
      `${row.namespace}/${row.name}`)],
    ["Class", plain((row) => row.class)],
    ["Size", plain((row) => size(row.requestedBytes))],
    ["Node", plain((row) => row.node)],
    ["Waits", plain((row) => since(row.created, now))],
    ["Last word", plain((row) => said(row.lastEvent, now, heard))],
  ], "No claim waits.");
  section("cleanings", "Cleanings", data.cleanings, [
    ["Volume", (cell, row) => asking(cell, `pv/${row.persistentVolume}`, row.persistentVolume)],
    ["Node", plain((row) => row.node)],
    ["For", plain((row) => (row.deleting ? since(row.deleting, now) : ""))],
    ["Jobs", plain((row) => (row.jobs === null ? UNKNOWN
      : row.jobs.map((job) => `${job.name}: ${job.state}`).join(", ")))],
    ["Last word", plain((row) => said(row.lastEvent, now, heard))],
  ], "Nothing is being cleaned.");
  const nodes = data.summary.nodes === null && !data.nodes.length ? null : data.nodes;
  section("nodes", "Nodes", nodes, [
    ["Node", (cell, row) => cell.append("button").attr("type", "button").attr("class", "link")
      .attr("data-key", row.name).text(row.name).on("click", () => enter(row.name))],
    ["State", nodeState],
    ["Volumes", plain((row) => (data.volumes === null ? UNKNOWN
      : String((picture.byNode.get(row.name) || []).length)))],
    ["Room", nodeBar],
    ["Pools and disks", poolsOf],
    ["Waiting", plain((row) => count(row.claimsWaiting))],
  ], "No node has anything of localvolume.");
  disksOf(data);
}

function volumeTable(volumes, now) {
  table(d3.select("#table"), "volumes", volumes, [
    ["Volume", (cell, row) => asking(cell, `pv/${row.name}`, row.name)],
    ["State", (cell, row) => tag(cell, row.health, row.state)],
    ["Node", plain((row) => row.node)],
    ["Class", plain((row) => row.class)],
    ["Size", plain((row) => size(row.capacityBytes))],
    ["Claim", plain((row) => row.claim)],
    ["Age", plain((row) => since(row.created, now))],
    ["Path", plain((row) => (row.csi ? "through CSI" : row.path))],
  ]);
}
