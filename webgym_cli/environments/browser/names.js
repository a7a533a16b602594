// Accessible names of elements.
webgym.names = (() => {
  // Roles whose content is their value, not their name.
  const HOLDERS = new Set(["textbox", "searchbox", "combobox", "listbox", "slider", "spinbutton", "video", "audio"]);
  const BESIDE = 6, TALLEST = 60, LONG = 50; // levels and pixels around what has no name; characters of a label that is no sentence
  const MOVED = ":is([role=slider],[role=spinbutton],[role=radio],[role=checkbox],[role=switch])";
  const TICKED = /^(checkbox|radio|switch)$/;
  const WRAPPED = /^(combobox|spinbutton)$/; // may be around the field that takes their text
  const WORDS = /^[a-z]{3,}([-_]?[a-z])*$/i, TOUCHES = 2; // an id without numbers; pixels between parts of one button
  const CROSS = /(?:^|[\s_-])(close|remove|dismiss)(?=\s|$)/i; // a class of a cross, whatever what it is in is called
  const { adopt, atOnce, attributeOf, classOf, editable, generatedIn, getter, hintOf, iconOf, matches, memo, parentNode, parentOf, pictured, purposeOf, roleOf,
    rootOf, styleOf, testIdOf, titleOf, treeOf } = webgym.roles;
  const { bare, byIds, CONTROLS, FIELDS, inside, isChip, labelIn, MOST_NODES, oneLine, partOf, textOf, TICKS, wordsBut, wordsIn, wordsOf } = webgym.texts;

  // The column header of a cell, or of a field in a cell or in the header itself.
  const CELLS = "td,[role=gridcell],[role=cell]", ROWS = "tr,[role=row]", HEADED = "th *,[role=columnheader] *";
  const headsOf = memo((table) => {
    if (table.querySelector("thead")) return inside(table, "thead th,[role=columnheader],thead td");
    const first = table.querySelector("td")?.parentElement; // rows of headers below it are totals and sections
    const isAbove = (head) => !first || first.contains(head) || Boolean(first.compareDocumentPosition(head) & Node.DOCUMENT_POSITION_PRECEDING);
    return inside(table, "[role=columnheader],tr:first-child>th,tr:not(:has(td))>th").filter((head) => matches(head, "[role]") || isAbove(head));
  });
  const measure = Element.prototype.getBoundingClientRect, rectOf = memo((element) => Reflect.apply(measure, element, []));
  const TABLES = "table,[role=grid],[role=table],[role=treegrid]";
  const headOf = (element) => {
    const cell = element.closest?.("td,th,[role=gridcell],[role=cell],[role=columnheader]");
    if (!cell || matches(cell, "th,[role=columnheader]")) return cell ? textOf(cell).trim() : "";
    let table = cell.closest(TABLES);
    while (table && !headsOf(table).length) { // a grid may draw its header apart
      table = table.parentElement?.closest(TABLES) || byIds(table, "aria-owns").find((owned) => headsOf(owned).length);
    }
    const heads = table ? headsOf(table).filter((head) => head !== cell) : [], { left, right } = rectOf(cell), middle = (left + right) / 2;
    // By where they stand, the lowest: by their number, two rows of headers or one for all rows shift the columns.
    const apart = (head) => Math.round((Math.abs(rectOf(head).left - left) + Math.abs(rectOf(head).right - right)) / 4);
    const above = heads.filter((head) => rectOf(head).left < middle && middle < rectOf(head).right);
    const row = Array.from(parentNode(cell).children), place = () => (heads.length === row.length ? row : row.filter((other) => matches(other, CELLS))).indexOf(cell);
    const filters = (one) => inside(one, FIELDS).length; // a row of them may be below the headers
    const closest = () => above.sort((one, other) => apart(other) - apart(one) || filters(other) - filters(one)).at(-1);
    const head = heads.some((one) => rectOf(one).width > 1) ? closest() : heads[place()];
    const wordsBut = (unread) => textOf(head, { left: MOST_NODES, unread: (node) => matches(node, unread) });
    return head ? oneLine(wordsBut(`${TICKS},${CONTROLS}`)) || wordsBut(TICKS) : "";
  };

  // The row header of a field: the nearest header cell, also after it, else the nearest preceding cell with text.
  const rowOf = (element) => {
    const cell = element.closest("td,[role=gridcell],[role=cell]"), row = Array.from(cell?.parentElement.children || []);
    const heads = row.filter((other) => matches(other, "th,[role=rowheader]"));
    if (heads.length) return textOf(heads.findLast((head) => row.indexOf(head) < row.indexOf(cell)) || heads[0]);
    for (let at = cell?.previousElementSibling; at && !at.querySelector(FIELDS); at = at.previousElementSibling) {
      const text = textOf(at);
      if (text.trim()) return text;
    }
    return "";
  };

  // A cell of a table whose text can't be selected: what is pressed there is the cell, as in a spreadsheet without roles.
  const isSheet = memo((table) => styleOf(table).userSelect === "none" && styleOf(table.ownerDocument.body).userSelect !== "none");
  const isSheetCell = (element) => element.localName === "td" && !element.hasAttribute("role") && !element.closest("thead") &&
    isSheet(element.closest("table") || element) && styleOf(element).cursor !== "pointer";

  const rowsOf = memo((body) => Array.prototype.filter.call(body.children, (row) => row.querySelector(CELLS) && !row.querySelector("[role=columnheader]")));

  // A cell's row and column.
  const placeOf = (cell) => {
    const row = cell.closest(ROWS);
    if (!row) return "";
    const cells = Array.prototype.filter.call(row.children, (other) => matches(other, CELLS));
    const head = Array.prototype.find.call(row.children, (other) => other !== cell && matches(other, "th,[role=rowheader]"));
    if (cells.length === 1 && row.hasAttribute("aria-label") && !headOf(cell)) return row.getAttribute("aria-label"); // a list's item
    const across = oneLine(head && textOf(head)) || row.getAttribute("aria-rowindex") || rowsOf(parentNode(row)).indexOf(row) + 1;
    return `row ${across}, column ${oneLine(headOf(cell)) || cell.getAttribute("aria-colindex") || cells.indexOf(cell) + 1}`;
  };
  const cellName = (element) =>
    (matches(element, "[role=gridcell],[role=grid] td,[role=treegrid] td") || isSheetCell(element) ? placeOf(element) : "");

  // What a cell tells about itself or a control in it; null if the text around tells more. A calendar's days have a place.
  const cellContextOf = (element) => {
    const cell = element.closest(CELLS);
    if (!cell) return null;
    if (cell !== element) return (parentNode(cell).childElementCount > 1 || headOf(cell)) && cellName(cell) || null;
    if (/\p{L}/u.test(textOf(cell.closest(ROWS) || cell))) return null;
    return cellName(cell) ? "" : placeOf(cell);
  };

  // The nearest text on one side of an element; null if another field, to which the text belongs, is closer.
  const towards = (element, side, work) => {
    const others = `${FIELDS},${MOVED}:not([role="${CSS.escape(work.role)}"])`; // the stars of a row have one label
    for (let at = element[side]; at; at = at[side]) {
      if (at.nodeType === Node.ELEMENT_NODE && (at.control && !element.contains(at.control) || matches(at, others) || at.querySelector(`${others},td`))) return null;
      const text = at.nodeType === Node.TEXT_NODE ? at.data :
        at.nodeType === Node.ELEMENT_NODE ? partOf(at, { left: MOST_NODES, ...work }) : "";
      if (text.trim()) return text;
    }
    return "";
  };

  // The label beside a field without a name: the text before it; for a checkbox or radio that after it, also a control.
  const besideOf = (element, role) => {
    const ticked = TICKED.test(role), sides = ticked ? ["nextSibling", "previousSibling"] : ["previousSibling"];
    for (const at of levelsOf(element)) {
      // an item of a list or another box to tick has a name of its own
      const unread = (node) => matches(node, `svg,[role=img],[role=option],[role=listbox],[role=treeitem],${TICKS}`);
      const found = sides.map((side) => towards(at, side, { role, words: !ticked, unread })), text = found.find((one) => /\p{L}/u.test(one || ""));
      if (text || found.includes(null)) return text || !ticked && nameBefore(element, at) || "";
    }
    return "";
  };

  // The name of the one button of a form with one field, if there are no words or the button is right before the field.
  const buttonOf = (element) => {
    const isSubmit = (one) => matches(one, "[type=submit],button:not([type])"), { form } = element;
    const [button, ...more] = form ? inside(form, "input,button").filter((one) => isSubmit(one) && one.checkVisibility()) : [];
    const isAlone = button && !more.length && inside(form, `${FIELDS},${TICKS}`).filter((one) => !isSubmit(one) && !isUnused(one)).length === 1;
    const words = () => oneLine(nextOf(form, "previousSibling")?.data) || oneLine(textOf(form, { left: MOST_NODES, words: true, unread: isSubmit }));
    return isAlone && (nextOf(element, "previousSibling") === button || !words()) && nameOf(button);
  };

  // The name of the field right before that is an equal box for a part of one value, such as a digit of a code.
  const nameBefore = (element, { previousElementSibling: before }) => {
    const { width, height } = rectOf(element), isPart = element.maxLength > 0 || width < 1.5 * height;
    const fields = before ? [before, ...inside(before, FIELDS)].filter((one) => matches(one, FIELDS) && !isUnused(one)) : [];
    if (before && !fields.length) return !matches(before, `br,hr,${CONTROLS}`) && nameBefore(element, before); // what stands between two groups of boxes
    const isEqual = (field) => field.maxLength === element.maxLength && Math.abs(rectOf(field).width - width) < 2 && nameOf(field) === nameOf(fields[0]);
    return isPart && fields.length && fields.every(isEqual) && nameOf(fields[0]);
  };

  // The name of the one field in whose frame a part without words is, or of a label before what it is a part of.
  const nameAround = (element) => {
    for (const at of levelsOf(element)) {
      if (rectOf(at).height > TALLEST) break;
      const fields = inside(at, FIELDS).filter((field) => !isUnused(field)), before = at.previousElementSibling;
      if (fields.length || before?.localName === "label") return fields.length === 1 ? nameOf(fields[0]) : !fields.length && textOf(before);
    }
    return "";
  };

  const nextOf = (node, side) => {
    do node = node[side]; while (node && (node.nodeType === Node.COMMENT_NODE || node.data === "")); // as frameworks leave
    return node;
  };

  // A field of a form behind a component, which nobody sees or reaches.
  const isUnused = (field) => field.type === "hidden" || field.getAttribute("aria-hidden") === "true" || !field.checkVisibility() ||
    field.localName === "select" && field.tabIndex < 0 && !field.labels.length &&
    [field, field.parentElement].some((at) => at && (rectOf(at).width < 8 || styleOf(at).opacity === "0"));
  const shown = (at, side) => { do at = at[side]; while (at && (at.localName === "br" || !at.checkVisibility() || matches(at, FIELDS) && isUnused(at))); return at; };
  // An element and those around it that contain more than the one before: what stands beside a dialog names nothing in it.
  const levelsOf = function* (element) {
    for (let at = element, level = 0; at && level < BESIDE && !matches(at, "body,dialog,[role=dialog],[role=alertdialog]"); at = parentOf(at)) {
      if (!nextOf(at, "previousSibling") && !nextOf(at, "nextSibling")) continue;
      level++;
      yield at;
    }
  };

  const isIn = (element, selector) => matches(element, selector) || Boolean(parentOf(element)) && isIn(parentOf(element), selector);

  // Whether a component is pressed: by what is in its root, or by the role of its internals.
  const isButton = (host) => Boolean(rootOf(host)?.querySelector(CONTROLS)) || TICKED.test(roleOf(host));

  // The label of a form's row that is not linked to its control; null if there is none.
  const rowLabelOf = (element, isField) => {
    const isHandle = (one) => roleOf(one) === "slider" && roleOf(element) === "slider" && parentOf(parentOf(one)) === parentOf(parentOf(element)); // of one track
    const own = rectOf(element), sides = ["left", "top"], ends = ["right", "bottom"];
    // a component's list may lie behind the field that takes its text, and the two handles of a range are one over the other
    const isBehind = (one) => sides.every((side) => rectOf(one)[side] <= own[side]) && ends.every((end) => rectOf(one)[end] >= own[end]);
    const isOther = (one) => !one.contains(element) && !element.contains(one) && !isUnused(one) && !isHandle(one) && !isBehind(one);
    const hasOther = (one) => [one, ...inside(one, FIELDS)].some((field) => matches(field, `${FIELDS},${TICKS}`) && isOther(field));
    const hasNamed = (box) => inside(box, "[role=slider],[role=spinbutton],[role=listbox]").some(isOther);
    const labels = isField ? "label,[class*=label i]" : "label";
    for (const at of levelsOf(element)) {
      // a label may float over its field from behind it; what is not shown, as another tab's panel, is no label
      const before = shown(at, "previousElementSibling"), after = isField && !before && shown(at, "nextElementSibling"), beside = before || after;
      const named = beside ? [beside, ...inside(beside, labels)].filter((one) => matches(one, after ? "label" : labels) && one.checkVisibility() && !isIn(one, `${CONTROLS},[role=toolbar]`) && !isChip(one) && !isButton(one) && /\p{L}/u.test(textOf(one))) : [];
      const label = named.filter((one) => one.className === named[0].className).length === 1 && named[0]; // several are another field's options
      // of several fields each has a name of its own, and the buttons of a field are not the field
      if (hasOther((!isField && at.parentElement) || at) || beside && hasOther(beside) || label && hasNamed(beside)) return null;
      // a component may keep the labelled field without a box beside the one that a person fills in
      if (label && (!label.control || isUnused(label.control) || !rectOf(label.control).width)) return textOf(label);
      if (before && (label || !isField && before.classList[0] !== at.classList[0])) return null; // one of equal parts may be active
    }
    return null;
  };

  // The label that a component puts on a slider's track in place of its handle.
  const trackName = (element) => {
    const track = element.parentElement?.closest("[aria-label],[title]");
    const isTrack = track && !/\p{L}/u.test(textOf(track)) && inside(track, `${FIELDS},${CONTROLS}`).every((one) => roleOf(one) === "slider");
    return isTrack && (track.getAttribute("aria-label") || track.title);
  };

  // The name of the group around a field without one, such as the boxes of a code.
  const groupNameOf = (element) => {
    const group = element.closest("[role=group],[role=radiogroup],fieldset"), legend = group?.querySelector("legend");
    return group && (byIds(group, "aria-labelledby").map((part) => textOf(part)).join(" ") || group.getAttribute("aria-label") ||
      legend && textOf(legend));
  };

  // The label right before what is a field only to the eye.
  const labelBefore = (element) => {
    if (roleOf(element) !== "generic") return "";
    const label = element.previousElementSibling;
    if (label?.localName === "label" && !label.control) return textOf(label);
    return element.tabIndex < 0 ? "" : rowLabelOf(element) || "";
  };

  // The arrow of a split button, by the button that it touches.
  const menuName = (element) => {
    const before = element.previousElementSibling;
    if (!element.getAttribute("aria-haspopup") || before?.localName !== "button") return "";
    const { left, top, height } = rectOf(element), { right, top: start, bottom } = rectOf(before), middle = top + height / 2;
    const isTouched = Math.abs(right - left) <= TOUCHES && start < middle && middle < bottom;
    return isTouched && nameOf(before) ? `${nameOf(before)}: menu` : "";
  };

  const nameOf = memo((element) => {
    const tag = element.localName, isField = /^(input|select|textarea)$/.test(tag);
    const role = roleOf(element), host = treeOf(element).host;
    // components' elements have labels, too, that the browser does not link
    const linked = () => (takes && element.id ? Array.from(treeOf(element).querySelectorAll(`label[for="${CSS.escape(element.id)}"]`)) : []);
    // the control of a label around may be a field's button, or what a form sends for a component's own control
    const around = () => {
      const label = takes && element.closest("label"), control = label && label.control;
      return control && (control.localName === "button" || isUnused(control)) && textOf(label, { left: MOST_NODES, words: true });
    };
    const labels = () => Array.from(element.labels || linked(), (label) => label.getAttribute("aria-label") || wordsBut(label, element).trim() || textOf(label, { left: MOST_NODES, unread: (node) => node === element }).trim() || label.title).join(" ");
    const content = (read = wordsOf) => {
      if (tag === "input") return { submit: element.value || "Submit", reset: element.value || "Reset", button: element.value }[element.type];
      return isField || HOLDERS.has(role) ? "" : read(element);
    };
    // not a field's value; of what is all that its wrapper has, the wrapper's
    const titleAt = () => [element, element.parentElement].map((one) => (one?.childElementCount === 1 && one.textContent.trim() === element.textContent.trim() || one === element) &&
      one.getAttribute("title")).find((title) => title && title !== element.value && (!isField || bare(title).length > 1)); // a key alone, as "[F]", is no name
    const takes = isField && !/^(button|submit|reset|image)$/.test(element.type) || editable(element) || TICKED.test(role) ||
      HOLDERS.has(role) && tag !== "video" && tag !== "audio";
    // what a component calls its field, after the label that a person reads
    const told = () => {
      const own = oneLine(attributeOf(element, "aria-label")), isList = role === "combobox";
      const row = own && takes && !(isList && element.closest("label")) && oneLine(labels() || !TICKED.test(role) && rowLabelOf(element, true));
      if (role === "slider" && own === attributeOf(element, "aria-valuetext")) return row;
      if (row && isList && own === oneLine(textOf(element))) return row; // a component may call a list as what is chosen in it
      return /\p{L}{2}/u.test(row || "") && !bare(own).includes(bare(row)) && !bare(row).includes(bare(own)) ? `${row}: ${own}` : own;
    };
    // of several buttons after one label or in one field each has its own class
    const withClass = (name) => [name, classOf(element, true)].filter(Boolean).join(": ");
    const ownRowLabel = () => rowLabelOf(element) && (role === "button" ? withClass(rowLabelOf(element)) : rowLabelOf(element));
    const hostField = () => { // of a component's parts the one field that is given to it
      const fields = host ? inside(host, FIELDS).filter((field) => !isUnused(field)) : [];
      return fields.length === 1 && nameOf(fields[0]);
    };
    const opens = role === "combobox" || matches(element, "[aria-haspopup=listbox]"); // what is chosen is no name
    let words; // read once: neighbours are searched for them
    const near = () => (words ??= oneLine(rowOf(element) || buttonOf(element) || besideOf(element, role)));
    const within = () => !HOLDERS.has(role) && inside(element, CONTROLS).length < 2 && element.querySelector?.("[aria-label],[title],[alt]");
    for (const source of [
      () => byIds(element, "aria-labelledby").filter((part) => !opens || !element.contains(part) && !matches(part, "[role=option]")).map(labelIn).join(" "),
      told, labels, around, () => cellName(element), () => labelBefore(element),
      () => /[\p{L}\p{N}]/u.test(content(wordsIn)) && content(wordsIn), titleAt, content, () => isField ? "" : generatedIn(element),
      () => element.getAttribute("alt") || (tag === "svg" ? pictured(element) : ""),
      () => role === "slider" && trackName(element),
      () => takes && !TICKED.test(role) && rowLabelOf(element, true),
      () => hintOf(element) || WRAPPED.test(role) && inside(element, "input").filter((field) => !isUnused(field)).map(nameOf)[0],
      () => ["aria-label", "title", "alt"].map((name) => within() && within()?.getAttribute(name)).find(Boolean),
      () => role === "generic" && element.part.length && [hostField(), element.part[element.part.length - 1].replaceAll("-", " ")].filter(Boolean).join(": "),
      // a custom element hands its label on to the field within
      () => host && (host.getAttribute("aria-label") || host.getAttribute("label") || host.getAttribute("title")),
      () => TICKED.test(role) && (headOf(element) || (matches(element, HEADED) ? "select all" : besideOf(element, role)) || isField && element.value !== "on" && element.value),
      () => isField ? "" : ownRowLabel() || !HOLDERS.has(role) && iconOf(element),
      () => headOf(element) && [headOf(element), matches(element, HEADED) && classOf(element)].filter(Boolean).join(" "),
      () => takes && near().length <= LONG && near(),
      // what a program calls it
      () => isField || tag === "iframe" ? element.getAttribute("name") || !/[\d:]/.test(element.id) && element.id : "",
      () => takes && (near() || purposeOf(element) || groupNameOf(element)),
      () => testIdOf(element) || TICKED.test(role) && element.closest(ROWS) && textOf(element.closest(ROWS), { left: MOST_NODES, words: true }),
      () => (/^(generic|image)$/.test(role) || editable(element)) && (classOf(element) || tag.includes("-") && tag.replaceAll("-", " ")),
      () => styleOf(element).cursor.endsWith("-resize") && "resize",
      () => /^(button|generic)$/.test(role) && (menuName(element) || withClass(nameAround(element)) || element.className.match?.(CROSS)?.[1] || classOf(parentOf(element) || element)),
      () => role === "generic" && !element.childElementCount && element.id.match(WORDS)?.[0],
    ]) {
      const name = oneLine(source());
      if (name) return name;
    }
    return "";
  });

  return Object.freeze({ atOnce, memo, bare, styleOf, inside, matches, roleOf, nameOf, labelBefore, isSheetCell, isUnused, cellContextOf, rectOf, byIds, textOf, wordsIn, wordsOf, oneLine, editable, rootOf,
    parentNode, parentOf, treeOf, adopt, getter,
    title: () => `${titleOf(document).toWellFormed()}` });
})();
