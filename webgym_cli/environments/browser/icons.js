// What an element without words is called: by its picture, its style sheet, its class or its purpose.
webgym.icons = (() => {
  const UTILITIES = new RegExp("^(?:absolute|align|animate|bg|border|bottom|col|cursor|divide|duration|ease|fill|flex|font|gap|" +
    "grid|h|inset|items|justify|leading|left|line|list|m[trblxy]?|max|min|object|opacity|order|origin|outline|overflow|p[trblxy]?|" +
    "place|pointer|relative|right|ring|rounded|row|scale|scroll|select|self|shadow|shrink|size|space|stroke|text|top|tracking|" +
    "transition|translate|w|whitespace|z)-");
  const PURPOSES = /^(search|email|tel|url|password)$/;

  // Words that a style sheet puts into an element; not the symbols of icon fonts.
  const generatedIn = (element) => [element, element.firstElementChild].map((one) => (one ? drawnIn(one) : "")).join(" ");
  const drawnIn = (element) => ["::before", "::after"].map((part) => {
    const content = getComputedStyle(element, part).content.replace(/url\("[^"]*"\)/g, ""), pieces = content.matchAll(/"((?:[^"\\]|\\.)*)"|attr\(([\w-]+)/g);
    const words = Array.from(pieces, ([, text, name]) => (name ? element.getAttribute(name) : text) || "").join("");
    return /[^\s\p{Co}]/u.test(words) ? words : "";
  }).join(" ");

  const pictured = (svg) => Array.prototype.find.call(svg.children, (child) => child.localName === "title")?.textContent || "";

  // The name of an image without text, from its file, symbol, class or ligature; otherwise from its surroundings.
  const iconOf = (element) => {
    const parts = [element, ...Array.prototype.slice.call(element.querySelectorAll?.("img,svg,use,i,span,[aria-hidden=true]") || [], 0, 8)];
    for (const part of parts) {
      const told = part.getAttribute("data-icon") || part.getAttribute("icon") || part.getAttribute("href")?.split("#")[1] ||
        part.localName === "use" && part.getAttribute("xlink:href")?.split("#")[1] ||
        part.localName === "img" && part.getAttribute("src")?.match(/^(?!data:)[^?#]*/)?.[0].split("/").pop().replace(/\.\w+$/, "") ||
        (part.getAttribute("class") || "").match(/(?:^|\s|[a-z]-)(?:icon|fa|bi|codicon|mdi|glyphicon|ti|lucide|feather|ph|ri)-(?!(?:only|hover|base|button)\b)([\w-]+)/)?.[1] ||
        part.closest("[aria-hidden=true]") && part.textContent.trim().match(/^[a-z]{2,}(_[a-z\d]+)*$/)?.[0];
      if (told) return told.replace(/[-_]+/g, " ");
    }
    const classes = parts.map((part) => part.getAttribute("class") || "");
    const place = classes.map((names) => names.match(/([\w-]{2,}(?<!base))-icon(?:\s|$)/)?.[1]).find(Boolean) ||
      classes.find((names) => /^(?!ui )[a-z ]+ icon\b/.test(names))?.replace(/ (icon|link)\b/g, "");
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

  // The first class name that consists of words, for elements without any other name.
  const classOf = (element) => (element.getAttribute("class") || "").split(/\s+/)
    .find((name) => /^(?:[a-z]-)?[a-z]{2,}(?:[-_]+(?:[A-Z]?[a-z]+|\d+))+$/.test(name) && !UTILITIES.test(name))?.replace(/^[a-z]-|[-_]+/g, (sign, at) => (at ? " " : ""));

  return Object.freeze({ classOf, generatedIn, hintOf, iconOf, pictured, purposeOf, testIdOf });
})();
