import "webix/webix.css";
import * as webix from "webix/webix.js";

const CITIES = ["Oslo", "Rome", "Lima"];
const entry = { id: "Entry", view: "form", scroll: "y", elements: [
  { view: "text", id: "name", label: "Name", required: true }, { view: "counter", id: "amount", label: "Amount", value: 2 },
  { view: "richselect", id: "kind", label: "Kind", value: "Oslo", options: CITIES },
  { view: "combo", id: "city", label: "City", value: "Rome", options: CITIES },
  { view: "datepicker", id: "day", label: "Day", value: new Date(2026, 4, 4) },
  { view: "slider", id: "size", label: "Size", value: 30, title: "#value#" }, { view: "switch", id: "live", label: "Live" },
  { view: "checkbox", id: "agree", labelRight: "Agree" }, { view: "radio", id: "by", label: "By", options: ["Air", "Sea"] },
  { view: "segmented", id: "way", options: ["Left", "Middle"] }, { view: "textarea", id: "notes", label: "Notes", height: 60 },
  { cols: [{ view: "button", id: "send", value: "Send", css: "webix_primary" }, { view: "button", id: "later", value: "Later" }] }] };
const more = { id: "More", rows: [
  { view: "toolbar", cols: [{ view: "icon", id: "bars", icon: "wxi-dots", tooltip: "Bars" }, { view: "search", id: "find", placeholder: "Find" },
    { view: "menu", id: "menu", data: [{ value: "File", submenu: ["Cut", "Copy"] }, { value: "View" }] }] },
  { view: "datatable", id: "table", height: 170, select: "row", columns: [{ id: "ok", header: "", template: "{common.checkbox()}" },
    { id: "who", header: "Who", sort: "string" }, { id: "city", header: ["City", { content: "textFilter" }], fillspace: true }],
  data: ["Ann", "Bob", "Cid"].map((who, id) => ({ id: id + 1, who, city: CITIES[id] })) },
  { view: "tree", id: "tree", data: [{ id: "fruit", value: "Fruit", open: true, data: [{ id: "pear", value: "Pear" }] }] },
  { view: "list", id: "list", select: true, autoheight: true, data: ["First", "Second"] },
  { view: "button", id: "dialog", value: "Dialog", click: () => webix.confirm({ title: "Sure?", ok: "Yes", cancel: "No", text: "Really" }) }] };
webix.ui({ container: "app", width: 700, height: 720, rows: [{ view: "tabview", cells: [{ header: "Entry", body: entry }, { header: "More", body: more }] }] });
