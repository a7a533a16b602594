// Roles of elements; and what one without words is called: by its picture, its style sheet, its class or its purpose. What
// all scripts of a page need for it: one computation at a time (`atOnce`, `memo`), attributes of custom elements, and the
// flat tree: shadow roots for their hosts' children, slots with their assigned nodes.
webgym.roles = (() => {
  const INPUT_ROLES = { button: "button", submit: "button", reset: "button", image: "button", checkbox: "checkbox",
    radio: "radio", range: "slider", number: "spinbutton", search: "searchbox", date: "date", time: "time",
    month: "month", week: "week", "datetime-local": "datetime", color: "color", file: "file", password: "password" };
  const TAG_ROLES = { a: "link", area: "link", summary: "button", textarea: "textbox", li: "listitem", tr: "row",
    td: "cell", th: "columnheader", main: "main", aside: "complementary", dialog: "dialog", fieldset: "group", img: "image", svg: "image", article: "article", nav: "navigation", h1: "heading",
    h2: "heading", h3: "heading", h4: "heading", h5: "heading", h6: "heading", ul: "list", ol: "list", p: "paragraph",
    button: "button", option: "option", table: "table", details: "group", canvas: "canvas", video: "video",
    audio: "audio", iframe: "iframe", object: "object", embed: "embed" };

  // Controls of HTML, and roles of texts and containers that components give to them, such as an item that is a link.
  const NATIVE = "a[href],button,input,select,textarea,summary";
  const TEXTS = /^(alert|status|log|list|listitem|group|heading|img|image|article|document|note|region|application)$/;

  const matches = (element, selector) => Element.prototype.matches.call(element, selector);
  const editable = (element) => element.isContentEditable && !element.parentElement?.isContentEditable;

  // Within `atOnce` no script of the page runs: what is computed then for an element holds until its end.
  let turn = 0, depth = 0;
  const atOnce = (work) => {
    [turn, depth] = [turn + 1, depth + 1];
    try { return work(); } finally { depth--; }
  };
  const memo = (compute) => {
    let known = new Map(), of = turn;
    return (key) => {
      if (!depth) return compute(key);
      if (of !== turn) [known, of] = [new Map(), turn];
      if (!known.has(key)) known.set(key, compute(key));
      return known.get(key);
    };
  };

  const closed = new WeakMap();

  // References taken before the page's scripts run, also because a form's fields can shadow the form's properties.
  const getter = (kind, name) => {
    const get = Object.getOwnPropertyDescriptor(kind.prototype, name).get;
    return (object) => Reflect.apply(get, object, []);
  };
  const openRoot = getter(Element, "shadowRoot"), assignedSlot = getter(Element, "assignedSlot"), parentNode = getter(Node, "parentNode");
  const titleOf = getter(Document, "title"), { getRootNode } = Node.prototype;
  const treeOf = (node) => Reflect.apply(getRootNode, node, []);

  const rootOf = (element) => openRoot(element) || closed.get(element) || null;
  const closedSlot = (element, host) =>
    Array.from(closed.get(host).querySelectorAll("slot")).find((slot) => slot.assignedNodes().includes(element));

  // The parent in the flat tree; null at the end of the document.
  const parentOf = memo((element) => {
    const parent = parentNode(element);
    if (!parent || parent.nodeType === Node.DOCUMENT_NODE) return null;
    if (parent.nodeType === Node.DOCUMENT_FRAGMENT_NODE) return parent.host || null;
    return assignedSlot(element) || (closed.has(parent) && closedSlot(element, parent)) || parent;
  });
  const styleOf = memo((element) => getComputedStyle(element)); // one object for all of a look

  const childrenOf = (element) => {
    const assigned = element.localName === "slot" ? element.assignedNodes() : [];
    return assigned.length ? assigned : (rootOf(element) || element).childNodes;
  };

  // What `stand_ins.js` tells of the internals of a custom element, or the names of all elements with internals. The event
  // is one that hands on an element, also out of a closed shadow root.
  const ask = (document, submitter, question = "webgym-ask") => {
    let told = {};
    const hear = ({ detail }) => { told = detail || {}; };
    document.addEventListener("webgym-told", hear);
    document.dispatchEvent(new SubmitEvent(question, { submitter }));
    document.removeEventListener("webgym-told", hear);
    return told;
  };
  const namesOf = memo((document) => ask(document, null)), internalsOf = memo((element) => ask(element.ownerDocument, element));

  // An attribute, or what a custom element has in its place in its internals.
  const attributeOf = (element, name) => {
    const own = element.getAttribute(name), tag = element.localName;
    if (own !== null || !tag.includes("-") || !namesOf(element.ownerDocument)[tag]) return own;
    const told = internalsOf(element)[name.replace("-", "")];
    return typeof told === "string" && told || null;
  };

  // A header in a row of data: before its data, or first, unless the row is a table's first and has several.
  const isRowHeader = (head) => {
    const scope = head.scope, row = head.parentElement, isTop = matches(row, ":first-child") && row.querySelectorAll(":scope>th").length > 1;
    if (scope || head.closest("thead")) return scope.startsWith("row");
    const isBefore = head.cellIndex === 0 || head.nextElementSibling?.localName === "td";
    return isBefore && !isTop && Boolean(row.querySelector(":scope>td"));
  };

  // A field that opens a list, or is in the button or box that does.
  const OPENS_LIST = "[aria-haspopup=listbox],:is([aria-haspopup=listbox],[role=combobox]) *";
  const roleOf = (element) => {
    const told = (attributeOf(element, "role") || "").trim().toLowerCase().split(/\s+/)[0];
    if (told && told !== "presentation" && told !== "none" && !(TEXTS.test(told) && matches(element, NATIVE))) return told;
    const tag = element.localName;
    if (tag === "input" && /^(text|search)$/.test(element.type) && matches(element, OPENS_LIST)) return "combobox";
    if (tag === "input") return INPUT_ROLES[element.type] || (element.hasAttribute("list") ? "combobox" : "textbox");
    if (tag === "th" && element.parentElement && isRowHeader(element)) return "rowheader";
    if (tag === "td" && element.closest("[role=grid],[role=treegrid]")) return "gridcell";
    if (tag === "select") return element.multiple || element.size > 1 ? "listbox" : "combobox";
    return editable(element) ? "textbox" : TAG_ROLES[tag] || "generic";
  };

  const FIELDS = "input:not([type=button],[type=submit],[type=reset],[type=image]),select,textarea";
  const FIELD_ROLES = /^(checkbox|radio|switch|textbox|searchbox|combobox|slider|spinbutton)$/;
  // Of components only those that belong to a form are ever enabled.
  const isField = (element) => matches(element, FIELDS) || FIELD_ROLES.test(roleOf(element)) ||
    roleOf(element) === "generic" && element.localName.includes("-") && matches(element, ":enabled,:disabled");

  // Whether a component is the label of a field: with `for` others name what they open or explain.
  const labelsField = (element) => {
    if (!element.localName.includes("-") || element.hasAttribute("tabindex")) return false;
    const target = element.getRootNode().getElementById?.(element.getAttribute("for"));
    return Boolean(target) && (isField(target) || element.localName.endsWith("-label")); // of a component that is none to the browser
  };

  const UTILITIES = new RegExp("^(?:absolute|align|animate|bg|border|bottom|col|cursor|divide|duration|ease|fill|flex|font|gap|" +
    "grid|has|inset|is|items|justify|leading|left|line|list|m[trblxy]|max|min|object|opacity|order|origin|outline|overflow|p[trblxy]|" +
    "place|pointer|relative|right|ring|rounded|row|scale|scroll|select|self|shadow|shrink|size|space|stroke|text|top|tracking|" +
    "transition|translate|whitespace)-");
  const PURPOSES = /^(search|email|tel|url|password)$/;

  // Words that a style sheet puts into an element; not the symbols of icon fonts.
  const generatedIn = (element) => [element, element.firstElementChild].map((one) => (one ? drawnIn(one) : "")).join(" ");
  const drawnIn = (element) => ["::before", "::after"].map((part) => {
    const content = getComputedStyle(element, part).content.replace(/url\("[^"]*"\)/g, ""), pieces = content.matchAll(/"((?:[^"\\]|\\.)*)"|attr\(([\w-]+)/g);
    const words = Array.from(pieces, ([, text, name]) => (name ? element.getAttribute(name) : text) || "").join("");
    return /[^\s\p{Co}]/u.test(words) ? words : "";
  }).join(" ");

  const pictured = (svg) => Array.prototype.find.call(svg.children, (child) => child.localName === "title")?.textContent || "";

  // What an attribute for an icon says, also as a setting ("icon: heart; ratio: 2"), but not whether or where there is one.
  const ICON = /^(?:icon: *)?(?!(?:yes|no|true|false|on|off|none|left|right|start|end|top|bottom)$)([a-z][\w-]*)(?:;.*)?$/i;
  const iconAttribute = (part) => Array.from(part.attributes, ({ name, value }) => name.endsWith("-icon") && value.match(ICON)?.[1]).find(Boolean);

  // The name of an image without text, from its file, symbol, class or ligature; otherwise from its surroundings.
  const iconOf = (element) => {
    const parts = [element, ...Array.prototype.slice.call(element.querySelectorAll?.("img,svg,use,i,span,[aria-hidden=true]") || [], 0, 8)];
    for (const part of parts) {
      const own = ["data-icon", "icon"].map((name) => part.getAttribute(name)).find((value) => value && !/^(yes|no|true|false|\d+)$/.test(value));
      const told = own || part.getAttribute("href")?.split("#")[1] || part.localName === "use" && part.getAttribute("xlink:href")?.split("#")[1] ||
        part.localName === "img" && part.getAttribute("src")?.match(/^(?!data:)[^?#]*/)?.[0].split("/").pop().replace(/\.\w+$/, "") ||
        (part.getAttribute("class") || "").match(/(?:^|\s|[a-z]-)(?:icon|fa|bi|codicon|mdi|glyphicon|ti|lucide|feather|ph|pi|ri|i)-(?!-?(?:only|hover|base|button|default|small|medium|large|sm|md|lg|xs|xl)\b|(?:solid|regular|light|thin|duotone|brands|fw|spin|\dx)(?![\w-]))([\w-]+)/)?.[1] || iconAttribute(part) ||
        part.closest("[aria-hidden=true]") && part.textContent.trim().match(/^[a-z]{2,}(_[a-z\d]+)*$/)?.[0];
      if (told) return told.replace(/[-_]+/g, " ");
    }
    const classes = parts.map((part) => part.getAttribute("class") || "");
    const place = classes.map((names) => names.match(/([\w-]{2,}(?<!base|(?:^|\s)(?:(?:[a-z]{1,2}|ant|mat)-)?(?:button|btn)))-icon(?:\s|$)/)?.[1]).find(Boolean) ||
      classes.find((names) => /^(?!ui )[a-z ]+ icon\b/.test(names))?.replace(/(^| )(icon|link|active|selected|disabled)\b/g, "").trim();
    return (place || "").replace(/[-_]+/g, " ");
  };

  // What is said of an element that has no name: in a tooltip or a field's placeholder, or to tests.
  const HINTS = ["placeholder", "aria-placeholder", "data-placeholder", "data-tooltip", "data-original-title",
    "data-title", "data-tip", "aria-description", "data-language"];
  const TEST_IDS = ["data-testid", "data-test-id", "data-test", "data-cy"];
  const hintOf = (element) => HINTS.map((hint) => element.getAttribute(hint)).find(Boolean);
  const testIdOf = (element) => TEST_IDS.map((id) => element.getAttribute(id)).find(Boolean)?.replace(/[-_]+/g, " ");

  // The purpose of a field (WCAG 1.3.5): its `autocomplete` value, or its type.
  const purposeOf = (element) => {
    const filled = (element.getAttribute("autocomplete") || "").trim().split(/\s+/).pop().toLowerCase();
    return filled && filled !== "on" && filled !== "off" ? filled.replaceAll("-", " ") : element.type?.match(PURPOSES)?.[0] || "";
  };

  const classesIn = memo((parent) => Map.groupBy(Array.from(parent.children, (one) => Array.from(one.classList)).flat(), (name) => name));

  // A class name that consists of words, for elements without any other name: of several that share one, the first that
  // no other has. `isApart`: only that.
  const classOf = (element, isApart = false) => {
    const classes = (element.getAttribute("class") || "").split(/\s+/).filter(Boolean);
    const names = classes.filter((name) => /^(?:[a-z]-)?[a-z]{2,}(?:[-_]+(?:[A-Z]?[a-z]+|\d+))+$/.test(name) && !UTILITIES.test(name));
    const isShared = (name) => element.parentElement && classesIn(element.parentElement).get(name)?.length > 1;
    const own = classes.some(isShared) && names.find((name) => !isShared(name));
    return (own || (isApart ? "" : names[0]))?.replace(/^[a-z]-|[-_]+/g, (sign, at) => (at ? " " : ""));
  };

  return Object.freeze({ adopt: (root) => { closed.set(root.host, root); }, ask, childrenOf, getter, parentNode, parentOf, rootOf, styleOf, titleOf, treeOf, atOnce, attributeOf, classOf, generatedIn, hintOf, iconOf, labelsField, pictured, purposeOf, testIdOf, editable, matches, memo, roleOf });
})();
