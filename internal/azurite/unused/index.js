// Azurite derives classes from Model of sequelize.
exports.Model = class {};
