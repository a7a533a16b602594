// Runs in a page's own world before its scripts. It replaces two functions that fail under automation: the file picker,
// which is cancelled, by a file input; and writing to the clipboard, which is denied, by a copy that our scripts hear.
(() => {
  const refuse = (message) => new DOMException(message, "NotAllowedError");
  const handle = (file) => {
    const values = { kind: "file", name: file.name, getFile: async () => file, queryPermission: async () => "granted",
      requestPermission: async () => "granted", createWritable: async () => { throw refuse("The file can't be changed."); } };
    return Object.defineProperties(Object.create(FileSystemFileHandle.prototype), Object.fromEntries(
      Object.entries(values).map(([name, value]) => [name, { value }])));
  };
  if (window.showOpenFilePicker) {
    window.showOpenFilePicker = (options) => new Promise((done) => {
      const input = Object.assign(document.createElement("input"), { type: "file", multiple: Boolean(options?.multiple) });
      input.onchange = () => done(Array.from(input.files, handle));
      input.click();
    });
  }
  const clipboard = window.Clipboard?.prototype;
  if (!clipboard) return;
  clipboard.writeText = async (text) => {
    const give = (event) => {
      event.clipboardData.setData("text/plain", text);
      event.preventDefault();
    };
    window.addEventListener("copy", give, { capture: true, once: true });
    const isCopied = document.execCommand("copy");
    window.removeEventListener("copy", give, { capture: true });
    if (!isCopied) throw refuse("Write permission denied.");
  };
  clipboard.write = async ([item]) => clipboard.writeText(await (await item.getType("text/plain")).text());
})();
