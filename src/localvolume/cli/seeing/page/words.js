"use strict";
// Words, sizes and marks. Texts from the cluster are put into the page by textContent only.

const UNKNOWN = "?";
const UNITS = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
// Each state has a mark, so that nobody must tell colours apart.
const MARKS = {
  available: "○", bound: "●", released: "◌", cleaning: "↻", held: "‖", vanished: "∅",
  lost: "✕", unhealthy: "▲", failed: "✕", pending: "…",
};
const HEALTH = {
  good: { mark: "✓", text: "well", tag: "good" },
  busy: { mark: "↻", text: "busy", tag: "busy-text" },
  bad: { mark: "▲", text: "needs a look", tag: "bad" },
  warning: { mark: "!", text: "warning", tag: "busy-text" },
};

function size(bytes) {
  if (bytes === null || bytes === undefined) return UNKNOWN;
  let value = bytes, power = 0;
  while (value >= 1024 && power < UNITS.length - 1) { value /= 1024; power += 1; }
  return value.toFixed(1).replace(/\.0$/, "") + UNITS[power];
}

function age(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole >= 172800) return `${Math.floor(whole / 86400)}d`;
  if (whole >= 7200) return `${Math.floor(whole / 3600)}h`;
  if (whole >= 60) return `${Math.floor(whole / 60)}m`;
  return `${whole}s`;
}

function since(time, now) {
  const moment = Date.parse(time || "");
  return Number.isNaN(moment) ? UNKNOWN : age((now - moment) / 1000);
}

function count(number) { return number === null || number === undefined ? UNKNOWN : String(number); }

function several(number, one, more) { return `${count(number)} ${number === 1 ? one : more}`; }

function look(volume) {
  if (volume.health === "bad") return "bad-state";
  if (volume.health === "busy") return "busy";
  return volume.state === "available" ? "available" : "bound";
}

// Who an Event says has written it, and that it is not ours where it looks so.
function whom(event) {
  return `by ${event.by || "nobody"}${event.instance ? ` on ${event.instance}` : ""}`
    + (event.ours === false ? ", not localvolume" : "");
}

// `heard`: the Events could be read.
function said(event, now, heard) {
  return event
    ? `${event.reason} ${since(event.time, now)} ago, ${whom(event)}: ${event.message}`
    : heard ? "" : UNKNOWN;
}
