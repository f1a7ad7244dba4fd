// Azurite loads these two packages always, and uses them only for telemetry and for a store in SQL, which Start leaves off.
// To load them takes four fifths of the time that Azurite needs to start.
const Module = require("module");
const load = Module._load;
const unused = { applicationinsights: {}, sequelize: { Model: class {} } };
Module._load = function (name, ...rest) {
  return unused[name] ?? load.call(this, name, ...rest);
};
