"use strict";
// Events of a person as actions of a policy: keys and turns of the wheel that follow one another are one action.
const KEYS_MS = 700, CLICK_MS = 250, WHEEL_MS = 300, LOOK_MS = 700, DRAG = 8, MOST_CORNERS = 50;
const at = (id) => document.getElementById(id), page = at("page"), keys = at("keys");
let queue = Promise.resolve(), waiting = 0, playing = false, shown = "";
let pressed = null, way = [], clicks = 0, typed = "", turned = null, copied = false;
let pending = null, timer = 0; // an action that more of the same may follow

const put = (id, items) => at(id).replaceChildren(...items);
const make = (tag, text, onclick = null) => Object.assign(document.createElement(tag), { textContent: text, type: "button", onclick });
const look = () => { if (playing) page.src = `picture?${Date.now()}`; };

const show = ({ task = "", instruction = "", message, dialog, url = "", actions = [], tabs = [], choices = {} }) => {
  playing = Boolean(instruction);
  [at("task").textContent, at("instruction").textContent, at("message").textContent] = [task, instruction, dialog || message];
  if (document.activeElement !== at("url")) at("url").value = url;
  put("actions", actions.map((text) => make("li", text)));
  put("tabs", tabs.length < 2 ? [] : tabs.map(([address, shown], tab) =>
    make("button", `${shown ? "* " : ""}${address}`, () => act({ name: "switch_tab", tab }))));
  const { name, coordinate, options = [] } = choices;
  put("choices", dialog ? [
    make("button", "OK", () => act({ name: "accept_dialog", text: at("answer").value || null })),
    make("button", "Cancel", () => act({ name: "dismiss_dialog" })),
  ] : options.map((text) => make("button", text, () => act({ name, coordinate, text }))));
};

const send = (path, body = {}) => {
  waiting += 1;
  queue = queue.then(async () => {
    const answer = await fetch(path, { method: "POST", body: JSON.stringify(body) });
    const text = await answer.text();
    if (!answer.ok) throw new Error(text);
    if (text !== shown) show(JSON.parse(text));
    shown = text;
  }).catch((error) => { [shown, at("message").textContent] = ["", `${error.message}: a command that has ended says in its terminal what was kept.`]; }).finally(() => { waiting -= 1; look(); });
};
const flush = () => {
  clearTimeout(timer);
  const action = pending?.finish();
  pending = null;
  if (action) send("act", action);
};
const wait = (kind, milliseconds, finish, event) => {
  if (pending?.kind !== kind) flush(); // what came before is done before
  clearTimeout(timer);
  [pending, timer] = [{ kind, finish, event }, setTimeout(flush, milliseconds)];
};
const act = (action) => { flush(); send("act", action); };
setInterval(() => { if (!waiting && !document.hidden) send("state"); }, LOOK_MS);

const place = ({ clientX, clientY }) => {
  const box = page.getBoundingClientRect(), part = (share) => Math.min(1000, Math.max(0, Math.round(share * 10000) / 10));
  return [part((clientX - box.left) / box.width), part((clientY - box.top) / box.height)];
};
const held = (event) => [["Alt", event.altKey], ["Control", event.ctrlKey], ["Meta", event.metaKey], ["Shift", event.shiftKey]]
  .filter(([, isHeld]) => isHeld).map(([key]) => key);

// The corners of a way, and its ends.
const bends = (points) => {
  const [from, to] = [points[0], points.at(-1)], length = Math.hypot(to.clientX - from.clientX, to.clientY - from.clientY);
  const off = points.map(({ clientX, clientY }) => {
    const [x, y] = [clientX - from.clientX, clientY - from.clientY];
    return length > DRAG ? Math.abs(x * (to.clientY - from.clientY) - y * (to.clientX - from.clientX)) / length : Math.hypot(x, y);
  });
  const most = Math.max(...off), at = off.indexOf(most);
  return most > DRAG ? [...bends(points.slice(0, at + 1)), ...bends(points.slice(at)).slice(1)] : [from, to];
};

