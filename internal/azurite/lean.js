// With every request, Azurite parses the same few templates of paths.
const Module = require("module");
const load = Module._load;
const templates = new Map();
Module._load = function (name, ...rest) {
  const loaded = load.call(this, name, ...rest);
  if (name !== "uri-templates") return loaded;
  return (text) => {
    if (!templates.has(text)) templates.set(text, loaded(text));
    return templates.get(text);
  };
};

// Each number of milliseconds on stdin moves the clock ahead.
const Real = Date;
let ahead = 0;
globalThis.Date = class extends Real {
  constructor(...parts) {
    super(...(parts.length ? parts : [Real.now() + ahead]));
  }
  static now() {
    return Real.now() + ahead;
  }
};
process.stdin.on("data", (text) => (ahead += text.toString().split("\n").reduce((sum, line) => sum + Number(line), 0)));

// The process that started Azurite holds the other end of stdin. Azurite ends when that process does, however it ends, and not
// because of an interrupt from the terminal.
process.stdin.on("close", () => process.exit(1));
process.stdin.unref();
const once = process.once;
process.once = function (name, ...rest) {
  return name === "SIGINT" ? this : once.call(this, name, ...rest);
};
process.on("SIGINT", () => {});
