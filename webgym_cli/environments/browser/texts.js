// The texts of elements, as a person reads them.
webgym.texts = (() => {
  const { childrenOf, matches, memo, pictured, styleOf, treeOf } = webgym.roles;
  const LONGEST = 400, MOST_NODES = 300; // characters and nodes of a name
  const FIELDS = "input:not([type=hidden]),select,textarea,[contenteditable]:not([contenteditable=false]),[role=textbox],[role=combobox]";
  const CONTROLS = "a[href],button,summary,[role=button],[role=link],[role=tab],[role^=menuitem]";
  const CELLS = "[role$=cell],[role=columnheader]"; // side by side, whatever they are to a style sheet
  const oneLine = (text, most = 80) => {
    const line = `${(text || "").slice(0, LONGEST).replace(/[\s\u200b]+/g, " ").trim().toWellFormed()}`; // pages replace methods
    return line.length > most ? line.slice(0, most - 1) + "…" : line;
  };
  const bare = (text) => (text || "").toLowerCase().replace(/[^\p{L}\p{N}]/gu, ""); // without the formatting that fields apply
  const inside = (element, selector) => Array.from(Element.prototype.querySelectorAll.call(element, selector));

  const byIds = (element, attribute) => (element.getAttribute(attribute) || "").split(/\s+/)
    .map((id) => id && treeOf(element).getElementById?.(id)).filter(Boolean);

  // The name of an element that is named by its content.
  const textOf = (element, work) => (work ? readText(element, work) : wholeText(element));
  const wholeText = memo((element) => readText(element, { left: MOST_NODES }));
  const readText = (element, work) => {
    let text = "";
    for (const node of childrenOf(element)) {
      if (work.left-- < 0 || text.length > LONGEST) break;
      if (node.nodeType === Node.TEXT_NODE) text += node.data;
      else if (node.nodeType === Node.ELEMENT_NODE) text += partOf(node, work);
    }
    return text;
  };

  // The same without boxes to tick, the names of icons, and a row's buttons and the items below it, if there are other words.
  const TICKS = "[type=checkbox],[type=radio],[role=checkbox],[role=radio],[role=switch]";
  const ITEMS = ":is([role=treeitem],[role^=menuitem],li,[role=listitem])", BELOW = `${ITEMS} :is([role=group],[role=menu])`;
  const BESIDES = `svg,title,[role=img],[role=presentation][aria-label],${TICKS},${ITEMS} :is(button,[role=button]),${BELOW}`;
  const wordsOf = (element) => {
    for (const read of [wordsIn, wordsAbove]) if (read(element).trim()) return read(element);
    return textOf(element);
  };
  const wordsAbove = memo((element) => textOf(element, { left: MOST_NODES, unread: (node) => matches(node, BELOW) }));
  const wordsIn = memo((element) => wordsBut(element, null));
  const wordsBut = (element, field) => {
    const end = element.getBoundingClientRect().bottom;
    // its own popup
    const isBelow = (node) => node.childElementCount > 0 && styleOf(node).position === "absolute" && node.getBoundingClientRect().top >= end - 2;
    // a picture that is pressed, such as the cross of a tab or a chip
    const isPicture = (node) => matches(node, CONTROLS) && ![node.textContent, textOf(node)].every((text) => /[\p{L}\p{N}]/u.test(text));
    const isLeft = (node) => node === field || matches(node, BESIDES) || isPicture(node) || isBelow(node) || styleOf(node).opacity === "0";
    return textOf(element, { left: MOST_NODES, unread: isLeft });
  };

  // In a link without an address, such as a chip.
  const isChip = (node) => styleOf(node).cursor === "pointer" && Boolean(node.closest("a"));

  const partOf = (node, work) => {
    const tag = node.localName;
    if (node instanceof HTMLFormElement) return " "; // its fields' names shadow its methods
    if (work.words && (matches(node, CONTROLS) || isChip(node)) || work.unread?.(node)) return " ";
    if (tag === "script" || tag === "style" || tag === "template") return "";
    const style = styleOf(node);
    if (style.display === "none" || style.visibility === "hidden" || node.getAttribute("aria-hidden") === "true") return "";
    const told = node.getAttribute("aria-label") || (tag === "img" ? node.alt : "");
    const held = tag === "select" || tag === "textarea" || tag === "input" && node.type !== "button" && node.type !== "submit";
    const isLabel = told && (tag === "img" || matches(node, FIELDS));
    const words = isLabel || held ? "" : tag === "input" ? node.value : tag === "svg" ? pictured(node) : textOf(node, work);
    const inner = told && !/\p{L}{2}/u.test(words) ? told : words; // a person reads the words, not the label
    return (style.display.startsWith("inline") || style.display === "contents") && !matches(node, CELLS) ? inner : ` ${inner} `;
  };

  // What a label that is linked by its id says, also a tooltip that is hidden until it shows.
  const labelIn = (label) => {
    const isHidden = label.ariaHidden === "true" || !label.checkVisibility({ visibilityProperty: true });
    return label.getAttribute("aria-label") || textOf(label) || isHidden && hiddenText(label) || "";
  };
  const hiddenText = (node) => {
    if (node.nodeType === Node.TEXT_NODE) return node.data;
    return matches(node, "script,style,template") ? "" : Array.from(node.childNodes, hiddenText).join("");
  };

  return Object.freeze({ bare, byIds, CONTROLS, FIELDS, inside, isChip, labelIn, MOST_NODES, oneLine, partOf, textOf, TICKS, wordsBut, wordsIn, wordsOf });
})();
