// Values and states of elements, and what tells equal ones apart.
webgym.values = (() => {
  const { cellContextOf, editable, inside, matches, labelBefore, nameOf, roleOf, byIds, parentOf, rectOf, styleOf, textOf, wordsIn, wordsOf, oneLine } = webgym.names;
  const { attributeOf } = webgym.roles, { TICKS } = webgym.texts;
  const TOGGLES = ["aria-checked", "aria-pressed", "aria-selected"];
  const TICKED = /^(checkbox|radio|switch|menuitemcheckbox|menuitemradio)$/;
  const FIELDS = "input:not([type=hidden]),select,textarea", LABELLED = /^(button|generic|link)$/;
  const COMPLAINTS = ":is([role=alert],[class*=error i],[class*=invalid i],[class*=feedback i]):not(form)";
  const APART = "a[href],[role=tab],[role=switch],h1,h2,h3"; // what is not within a field's frame
  const CURRENT = "[aria-current]:not([aria-current=false],[aria-current=''])";
  const CELLS = "td,[role=gridcell],[role=rowheader]";
  const LONGEST = 400, UNBOUNDED = 1e15, MOST_NODES = 300, MOST_OPTIONS = 20, BESIDE = 3;
  // Maximum number of levels searched for a text that tells equal names apart, and its length.
  const AROUND = 8, LONGEST_CONTEXT = 40;
  const NUMBERS = /^\P{L}+…$/u; // of the days of a calendar, whose month is told further out

  // What a person reads in a field's wrapper: its text without icons, buttons, labels, placeholders and the crosses of chips.
  const UNREAD = "i,svg,img,[role=img],button,[role=button],label,legend,input,select,textarea,[role=listbox],[role=option]";
  const shownIn = (face, name = "") => {
    const isLabel = (node) => name && !node.firstElementChild && oneLine(node.textContent) === name;
    const isCross = (node) => /^\s*[×✕✖✗⨯]\s*$/.test(node.textContent) && /^[^\s\d]/.test(node.nextSibling?.textContent || "");
    const unread = (node) => matches(node, UNREAD) || isLabel(node) || isCross(node) || isPale(node) || isSpoken(node);
    return oneLine(textOf(face, { left: MOST_NODES, unread }));
  };

  // A text that is only read aloud: a box of one pixel that cuts it off.
  const isSpoken = (node) => node.offsetWidth <= 1 && node.offsetHeight <= 1 && styleOf(node).overflow !== "visible" && styleOf(node).display !== "contents";

  // A placeholder, which is paler than a text. Some components keep the class for the chosen option.
  const isPale = (node) => matches(node, "[class*=placeholder i]") && isFaint(node);
  const isFaint = (node) => {
    const [red, green, blue, alpha = 1] = styleOf(node).color.match(/[\d.]+/g).map(Number);
    return alpha < 0.6 || Math.min(red, green, blue) > 150;
  };

  // What a component draws over the middle of its empty field, such as the chosen option.
  const drawnOver = (field) => {
    const { left, top, width, height } = rectOf(field), point = [left + width / 2, top + height / 2];
    const isOver = (part) => styleOf(part).position === "absolute" && within(point, rectOf(part)) && !matches(part, UNREAD) && !isFaint(part) && part.checkVisibility();
    const texts = [field.previousElementSibling, field.nextElementSibling].filter((part) => part && isOver(part)).map((part) => shownIn(part));
    return texts.find((text) => text && text !== nameOf(field)) || "";
  };
  const within = ([x, y], box) => x > box.left && x < box.right && y > box.top && y < box.bottom;

  // The innermost element around a field with a text, if it has no other field.
  const aroundOf = (field) => {
    for (let at = field.parentElement, level = 0; at && level < BESIDE; at = at.parentElement, level++) {
      if (inside(at, "input:not([aria-hidden=true]),select,textarea,label").length > 1 || inside(at, APART).length) break;
      if (shownIn(at)) return at;
    }
    return field;
  };

  // What a form says about a field in a text that is not linked to it.
  const complaintBeside = (field) => {
    const around = [field.parentElement, field.parentElement?.parentElement].filter((at) => at && inside(at, FIELDS).length < 2);
    const said = around.flatMap((at) => inside(at, COMPLAINTS)).filter((part) => !part.contains(field) && part.checkVisibility());
    return said.map((part) => textOf(part)).find((text) => text.trim());
  };

  // The states that the value does not tell.
  const statesOf = (element) => {
    const role = roleOf(element), told = (name) => attributeOf(element, `aria-${name}`), is = (name) => told(name) === "true";
    const isMixed = element.indeterminate === true || told("checked") === "mixed" || told("pressed") === "mixed";
    const wrong = told("invalid") && told("invalid") !== "false" || matches(element, ":user-invalid") ||
      matches(element, ":invalid,[class*=invalid i]") && complaintBeside(element); // a form may show it without a state
    const message = () => oneLine([...byIds(element, "aria-errormessage"), ...byIds(element, "aria-describedby")]
      .map((part) => textOf(part)).join(" ") || complaintBeside(element) || element.validationMessage);
    const [least, most] = [element.min || told("valuemin"), element.max || told("valuemax")];
    const options = optionsOf(element);
    return [
      (matches(element, ":disabled") || element.closest("[aria-disabled=true]")) && "disabled",
      (element.readOnly === true && !/^(combobox|listbox|slider)$/.test(role) && !TICKED.test(role) || is("readonly")) && "readonly",
      (element.required === true || is("required")) && "required",
      wrong && `invalid${message() && `: ${message()}`}`,
      isMixed && "mixed",
      (TICKED.test(role) || told("checked") === "false") && !isMixed && !(element.checked ?? is("checked")) && "unchecked",
      told("pressed") === "false" && "not pressed",
      (told("expanded") && is("selected") || matches(element, `[role=row][aria-selected=true]>:is(${CELLS})`)) && "selected",
      sortedBy(element),
      matches(element, `${CURRENT},${CURRENT}>*`) && "current",
      element.matches(":focus") && element !== element.ownerDocument.body && "focused",
      told("posinset") && told("setsize") > 0 && `${told("posinset")} of ${told("setsize")}`,
      (role === "slider" || role === "spinbutton") && least && most && Math.max(-least, most) < UNBOUNDED && `${least} to ${most}`,
      options.length && `options: ${options.join(", ")}`,
    ].filter(Boolean).map((state) => oneLine(state, LONGEST));
  };

  // How a column is sorted, told by its header or by what is pressed in it.
  const sortedBy = (element) => {
    const head = element.closest("[aria-sort]"), order = head?.getAttribute("aria-sort").match(/^(?:a|de)scending$/)?.[0];
    return order && (head === element || wordsIn(element).trim() && textOf(head).includes(wordsIn(element).trim())) && `sorted ${order}`;
  };

  // The options of a list whose popup is outside of the page.
  const optionsOf = (element) => {
    const list = matches(element, "select:not([multiple],[size])") ? element : element.list;
    if (!list) return [];
    const labels = Array.from(list.options).filter((option) => !matches(option, ":disabled")).map((option) => oneLine(option.label || option.value));
    return labels.length > MOST_OPTIONS ? [...labels.slice(0, MOST_OPTIONS), `${labels.length - MOST_OPTIONS} more`] : labels;
  };

  const valueOf = (element, face = element) => {
    const own = ownValueOf(element), role = roleOf(element);
    const isEmpty = !own || own === "collapsed" || own === "expanded";
    const isField = element.localName === "input", chosen = face === element && isField ? aroundOf(element) : face;
    const opens = role === "combobox" || role === "listbox" && (own || isField); // a drop-down list, or the input of one
    if (opens && isEmpty && element.localName !== "select") {
      return shownIn(element, nameOf(element)) || shownIn(chosen, nameOf(element)) || own; // its frame is read with its label
    }
    if (isField && role === "textbox" && !own) return drawnOver(element);
    const isList = isEmpty && element.getAttribute("aria-haspopup") === "listbox";
    if (isEmpty && LABELLED.test(role) && matches(element, "[aria-label],[aria-labelledby]")) {
      const words = oneLine(wordsIn(element)); // what is seen, where the name is another
      if (/\p{L}{2}/u.test(words) && !nameOf(element).toLowerCase().includes(words.toLowerCase())) return own && !isList ? `${words}, ${own}` : words;
    }
    if (labelBefore(element)) return shownIn(element) ? oneLine(wordsOf(element)) : own;
    const text = matches(element, "[role=gridcell],td") ? oneLine(textOf(element, { left: MOST_NODES, words: true })) || oneLine(textOf(element)) || own : own;
    return text === nameOf(element) && text !== own ? "" : text;
  };

  const ownValueOf = (element) => {
    const tag = element.localName;
    if (tag === "input" && (element.type === "checkbox" || element.type === "radio")) return element.checked && !element.indeterminate ? "checked" : "";
    if (tag === "input" && /^(button|submit|reset|image)$/.test(element.type)) return "";
    if (tag === "input" && element.type === "password") return "•".repeat(Math.min(element.value.length, 80));
    if (tag === "input" || tag === "textarea") return oneLine(element.value);
    if (tag === "select") return oneLine(Array.from(element.selectedOptions, (option) => option.label).join(", "));
    if (tag === "option") return element.selected ? "selected" : "";
    if (editable(element)) return oneLine(element.innerText);
    const popup = element.popoverTargetAction !== "hide" && element.popoverTargetElement;
    const expanded = attributeOf(element, "aria-expanded") || tag === "summary" && `${element.parentElement?.open}` ||
      popup && `${matches(popup, ":popover-open")}`;
    if (expanded === "true" || expanded === "false") return expanded === "true" ? "expanded" : "collapsed";
    const toggled = (TOGGLES.find((attribute) => attributeOf(element, attribute) === "true") || "").slice(5);
    return toggled || oneLine(attributeOf(element, "aria-valuetext") || attributeOf(element, "aria-valuenow")) || markedAs(element);
  };

  // What the class alone of something without a role says; a part without words that is active may only be pressed now.
  const MARKED = /(?<![a-z])(?<!\b(?:de|dis|in|no|non|not|un)[-_])(checked|selected|active)(?=\s|$)/;
  const markedAs = (element) => {
    const [, mark = ""] = /^(generic|listitem)$/.test(roleOf(element)) && element.getAttribute("class")?.match(MARKED) || [];
    if (mark !== "active") return mark;
    return wordsIn(element).trim() ? "selected" : "";
  };

  // What tells each of some equal elements from the others: its cell, else the nearest text that is not theirs too.
  const contextsOf = (equals) => {
    const all = new Set(equals), name = nameOf(equals[0]), around = new Map(), texts = new Map();
    const above = equals.map((element) => {
      const found = [];
      for (let at = parentOf(element); at && found.length < AROUND && at.localName !== "body"; at = parentOf(at)) found.push(at);
      for (const at of found) around.set(at, (around.get(at) || 0) + 1);
      return found;
    });
    const unread = (node) => all.has(node) || node.control || node.getAttribute("aria-label") === name || isSpoken(node) || matches(node, TICKS) && !node.textContent;
    const read = (at) => [textOf(at, { left: MOST_NODES, words: true, unread }), matches(at, "[aria-label]:not(form)") && at.getAttribute("aria-label")]
      .map((text) => oneLine(text, LONGEST_CONTEXT)).find((text) => text && text !== name && !NUMBERS.test(text));
    const found = equals.map((element, index) => {
      const cell = cellContextOf(element);
      if (cell !== null) return cell;
      for (const at of above[index]) {
        if (around.get(at) === equals.length) return "";
        if (!texts.has(at)) texts.set(at, read(at));
        if (texts.get(at)) return texts.get(at);
      }
      return "";
    });
    // stars, dots and boxes for one digit have no other text: which one it is
    const alike = Map.groupBy(found.keys(), (index) => found[index]);
    return found.map((context, index) => {
      const same = alike.get(context);
      return [context && !(alike.size === 1 && context.endsWith("…")) && `in ${context}`, same.length > 1 && `${same.indexOf(index) + 1} of ${same.length}`].filter(Boolean);
    });
  };

  return Object.freeze({ contextsOf, valueOf, statesOf });
})();
