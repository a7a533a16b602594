// Actions in a page, called from Python.
// If the point or the focus is in a frame that this document can't read, the result is {frame: its number}.
webgym.act = (() => {
  const { bare, inside, matches, oneLine: shown, parentOf, treeOf } = webgym.names;
  const { selectAll, until, waitUntilIdle } = webgym.waits;
  const { hasChanged, heldOpen, openerOf, settled, watch, wheelAt } = webgym.scrolls;
  const { groupOf, holds, isCodeBox, maskedBy, kindOf, partsOf, sectionsOf } = webgym.sections;
  const { deepest, focused, isOpaque, numberOf } = webgym.frames;
  const { boxOf, within } = webgym.geometry;
  const TAKE_MS = 300, FRAMES = 12, UNSEEN = 4, LEVELS = 4, AROUND = 3, MOST_PRESSES = 200, MOST_OPTIONS = 20, SUGGEST_MS = 1000;

  const changed = (element) => {
    for (const type of ["input", "change"]) element.dispatchEvent(new Event(type, { bubbles: true }));
  };

  const openOptions = (select) => Array.from(select.options).filter((option) => !matches(option, ":disabled"));

  // Of many labels those that share most pairs of letters with a text.
  const closest = (text, labels) => {
    const pairsOf = (label) => new Set(Array.from(label.toLowerCase(), (letter, at) => letter + (label[at + 1] || "").toLowerCase()));
    const wanted = pairsOf(text), share = (label) => 2 * pairsOf(label).intersection(wanted).size / (pairsOf(label).size + wanted.size || 1);
    return labels.length > MOST_OPTIONS ? labels.toSorted((one, other) => share(other) - share(one)).slice(0, MOST_OPTIONS) : labels;
  };

  const choose = (select, text) => {
    const clean = (label) => label.replace(/\s+/g, " ").trim();
    const options = openOptions(select);
    const find = (label) => options.find((option) => clean(option.label) === clean(label)) ||
      options.find((option) => clean(option.label).toLowerCase() === clean(label).toLowerCase()) ||
      (clean(label) && options.find((option) => clean(option.label).toLowerCase().includes(clean(label).toLowerCase())));
    const whole = find(text);
    const wanted = whole ? [whole] : select.multiple ? text.split(text.includes("\n") ? "\n" : ",").map(find) : [undefined];
    if (wanted.some((option) => !option)) {
      return { error: `no option is called ${JSON.stringify(shown(text))}; ${options.length > MOST_OPTIONS ? "the closest are" : "there are"}: ` +
        closest(text, options.map((option) => shown(option.label))).join(", ") };
    }
    for (const option of select.options) option.selected = wanted.includes(option);
    changed(select);
    if (wanted.every((option) => option.selected)) return { done: true };
    const kept = shown(select.selectedOptions[0]?.label || "");
    return { error: `the page changed the list back; it shows ${JSON.stringify(kept)}` };
  };

  // Functions of what is at a point, and of what has the focus.
  const unlessOpaque = (found, work) => (isOpaque(found) ? { frame: numberOf(found) } : work(found));
  const atPoint = (work) => ([x, y], ...given) => unlessOpaque(deepest(x, y), (found) => work(found, ...given));
  const atFocus = (work) => (point, ...given) => unlessOpaque(focused(), (field) => work(field, ...given));

  // The options of the native list at a point, or a field's suggestions (popups outside of the page), and what chooses one.
  const options = atPoint((found) => {
    if (found?.list) return { name: "type", options: Array.from(found.list.options, (option) => option.value) };
    const list = found?.closest("select"), isClosed = list && !list.multiple && list.size < 2;
    return { name: "select_option", options: isClosed ? openOptions(list).map((option) => option.label) : [] };
  });

  // The native list that a component replaces by what is drawn beside it or around it.
  const listBehind = (found) => {
    const isUnseen = (one) => one.getBoundingClientRect().width < UNSEEN || !one.checkVisibility({ opacityProperty: true });
    for (let at = found, level = 0; at && level < LEVELS; at = parentOf(at), level++) {
      const lists = [at, at.parentElement].flatMap((one) => (one ? inside(one, ":scope > select") : [])).filter(isUnseen);
      const near = [at.previousElementSibling, at.nextElementSibling].find((one) => lists.includes(one));
      if (near || lists.length === 1) return near || lists[0];
    }
    return null;
  };

  // Choose in a list that a component hides. A component that does not follow its list would keep the old choice.
  const chooseBehind = async (list, text) => {
    const display = () => Array.from(list.parentNode.children, (one) => (one === list ? "" : one.innerText)).join(" ");
    const old = Array.from(list.selectedOptions), before = display(), result = choose(list, text);
    const isShown = () => display() !== before || Array.from(list.selectedOptions).every(({ text }) => before.includes(text));
    if (result.error || await until(isShown, TAKE_MS)) return result;
    for (const option of list.options) option.selected = old.includes(option); // a form would send what nobody sees
    changed(list);
    return { error: "the page does not show that choice; click what opens it, then the option" };
  };

  const select = atPoint((found, text) => {
    const own = found?.closest("select") || found?.closest("label")?.control, list = own || listBehind(found);
    if (list?.localName !== "select") return { error: "there is no list of options; click what opens it, then the option" };
    list.focus();
    return list === own ? choose(list, text) : chooseBehind(list, text);
  });

  // Code editors: the focused element only receives keys, and the text is rendered elsewhere.
  const EDITORS = ".monaco-editor,.CodeMirror,.cm-editor,.ace_editor";
  const MOVED = "[role=slider],[role=checkbox],[role=radio],[role=switch],[type=checkbox],[type=radio]";
  const LINES = ".view-line,.cm-line,.CodeMirror-line,.ace_line", SUGGESTED = "[role=combobox],[aria-autocomplete]:not([aria-autocomplete=none]),[list]";
  let prepared = false, idle = null, list = null, opened = null, target = null, before = "", sections = [], planned = null, apart = Infinity, presses = 0;

  const editorOf = (field) => field?.closest?.(EDITORS) || null;
  const held = (field) => {
    const editor = editorOf(field), top = (line) => line.getBoundingClientRect().top;
    if (!editor) return field.value ?? field.innerText;
    return Array.from(editor.querySelectorAll(LINES)).sort((a, b) => top(a) - top(b)).map((line) => line.textContent).join("\n");
  };

  const takesText = (field) => field?.isContentEditable || Boolean(editorOf(field)) ||
    matches(field, "input:not([type=checkbox],[type=radio],[type=button],[type=submit]),textarea");

  // The text of the field with the focus; null if keys go elsewhere. `isRich`: with formats, and hard spaces for typed ones.
  const typing = atFocus((field) => {
    const isRich = Boolean(field?.isContentEditable) && !editorOf(field), text = takesText(field) ? held(field) : null;
    return { text: isRich ? text.replaceAll("\u00a0", " ") : text, isRich };
  });

  const put = (field, text) => {
    // The prototype's setter: frameworks shadow the element's own one and would miss the change.
    Object.getOwnPropertyDescriptor(Object.getPrototypeOf(field), "value").set.call(field, text);
    if (field.value !== text && field.type !== "color" && field.type !== "range") {
      return { error: `a field of type ${field.type} does not take ${JSON.stringify(shown(text))}; ` +
        "dates are written YYYY-MM-DD, times HH:MM" };
    }
    changed(field);
    const took = field.type === "range" ? Number(field.value) === Number(text) : field.value === text.toLowerCase();
    return took || field.value === text ? { done: true } : { error: `the field took ${field.value} instead of ${shown(text)}` };
  };

  // The slider at a point, or the one that has its handle in the track there.
  const SLIDERS = "[role=slider],input[type=range]";
  const sliderAt = (found, x, y) => {
    const isAt = (one) => within([x, y], one.getBoundingClientRect());
    for (let at = found, level = 0; at && level < AROUND; at = parentOf(at), level++) {
      const sliders = [at, ...inside(at, SLIDERS)].filter((one) => matches(one, SLIDERS) && one.ariaHidden !== "true");
      if (sliders.length) return sliders.find(isAt) || (sliders.length === 1 ? sliders[0] : null);
    }
    return null;
  };

  const FOCUSABLE = "input,select,textarea,button,a[href],summary,[tabindex],[contenteditable]";
  const focusAt = atPoint((found) => {
    const around = found?.closest(FOCUSABLE);
    (around && matches(around, "[role=slider],input") ? around : sliderAt(found) || around)?.focus();
    return {};
  });

  // Prepare the field at a point for text. Returns {done}, {error}, or {typing} if keys should follow; `editor`: after Ctrl+A.
  const prepare = (point, text, append = false) => unlessOpaque(deepest(...point), (found) => {
    [prepared, idle, opened, target, planned] = [true, null, null, null, null];
    const control = found?.closest?.("select,input[type=file]") || found?.closest?.("label")?.control;
    if (control?.localName === "select") return choose(control, text);
    if (control?.type === "file") return { error: "the field there is for files: it takes no text" };
    const focus = focused()?.localName || "body", kept = focus === "select" ? ":disabled,[readonly]" : ":disabled"; // a calendar may focus its list of months
    if (/^(body|select)$/.test(focus) && found?.closest?.(`:is(input,textarea):is(${kept})`)) return { error: "the field can't be changed" };
    // the press of a slider may be handled without a focus, which stays in another field
    const pressed = found?.closest?.(SLIDERS), isLeft = pressed && !pressed.contains(focused());
    if (!takesText(focused()) || matches(focused(), "[type=range]") || isLeft) sliderAt(found, ...point)?.focus();
    const field = focused();
    if (isOpaque(field)) return { frame: numberOf(field) };
    if (field?.localName === "select") return choose(field, text);
    const isStepped = field && matches(field, "[role=slider][aria-valuenow],[type=range][readonly][aria-valuenow]");
    if (isStepped && text.trim() && Number.isFinite(Number(text))) {
      [apart, presses] = [Infinity, 0];
      field.blur(); // some take keys only if the keyboard brought the focus
      field.focus();
      return towards(text);
    }
    if (field?.localName === "input" && /^(date|time|month|week|datetime-local|color|range)$/.test(field.type)) {
      return put(field, text);
    }
    sections = append ? [] : sectionsOf(field);
    planned = sections.length > 1 && partsOf(text, sections.map(kindOf));
    if (planned) {
      target = groupOf(field);
      return { typing: true, parts: planned };
    }
    const isField = field?.localName === "input" || field?.localName === "textarea";
    const editor = editorOf(field);
    if (isField && (field.readOnly || field.disabled) && !editor) return { error: "the field can't be changed" };
    if (field && matches(field, MOVED)) return { error: "what is there takes no text: it takes keys such as ArrowRight, or a click" };
    if (!isField && !field?.isContentEditable && !editor) {
      idle = matches(found || document.body, "body,canvas") ? null : field; // a canvas may draw what is typed
      [list = null] = [found, field].map(openerOf).filter(Boolean);
      opened = list && heldOpen(list);
      if (idle) watch(point);
      return { typing: true, empty: true };
    }
    target = field;
    const masked = isField && !append && maskedBy(text, field);
    if (masked === "") return { error: `the field takes ${field.value}` };
    if (masked) {
      planned = masked;
      field.setSelectionRange(0, 0);
      return { typing: true, digits: masked.replace(/\D/g, ""), mask: field.value };
    }
    before = append ? "" : bare(held(field));
    if (editor) return { typing: true, editor: true, empty: append };
    if (append) return { typing: true, empty: true };
    const ready = { typing: true, slow: isCodeBox(field, text), empty: (isField ? field.value : field.textContent) === "" };
    if (isField) field.select();
    // an empty editor has put the caret into the format that was chosen for what comes next
    else if (shown(field.textContent) || field.querySelector("img")) return selectAll(field).then(() => ready);
    return ready;
  });

  // The next key that moves the slider with the focus towards a number, as long as it comes nearer.
  const towards = async (text) => {
    const field = focused(), off = () => Number(field.ariaValueNow) - Number(text);
    const isNearer = await until(() => Math.abs(off()) < apart, TAKE_MS) && presses++ < MOST_PRESSES;
    apart = Math.abs(off());
    if (!apart) return { done: true };
    return isNearer ? { key: off() < 0 ? "ArrowRight" : "ArrowLeft" } : { error: `the slider stops at ${field.ariaValueNow}` };
  };

  // Offer data by type to the focused element's listeners. A field without any gets its text by keys, unless it is done.
  const paste = atFocus((field, types) => {
    const data = new DataTransfer();
    for (const [type, text] of Object.entries(types)) data.setData(type, text);
    const event = new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true, composed: true });
    if (!(field || document.documentElement).dispatchEvent(event)) return { done: true };
    return takesText(field) ? {} : { error: "no field has the focus: nothing was pasted" };
  });

  // What was copied, by type. The browser has one clipboard for all contexts, so each episode keeps its own.
  let copies = null, kept = {};
  const note = (event) => {
    const [at] = event.composedPath(), data = event.clipboardData;
    if (event.defaultPrevented) copies = Object.fromEntries(data.types.map((type) => [type, data.getData(type)]));
    else {
      const isField = matches(at, "input,textarea"), [start, end] = [at.selectionStart, at.selectionEnd];
      const text = isField ? at.type !== "password" && at.value.slice(start, end) : treeOf(at).getSelection().toString();
      if (text) copies = { "text/plain": text };
    }
  };
  const listen = (view) => {
    for (const type of ["copy", "cut"]) view.addEventListener(type, note); // the same listener is added only once
    return {};
  };
  listen(window);
  const hearCopy = atFocus((field) => listen(field?.ownerDocument.defaultView || window));
  document.addEventListener("webgym-paste", () =>
    document.dispatchEvent(new CustomEvent("webgym-copied", { detail: (copies || kept)["text/plain"] || "" })));
  const copied = (types = kept) => {
    const last = copies;
    [copies, kept] = [null, last || types];
    return { copied: last };
  };

  // Whether the prepared field contains the typed text. A field that passed the focus on is not checked. `enters`: Enter
  // follows, which chooses among suggestions once they are there.
  const typed = async (text, enters) => {
    if (enters && matches(focused() || document.body, SUGGESTED)) await waitUntilIdle(SUGGEST_MS, true);
    // Editors draw it in the next frames, of which a busy machine makes few in that time.
    await until(() => !check(text).error, TAKE_MS, FRAMES);
    const result = check(text);
    // a drop-down list may only point at the option, which Enter or a click chooses
    const isOpen = !enters && opened && !bare(opened).includes(bare(text)) && !await until(() => heldOpen(list) !== opened, TAKE_MS);
    if (isOpen) return { error: "nothing was chosen so far: open the list and click the option" };
    return result.error || !idle || idle !== focused() || (await hasChanged()).changed ? result : { error: "nothing changed: what is there takes no text" };
  };

  // Select the text of a field whose mask was a text of its own.
  const unmask = () => {
    [planned, before] = [null, ""];
    target.select();
    return {};
  };

  const check = (text) => {
    // date fields write 5/1/2026 as 05/01/2026, or the other way round
    const read = (written) => bare(/^\d+(:|\D\d+\D)\d/.test(text) ? written.replace(/(?<!\d)0+(?=\d)/g, "") : written);
    const focus = focused();
    if (!prepared) return {}; // the page was replaced
    if (!target) {
      const nowhere = !focus || focus === focus.ownerDocument.body || focus === focus.ownerDocument.documentElement;
      return nowhere ? { error: "no field has the focus: the keys went to the page" } : {};
    }
    if (planned) {
      const isDone = sections.length ? planned.every((part, at) => holds(sections[at], part)) : held(target) === planned;
      return isDone ? {} : { error: `the field did not take that: it now holds ${JSON.stringify(shown(held(target)))}` };
    }
    if (!target.isConnected || focus !== target) return {};
    const has = read(held(target)), wanted = read(text);
    const isKept = before && !wanted.includes(before) && (has === before + wanted || has === wanted + before);
    // editors render only a part of a long text
    const parts = editorOf(target) ? [wanted.slice(0, 40), wanted.slice(-40)] : [wanted];
    const isThere = parts.some((part) => has.includes(part));
    const isDrawn = () => wanted && (!has || "value" in target) && bare(target.parentElement?.innerText).includes(wanted); // by the editor around
    const box = boxOf(target), isSeen = editorOf(target) || box && Math.min(box.width, box.height) >= UNSEEN;
    if (isThere && !isKept && !isSeen && !isDrawn()) return { error: "the text went to a hidden field: open what is there first, by a double click or Enter" };
    // a field that made tokens of it
    if (isThere && !isKept || !has && isDrawn()) return {};
    if (target.type === "password") return { error: "the field did not take all that was typed" };
    return { error: `the field did not take that: it now holds ${JSON.stringify(shown(held(target)))}` };
  };

  // Whether what is dragged over a point is taken there: a browser opens a dropped file that no page takes in a tab of its own.
  let over = null;
  const hearDrop = atPoint((target) => {
    const root = target?.ownerDocument.defaultView || window;
    over = null;
    root.addEventListener("dragover", (event) => { over = event; }, { capture: true, once: true });
    root.addEventListener("drop", (event) => event.preventDefault(), { once: true });
    return {};
  });
  const takesDrop = () => ({ taken: Boolean(over?.defaultPrevented) });

  return Object.freeze({ prepare, towards, focusAt, hearDrop, takesDrop, paste, typed, unmask, select, options, typing, hearCopy, copied, settled, watch, hasChanged, wheelAt,
    section: (at) => webgym.sections.focus(sections[at]) });
})();
