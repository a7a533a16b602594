// Classifies elements by how likely they are interactive.
webgym.kinds = (() => {
  const { editable, inside, isSheetCell, matches, memo, oneLine, parentNode, parentOf, rectOf, styleOf, textOf, treeOf } = webgym.names;
  const { attributeOf, labelsField } = webgym.roles;
  const { cursorOf, hoverIndex, hovers, shownBy } = webgym.hovers;
  const NATIVE = "a[href],area[href],button,input:not([type=hidden]),select,textarea,summary,option,video[controls]," +
    "audio[controls]";
  const ROLES = new Set(["button", "link", "checkbox", "radio", "tab", "option", "menuitem", "menuitemcheckbox",
    "menuitemradio", "switch", "textbox", "searchbox", "combobox", "slider", "spinbutton", "treeitem"]);
  const CONTROLS = `${NATIVE},label,[contenteditable],[role=${Array.from(ROLES).join("],[role=")}]`;
  // Targets of delegated listeners: parts of lists and tables.
  const PARTS = "li,th,[draggable=true],[role=columnheader],[role=rowheader],[role=listitem]";
  // Containers of controls, whether or not they have listeners.
  const HOLDERS = new Set(["toolbar", "main", "navigation", "region", "banner", "contentinfo", "complementary", "tabpanel",
    "group", "list", "menu", "menubar", "dialog", "alertdialog", "listbox", "tree", "grid", "table", "tablist", "radiogroup",
    "separator", "document", "article", "application", "status", "log"]);
  const LABELLED = "[role=dialog],[role=menu],[role=listbox],[role=tabpanel],[role=region]";
  // Radix adds click listeners to tooltip triggers only to hide the tooltip.
  const TIPPED = ":is([data-state=closed],[data-state$=-open]):not([aria-haspopup],[aria-expanded],[aria-controls])";
  // Elements by the types of their listeners; one with many types is a framework's root.
  const MANY_TYPES = 30, CLICKS = /^(click|dblclick|touchstart|(mouse|pointer)(down|up))$/;
  const listening = new WeakSet(), heard = new WeakSet(), roots = new WeakSet(), zones = new WeakSet(), entered = new WeakSet();
  const menus = new WeakSet(), pressed = new WeakSet(), wheeled = new WeakSet(), hoverable = new WeakSet(), held = new WeakSet();
  const LISTENERS = [[CLICKS, heard], [/^(drop|dragover|dragenter)$/, zones], [/^(mouse|pointer)over$/, entered], [/^contextmenu$/, menus],
    [/^(mouse|pointer)down$/, pressed], [/^wheel$/, wheeled], [/^(mouse|pointer)enter$/, hoverable], [/^(mouse|pointer)hold$/, held]];
  // Minimum sides of a board's column in pixels, minimum share of the viewport of a surface, and what only a page has.
  const COLUMN = 40, LARGE = 0.25, DRAWING = 0.02, HOVERABLE = 0.2, PAGE = "p,h1,h2,h3,article,table";
  // Maximum number of levels between an element and its delegated listener, which is for list items on or right above the list.
  const DELEGATION = 5, LIST_DELEGATION = 2;
  // Maximum length of an item's text, and minimum length in pixels of a bar between panes.
  const LONGEST_ITEM = 40, LONG_BAR = 120;

  const watchListeners = () => {
    // Pages can't list listeners, so click listeners are recorded as they are added.
    const add = EventTarget.prototype.addEventListener;
    EventTarget.prototype.addEventListener = function (type, ...rest) {
      if (CLICKS.test(type) && this instanceof Element) listening.add(this);
      return add.call(this, type, ...rest);
    };
  };

  // Note an element and the types of its listeners, as CDP tells. A framework's root handles the clicks on all within it.
  const hear = (node, types) => {
    if (types.length >= MANY_TYPES) return roots.add(node);
    for (const [kind, known] of LISTENERS) if (types.some((type) => kind.test(type))) known.add(node);
  };

  // Whether things are dropped on an element, by its listeners or by its own word: it is listed, whatever it contains.
  const DROPPED = /drop-?(target|zone|list)(?!-?group)|droppable/, namesOf = Element.prototype.getAttributeNames;
  const isZone = memo((element) => (zones.has(element) || Reflect.apply(namesOf, element, []).some((name) => DROPPED.test(name)) ||
    matches(element, "[class~=droppable],[class*='-droppable']") || emptyColumns(treeOf(element)).has(element)) && !roots.has(element) && !matches(element, "th,body,input,textarea"));

  // Boxes without anything to drag beside an equal box with such things, as the columns of a board without listeners.
  const DRAGGED = "[draggable=true],[aria-roledescription*=drag i],[aria-roledescription=sortable i]";
  const emptyColumns = memo((root) => {
    const columns = new Set(), known = new Set(); // boxes that have equal ones, all visited
    for (const dragged of root.querySelectorAll(DRAGGED)) {
      for (let box = parentOf(dragged), level = 0; box && !known.has(box) && level < 3; box = parentOf(box), level++) {
        const { width } = rectOf(box);
        const equal = largeLike(box).filter((other) => Math.abs(other.width - width) < 2);
        if (!equal.some((other) => other.box !== box)) continue;
        for (const other of equal) {
          if (other.box !== box && holdsNothing(other.box)) columns.add(other.box);
          if (other.width === width) known.add(other.box);
        }
        break;
      }
    }
    return columns;
  });
  const holdsNothing = memo((box) => !matches(box, DRAGGED) && !inside(box, `${NATIVE},${DRAGGED}`).length);
  // The large children of a parent with their widths, by class and by name.
  const largeOf = memo((parent) => {
    const sized = Array.from(parent.children, (box) => ({ box, ...rectOf(box).toJSON() }));
    return Map.groupBy(sized.filter(({ width, height }) => Math.min(width, height) >= COLUMN), ({ box }) => box.className);
  });
  const largeLike = ({ parentElement, className, localName }) => (parentElement ? largeOf(parentElement).get(className) || [] : [])
    .filter(({ box }) => box.localName === localName);

  // Whether an element has a click listener; null for a framework's root.
  const listens = (element) => (roots.has(element) ? null :
    heard.has(element) || listening.has(element) || typeof element.onclick === "function");

  // Whether an element itself, and not one within it, shows that it handles clicks.
  const reacts = (element) => element.matches(NATIVE) || Boolean(listens(element)) || Boolean(cursorOf(element));

  const GRIDS = "table,tbody,thead,[role=grid],[role=treegrid],[role=table]";
  const HOVERED = `${NATIVE},[role^=menuitem],[tabindex],li,[onclick]`;

  // Whether controls that are hidden now are shown while the mouse is over an element: by a style sheet, or by a listener.
  const reveals = memo((element) => {
    const holds = (selector) => shownBy(element, selector).some(hides);
    const { showing, shows } = hoverIndex(treeOf(element));
    return matches(element, shows) && showing.some(({ over, part }) => matches(element, over) && holds(part)) ||
      isEntered(element) && !cursorOf(element)?.startsWith("g") && holds(HOVERED);
  });
  const isHidden = (part) => !part.checkVisibility({ visibilityProperty: true, opacityProperty: true }) || !part.offsetHeight;
  // a transparent box to tick lies over its picture
  const hides = (part) => isHidden(part) && !matches(part, "input") && (matches(part, HOVERED) && !matches(part, "td,th") || part.querySelector(HOVERED));

  // Whether an element listens to the mouse that comes over it, or is one of equal ones in what listens for all of them.
  const isLike = (row, other) => row.localName === other.localName && (matches(row, "li,tr") || row.classList[0] === other.classList[0]);
  const rowsIn = memo((box) => Array.prototype.filter.call(box.children, (row) => inside(row, HOVERED).some(hides)));
  const rowsOf = memo((box) => [box, ...box.children].map(rowsIn).find((rows) => rows.length > 1 && rows.every((row) => isLike(row, rows[0]))));
  const isEntered = (element) => {
    if (matches(element, GRIDS) || roots.has(element)) return false;
    const parent = parentOf(element), boxes = [element, parent, parent && parentOf(parent)];
    const box = boxes.find((one) => one && entered.has(one) && !roots.has(one) && !matches(one, "html,body"));
    return hoverable.has(element) || Boolean(box) && (rowsOf(box)?.includes(element) ?? box === element);
  };

  const CELLS = ":is([role=grid],[role=treegrid]) :is([role=gridcell],td:not([role],:is([role=presentation],[role=none]) td))";

  // A cell that can be selected: by the keys that move the focus among cells, with its row, or by a listener above it.
  const isCell = (element) => {
    if (element.hasAttribute("tabindex") || listens(element) || element.parentElement.hasAttribute("aria-selected")) return true;
    const grid = element.closest("[role=grid],[role=treegrid]");
    const around = parentOf(parentOf(grid) || grid);
    for (let at = parentOf(element); at && at !== around; at = parentOf(at)) if (at.localName !== "body" && listens(at)) return true;
    return false;
  };

  // The head of a column whose cells show that they are clicked or get the focus, unlike itself, such as a calendar's.
  const isDayHead = (head) => {
    const cells = head.closest("table")?.querySelectorAll("td") || [], middle = cells[cells.length >> 1];
    return [middle, middle?.firstElementChild].some((part) => part && (cursorOf(part) || part.hasAttribute("tabindex"))) && !cursorOf(head) && !head.hasAttribute("tabindex");
  };

  // A transparent or dimming overlay without content.
  const isVeil = (element) => {
    if (!matches(element, "div,span,section") || element.firstElementChild || oneLine(element.textContent)) return false;
    const style = styleOf(element), drawn = (part) => getComputedStyle(element, part).content !== "none";
    return style.backgroundImage === "none" && /^rgba\(|\/ [\d.]+\)$/.test(style.backgroundColor) &&
      style.borderWidth === "0px" && style.boxShadow === "none" && !drawn("::before") && !drawn("::after");
  };

  // A backdrop, whose listener closes the layer or blocks clicks on what is below it; not what is moved or has a name.
  const isLayer = (element) => parentOf(element) === element.ownerDocument.body && /^(fixed|absolute)$/.test(styleOf(element).position) &&
    styleOf(element).touchAction !== "none" && !matches(element, "[aria-label],[title]");

  // A large area that is drawn on, moved or enlarged, such as a map or a board. A page's root may have such listeners, too.
  const isSurface = memo((element) => {
    if (element.localName === "canvas") return true;
    const { width, height } = element.getBoundingClientRect(), isDrawing = element.localName === "svg";
    const least = isDrawing && (wheeled.has(element) || pressed.has(element)) ? DRAWING : LARGE; // a chart that listens itself
    if (width * height < innerWidth * innerHeight * least || roots.has(element) || element === element.ownerDocument.body) return false;
    const cursor = cursorOf(element), parent = parentOf(element);
    if (cursor && cursor !== "pointer" && (listens(element) || !(parent && cursorOf(parent) === cursor))) return true;
    const [isPressed, isWheeled] = [pressed.has(element), wheeled.has(element)];
    if (isPressed && isWheeled || isDrawing && (isWheeled || listens(element))) return true;
    return (isPressed || isWheeled) && !isLayer(element) && !element.querySelector(`${NATIVE},${PAGE}`);
  });

  // The label of a field, or what only frames it, whose listener moves the focus into the field.
  const isLabel = (element) => {
    const label = element.id ? element : element.querySelector("[id]") || element.querySelector("slot")?.assignedElements()[0];
    if (!label?.id || label !== element && textOf(label).trim() !== textOf(element).trim()) return false;
    const named = label.getRootNode().querySelectorAll(`[aria-labelledby~="${CSS.escape(label.id)}"]`);
    return Array.prototype.some.call(named, (field) => field !== label && !matches(field, LABELLED));
  };

  // The part of a component that shows a field's label.
  const holdsLabel = (element) => Boolean(treeOf(element).host) && inside(element, "slot").some((slot) =>
    slot.assignedElements().some((label) => label.control && label.localName === "label"));

  // Whether a listener is for the parts of an element, which are short texts of one kind, such as suggestions or numbers.
  const holdsItems = memo((element) => {
    const parts = Array.from(element.children), least = /^(absolute|fixed)$/.test(styleOf(element).position) ? 2 : 3;
    const isItem = (part) => /^(div|span)$/.test(part.localName) && part.localName === parts[0].localName &&
      !part.childElementCount && !part.hasAttribute("role") && oneLine(part.textContent, LONGEST_ITEM).match(/^[^…]+$/);
    return parts.length >= least && listens(element) && !cursorOf(element) && parts.every(isItem);
  });

  const isDrawn = (element) => {
    const style = styleOf(element);
    return style.borderBottomWidth !== "0px" || !/^rgba\(.*, 0\)$/.test(style.backgroundColor) || style.boxShadow !== "none";
  };

  // A card of a board whose columns listen to the pointer that takes it: one of several, or of which no text is selected.
  const isCard = (element, parent) => {
    const isColumn = (box) => box && pressed.has(box) && !roots.has(box) && !matches(box, "html,body") && !isLayer(box) && styleOf(box).position !== "fixed";
    const isEqual = (other) => other !== element && other.localName === element.localName && other.getAttribute("class") === element.getAttribute("class");
    return [parent, parent && parentOf(parent)].some(isColumn) && isDrawn(element) && !matches(element, "td,th,tr,[role=row],[role=cell]") &&
      (styleOf(element).userSelect === "none" && styleOf(parent).userSelect !== "none" || Array.prototype.some.call(parentNode(element).children, isEqual)) && !element.querySelector(NATIVE) && Boolean(oneLine(textOf(element)));
  };

  // One of several parts of a popup in something clickable that each change under the mouse, such as a list in its field.
  const isPopupItem = (element, parent) => Boolean(hovers(element)) &&
    [parent, parent && parentOf(parent)].some((box) => box && /^(absolute|fixed)$/.test(styleOf(box).position)) &&
    Array.prototype.some.call(parentNode(element).children, (other) => other !== element && other.localName === element.localName && hovers(other));

  // A bar between panes that is dragged, or the corner of a box; not the edges of windows and column headers.
  const isPressedIn = (element, levels) => Boolean(element) && levels > 0 && (pressed.has(element) || isPressedIn(parentOf(element), levels - 1));
  const isDivider = (element, parent) => {
    const { cursor, position } = styleOf(element);
    if (/^(se|nwse)-resize$/.test(cursor)) return isPressedIn(element, DELEGATION);
    if (!cursor.endsWith("-resize") || position === "absolute" || parent && styleOf(parent).cursor === cursor) return false;
    const { width, height } = element.getBoundingClientRect();
    return Math.max(width, height) >= LONG_BAR;
  };

  // What a framework handles only the press of: a suggestion or something to drag. Panels, toolbars and tips have such a
  // handler, too, to keep the focus: they contain controls, are a part of the page, or have several texts and no equals.
  const KEEPERS = `${PAGE},section,main,nav,header,footer,aside,[role=tooltip]`;
  const isHeld = (element) => {
    if (!held.has(element) || matches(element, KEEPERS) || element.closest(CONTROLS)) return false;
    if (element.querySelector(`${NATIVE},${PAGE},[role],[tabindex]`)) return false;
    const texts = Array.from(element.children).filter((part) => oneLine(textOf(part)));
    const isEqual = (other) => other !== element && held.has(other) && other.localName === element.localName;
    if (texts.length > 1 && !Array.from(parentNode(element).children).some(isEqual)) return false;
    return isDrawn(element) || Boolean(oneLine(textOf(element)));
  };

  // What only listens to the mouse that comes over it, and contains nothing to click.
  const isHoverable = (element) => (hoverable.has(element) || entered.has(element) && !matches(element, "ul,ol")) && !roots.has(element) && element !== element.ownerDocument.body &&
    !matches(element, `html,label,option,td,th,[role],canvas,${GRIDS},${TIPPED}`) && !element.querySelector(NATIVE) &&
    !(element.ariaHidden === "true" && /^\s*[/.:,–-]\s*$/.test(element.textContent)); // between the parts of a date

  // Confidence that an element is interactive: 3 by its type, 2 by its cursor, 1 by a listener, 0.5 as a cell, 0.2 to hover.
  const interest = memo((element) => pressInterest(element) || (isHoverable(element) ? HOVERABLE : 0));

  // What only keeps a place, such as those before a month's first day.
  const isBlank = (element) => matches(element, "button:disabled:empty:not([aria-label],[title])") && !isDrawn(element) && styleOf(element).backgroundImage === "none" &&
    ["::before", "::after"].every((part) => getComputedStyle(element, part).content === "none");

  const pressInterest = (element) => {
    if (isBlank(element)) return 0;
    if (element.matches(NATIVE)) return element.localName !== "option" || element.closest("select[multiple],select[size]") ? 3 : 0;
    const role = (attributeOf(element, "role") || "").trim().split(/\s+/)[0];
    if (ROLES.has(role) || editable(element)) return 3;
    if (element === element.ownerDocument.body || element === element.ownerDocument.documentElement) return 0;
    if (element.hasAttribute("aria-sort")) return 2;
    if (element.localName === "label" && (element.control || element.htmlFor && !listens(element))) return 0;
    if (element.getAttribute("draggable") === "true") return 2;
    if (labelsField(element)) return 0;
    const parent = parentOf(element);
    // a list that is pressed and receives drops is a board's column: its items are dragged
    if (parent && isZone(parent) && listens(parent) && !matches(parent, "tr,th,td")) return 1;
    if (isZone(element)) return 1;
    // a change of the cursor starts another element, such as a button within something draggable
    const cursor = cursorOf(element);
    if (cursor && !(parent && cursorOf(parent) === cursor)) return holdsLabel(element) ? 0 : 2;
    if (cursor && isPopupItem(element, parent)) return 2;
    if (cursor && cursor !== "pointer" && listens(element)) return 2; // a thing on a surface that is moved, too
    if ((role === "gridcell" || element.localName === "td") && matches(element, CELLS)) return isCell(element) ? 0.5 : 0;
    if (isSheetCell(element)) return 0.5;
    if (isSurface(element)) return 1;
    if (role === "separator" && element.hasAttribute("tabindex") || isDivider(element, parent)) return 2;
    if (menus.has(element)) return 1;
    if (HOLDERS.has(role) || element.localName === "label" || matches(element, TIPPED)) return 0;
    // a script, not the browser, handles the pointer on it: it is dragged or swiped
    if (styleOf(element).touchAction === "none" && !(parent && styleOf(parent).touchAction === "none")) return 1;
    if (styleOf(element).cursor.endsWith("-resize")) return 0;
    if (matches(element, "li,tr,th") && !oneLine(textOf(element))) return 0;
    if (Number(element.getAttribute("tabindex") ?? -1) >= 0) return 1;
    if (reveals(element) || isCard(element, parent)) return 1;
    const heard = listens(element);
    if (heard === null) return 0; // only the frame of what listens
    if (heard || isHeld(element)) return isLabel(element) ? 0 : 1;
    const isPart = element.matches(PARTS) || parent && holdsItems(parent);
    // The listener delegates to controls within.
    if (isPart && !element.draggable && element.querySelector(NATIVE)) return 0;
    if (matches(element, "th") && isDayHead(element)) return 0;
    const most = matches(element, "li,[role=listitem]") ? LIST_DELEGATION : DELEGATION;
    for (let above = parent, steps = 0; above && steps < most; above = parentOf(above), steps++) {
      if (above === above.ownerDocument.body) return 0;
      // only the outermost element that changes is interactive, the others are its parts
      if (!isPart && (cursorOf(above) || matches(above, PARTS) || hovers(above))) return 0;
      if (listens(above)) return isPart ? 2 : hovers(element);
    }
    return 0;
  };

  return Object.freeze({ hear, HOVERABLE, interest, isDrawn, isLayer, isSurface, isVeil, NATIVE, isZone, listens, reacts, reveals, remembered: (element) => listening.has(element), watchListeners });
})();
