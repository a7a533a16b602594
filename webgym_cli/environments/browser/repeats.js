// Of nested elements with one meaning the one that is listed.
webgym.repeats = (() => {
  const { inside, matches, memo, nameOf, oneLine, parentOf, roleOf, styleOf, textOf } = webgym.names;
  const { valueOf } = webgym.values;
  const { HOVERABLE, isZone, listens, NATIVE, reacts, remembered } = webgym.kinds;
  const { area, isPassed, same, within } = webgym.geometry;
  // Elements that are one unit, whatever they contain.
  const WHOLE = "button,a[href],summary,[role=button],[role=link],[role=tab],[role=option],[role^=menuitem],[role=switch]," +
    "[role=checkbox],[role=radio],[role=slider]";
  const FIELDS = "input,select,textarea,[contenteditable]:not([contenteditable=false]),[role=textbox],[role=combobox],[role=slider],[role=spinbutton]," +
    "[role=switch],[role=checkbox],[role=radio]";
  // Fields whose parts are the field.
  const TWINS = "[role=switch],[role=checkbox],[role=radio],[role=slider]", MOVED = `[type=checkbox],[type=radio],[type=range],${TWINS}`;
  // Fields that may be around the one that takes their text.
  const WRAPPED = "[role=combobox],[role=spinbutton]";
  // Drop-down lists, whose arrows are they themselves.
  const LISTS = ":is([role=combobox],[role=listbox])[aria-expanded]:not(input)";
  const CELLS = "td,[role=gridcell]", ROWS = "[role=option],[role^=menuitem]";
  // Maximum number of nodes read of a cell, and maximum height of a row with an expander.
  const MOST_NODES = 2000, LOW = 60;

  const wordsOf = memo((element) => oneLine(webgym.names.wordsOf(element)));

  // An icon before the text of a row, such as an expander.
  const isLeading = (outer, inner) => {
    if (inner.sure > 1 || outer.sure < 2 || remembered(inner.element) || wordsOf(inner.element)) return false;
    const before = outer.element.ownerDocument.createRange();
    before.setStart(outer.element, 0);
    before.setEndBefore(inner.element);
    return outer.element.contains(inner.element) && !oneLine(before.toString()) && Boolean(wordsOf(outer.element));
  };

  const alike = (outer, inner) => {
    const text = wordsOf(inner.element), name = nameOf(inner.element);
    if (same(outer.box, inner.box) || text && [wordsOf(outer.element), nameOf(outer.element)].includes(text)) return true;
    // a part that is no control may only share the words that name what is around it
    const isSure = inner.sure === 3 || !wordsOf(outer.element);
    return isSure && Boolean(name) && name === nameOf(outer.element);
  };

  // Whether a cell has a text of its own beside controls.
  const hasWordsBeside = (cell, isOther) =>
    Boolean(oneLine(textOf(cell, { left: MOST_NODES, words: true, unread: (node) => isOther(node) || node.control })));

  const fieldsIn = memo((element) => inside(element, FIELDS)); // once for the cells of a sheet

  // An icon behind a field with a listener of its own, which clears the field or shows its text.
  const isOwn = (icon, field) => field.localName === "input" && !field.readOnly && listens(icon) && !wordsOf(icon) && (field.compareDocumentPosition(icon) & Node.DOCUMENT_POSITION_FOLLOWING) > 0;

  // An icon in a field's frame that does what the field does, or a part of a slider's track.
  const isFieldIcon = ({ element, sure, isSurface: isLarge }, index) => {
    if (sure > 2 || isLarge || wordsOf(element) || matches(element, "[aria-label],[title]")) return false;
    if (isZone(element)) return false; // an empty place for drops is no icon
    for (let at = parentOf(element), level = 0; at && level < 3 && at.localName !== "body"; at = parentOf(at), level++) {
      const fields = fieldsIn(at);
      if (!fields.length && listens(element) && wordsOf(at)) return false; // it belongs to a chip in the field
      if (fields.length) return fields.length === 1 && index.has(fields[0]) && (sure === 1 && !isOwn(element, fields[0]) || roleOf(fields[0]) === "slider");
    }
    return false;
  };

  // What opens the list that it is in, and does nothing else.
  const isArrow = (part) => !wordsOf(part) && (matches(part, "[role=button]:is([aria-haspopup],[aria-expanded]):not(button)") && !listens(part) ||
    !matches(part, NATIVE) && /(^| )(arrow|caret|chevron|drop|dropdown)( down)?$/.test(nameOf(part)));

  // A cross that removes the tab, option or chip that it is in, which does something else itself.
  const CROSS = /^[x×✕✖✗⨯]$|\b(close|remove|delete|dismiss|clear|cancel)/i;
  const isCross = (outer, inner) => listens(inner) && CROSS.test(nameOf(inner)) && Boolean(wordsOf(outer)) && !CROSS.test(wordsOf(outer)) &&
    !matches(outer, `${TWINS},[aria-haspopup],[aria-expanded]`);

  // What shows a list's value: the chosen option, or a button with all its words.
  const isChosen = (outer, inner) => (matches(inner.element, "[role=option]") ? outer.element.getAttribute("aria-expanded") !== "true" :
    inner.element.localName === "button" && Boolean(wordsOf(inner.element)) && wordsOf(inner.element) === wordsOf(outer.element));

  // For two nested elements: "outer" or "inner" if that one only repeats or frames the other one, else null.
  const needless = (outer, inner, index) => {
    // lines of an editor that receives drops are not what is typed in
    if (outer.isZone && outer.sure === 3 && inner.sure === 1) return "inner";
    // what lets clicks through, such as a disabled button: in its place, or as a component, is only what shows its tip
    if (isPassed(inner.element) && listens(outer.element)) return same(outer.box, inner.box) || matches(outer.element, ":disabled") ? "outer" : null;
    // what lies on a surface; of two surfaces in one place the inner one
    if (outer.isSurface) return inner.isSurface && same(outer.box, inner.box) ? "outer" : null;
    if (inner.sure === HOVERABLE && outer.sure > HOVERABLE) return "inner";
    if (outer.sure === HOVERABLE) return inner.sure > HOVERABLE ? "outer" : null;
    const isAlike = alike(outer, inner);
    if (outer.isZone || inner.isZone) return outer.isZone && isAlike && (inner.sure < 3 || matches(inner.element, "button,[type=file]")) ? "outer" : null;
    // a row whose cells are listed
    if (inner.sure < 1 && outer.sure === 2 && matches(outer.element, "tr,[role=row]")) return "outer";
    const sign = oneLine(inner.element.innerText), isLittle = area(inner) * 4 < area(outer); // unlike the fields of a range
    const isSign = sign.length < 2 && isLittle && inner.element.parentElement === outer.element && listens(inner.element);
    const isLow = outer.box.height < LOW || styleOf(inner.element).cursor.endsWith("-resize");
    const isExpander = outer.sure === 1 && (inner.sure === 2 && !sign || isSign) && isLow && !same(outer.box, inner.box);
    const hasBox = matches(outer.element, "[role=treeitem]") && matches(inner.element, MOVED);
    // a window's title bar, which is moved
    const isGrip = outer.sure === 1 && inner.element.localName === "button" && styleOf(outer.element).touchAction === "none";
    const isListed = (node) => node === inner.element || outer.sure < 1 && index.has(node);
    if ((outer.sure < 1 || isExpander || hasBox || isGrip) && hasWordsBeside(outer.element, isListed)) return null;
    // stars in a frame that does nothing itself
    const isFrame = outer.sure === 2 && inner.sure === 1 && !wordsOf(outer.element) && !listens(outer.element);
    if (isFrame && !same(outer.box, inner.box)) return "outer";
    if (matches(outer.element, WRAPPED) && (inner.element.localName === "input" || isChosen(outer, inner))) return "inner";
    if (outer.sure <= 1) return inner.sure < 1 && outer.element.closest(CELLS) ? "inner" : "outer";
    if (isLeading(outer, inner)) return "inner";
    if (inner.face !== inner.element && matches(outer.element, ROWS)) return "inner";
    // a column header is more than what filters the column
    if (matches(outer.element, "th,[role=columnheader]") && inner.sure === 3 && !wordsOf(inner.element) && wordsOf(outer.element)) return null;
    const isUnit = matches(outer.element, WHOLE) && !isCross(outer.element, inner.element);
    if (inner.sure < 3 && (isUnit || matches(outer.element, LISTS) && isArrow(inner.element))) return "inner";
    // the words of a tree's item
    if (inner.sure < 3 && outer.sure === 3 && isAlike) return "inner";
    // a picture in the box that it fills
    if (inner.sure < 3 && area(inner) * 2 > area(outer) && !wordsOf(inner.element) && !wordsOf(outer.element)) return "inner";
    // the track of a slider, a frame without words of its own
    if (outer.sure < 3 && inner.sure === 3 && matches(inner.element, FIELDS) && !oneLine(outer.element.textContent)) return "outer";
    if (outer.sure < inner.sure) return isAlike || area(inner) * 2 > area(outer) ? "outer" : null;
    if (!isAlike) return null;
    // the middle of a tree's item may be in the items below it
    const isBeside = !within(outer.point, inner.box) && !matches(inner.element, "[role=treeitem] [role=button]");
    return inner.element.matches("button,input,select,textarea") || isBeside ? "outer" : "inner";
  };

  // Whether an element handles clicks itself; its cursor does not tell where only the words in it have a listener.
  const handles = ({ element }, { element: inner }) => reacts(element) &&
    (matches(element, NATIVE) || listens(element) || !listens(inner) || wordsOf(inner) !== nameOf(element));

  // Of nested elements with one meaning keep one: the outer one, unless it only frames the inner control.
  const withoutRepeats = (found) => {
    const index = new Map(found.map((find) => [find.element, find]));
    const dropped = new Set();
    const faces = new Map(found.filter((find) => find.face !== find.element).map((find) => [find.face, find]));
    for (const face of faces.keys()) if (index.has(face)) dropped.add(index.get(face));
    for (const find of found) {
      if (find.element.localName === "option") continue;
      if (isFieldIcon(find, index)) dropped.add(find);
      for (let above = parentOf(find.element); above; above = parentOf(above)) {
        const faced = faces.get(above)?.element;
        if (faced && (find.sure === 1 && !isOwn(find.element, faced) || find.sure < 3 && matches(faced, MOVED) || isArrow(find.element))) dropped.add(find);
        const outer = index.get(above);
        if (!outer || dropped.has(outer)) continue;
        const drop = needless(outer, find, index);
        if (drop) dropped.add(drop === "outer" ? outer : find);
        if (drop === "inner" && matches(outer.element, WRAPPED)) outer.value ||= (isChosen(outer, find) ? wordsOf(find.element) : valueOf(find.element)) || undefined;
        if (drop === "outer" && outer.reveals) [find.reveals, outer.reveals] = [true, false]; // the mouse is over both
        if (drop === "inner" && find.sure > 0 && !handles(outer, find) && (find.sure === 2 || reacts(find.element))) {
          outer.point = find.point; // only this part of it handles clicks
          outer.aim ||= find.face;
        }
        if (drop !== "outer" && (drop || !outer.isZone && !outer.isSurface)) break;
      }
    }
    return found.filter((find) => !dropped.has(find));
  };

  return Object.freeze({ FIELDS, TWINS, withoutRepeats });
})();
