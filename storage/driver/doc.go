// Package driver is for authors of vaults: it has what every [storage.Vault] needs, whatever it is built on.
// That is the check of input, the form of versions, and the meaning of filters. Users of a vault need only
// package storage.
//
// A vault calls the functions in this order:
//
//   - Create: [Accept], and [Version] for every object;
//   - Restore: [CheckRestored], and [Version] for every object;
//   - updates: [CheckUpdate], for an action [MarkSecrets], then [Version] for the object;
//   - Read and Delete: [CheckID]; Read also [Bind];
//   - List, Search and Count: [CheckFilters] or [CheckCount], [ChooseID] and [Choose], or [CreatedBefore];
//   - the methods of [storage.Control]: [CheckNewMember], [CheckRenewedMember], [CheckRecordVersion], [CheckStop],
//     [CheckNote], [CheckNoteName], [CheckRemovedNote], [CheckKeyRecord], [CheckKeyName], [CheckRemovedKey], [ListedKey], [CheckAuditEntry] and [RecordedAuditEntry].
//
// Package storage/storagetest proves that the vault keeps the contract.
package driver