page.addEventListener("pointermove", (event) => { if (pressed) way.push(event); });
page.addEventListener("pointerdown", (event) => {
  event.preventDefault();
  keys.focus({ preventScroll: true });
  page.setPointerCapture(event.pointerId);
  [pressed, way] = [event, [event]];
});
page.addEventListener("pointerup", (event) => {
  if (!pressed) return;
  const coordinate = place(pressed), moved = Math.hypot(event.clientX - pressed.clientX, event.clientY - pressed.clientY);
  const modifiers = held(event), button = [null, "middle", "right"][event.button];
  pressed = null;
  const corners = bends([...way, event]).slice(1, -1), step = Math.ceil(corners.length / MOST_CORNERS);
  const path = corners.filter((_, number) => number % step === 0).map(place);
  if (moved > DRAG || path.length) return act({ name: "drag", coordinate, to_coordinate: place(event), path: path.length ? path : null });
  if (at("hover").checked) {
    at("hover").checked = false;
    return act({ name: "hover", coordinate });
  }
  const kind = `click ${button}`, last = pending?.kind === kind ? pending.event : null;
  const isSame = last && Math.hypot(event.clientX - last.clientX, event.clientY - last.clientY) <= DRAG;
  if (!isSame) flush();
  clicks = isSame ? Math.min(clicks + 1, 3) : 1;
  const action = { name: "click", coordinate, button, clicks: clicks > 1 ? clicks : null, modifiers: modifiers.length ? modifiers : null };
  wait(kind, CLICK_MS, () => action, event);
});
// A file that is dropped is meant by its name: the browser has those of the task. Elsewhere a drop would leave this page.
document.addEventListener("dragover", (event) => event.preventDefault());
document.addEventListener("drop", (event) => {
  event.preventDefault();
  const names = Array.from(event.dataTransfer.files, ({ name }) => name);
  if (event.target === page && names.length) act({ name: "upload_file", coordinate: place(event), text: names.join("\n") });
});
page.addEventListener("contextmenu", (event) => event.preventDefault());
page.addEventListener("wheel", (event) => {
  event.preventDefault();
  turned ||= { coordinate: place(event), x: 0, y: 0 };
  turned.x += event.deltaX / page.clientWidth;
  turned.y += event.deltaY / page.clientHeight;
  wait("wheel", WHEEL_MS, () => {
    const { coordinate, x, y } = turned, sideways = Math.abs(x) > Math.abs(y), by = sideways ? x : y;
    const amount = Math.min(10000, Math.round(Math.abs(by) * 1000)), direction = (sideways ? ["left", "right"] : ["up", "down"])[by > 0 ? 1 : 0];
    turned = null;
    return amount ? { name: "scroll", coordinate, amount, direction } : null;
  });
}, { passive: false });

const type = (text) => {
  typed += text;
  wait("type", KEYS_MS, () => {
    const action = { name: "type", text: typed, here: true, append: true };
    typed = "";
    return action;
  });
};
document.addEventListener("keydown", (event) => {
  if (event.target.matches("input,button") || event.isComposing || /^(Alt|Control|Dead|Meta|Process|Shift|CapsLock)$/.test(event.key)) return;
  const isText = event.key.length === 1 && (event.getModifierState("AltGraph") || !event.ctrlKey && !event.metaKey);
  if (event.key === "v" && !isText && !copied) return; // `keys` takes what was copied elsewhere
  if (/^[cx]$/.test(event.key) && !isText) copied = true; // in the page, whose clipboard is its own
  event.preventDefault();
  if (isText) type(event.key);
  else act({ name: "key", keys: [...held(event), event.key === " " ? "Space" : event.key] });
});
addEventListener("blur", () => { copied = false; });
// Pasted texts, and what input methods and dead keys compose, go to a field of their own.
const take = () => { type(keys.value); keys.value = ""; };
keys.addEventListener("input", (event) => { if (!event.isComposing) take(); });
keys.addEventListener("compositionend", take);
for (const button of document.querySelectorAll("[data-action]")) button.onclick = () => act({ name: button.dataset.action });
// The next keys are for the page, not for a button that was clicked.
document.addEventListener("click", (event) => { if (event.detail && event.target.closest("button")) keys.focus({ preventScroll: true }); });
document.querySelector("form").onsubmit = (event) => event.preventDefault();
at("go").onclick = () => act({ name: "navigate", url: at("url").value });
at("undo").onclick = () => { flush(); send("undo"); };
at("done").onclick = () => { flush(); send("done", { answer: at("answer").value }); at("answer").value = ""; };
at("skip").onclick = () => { flush(); send("skip"); };
send("state");
