package main

// equivalent holds random changes that no test can notice, by key, with the reason. They are never chosen.
var equivalent = map[string]string{
	"creator.go creation.object: emptied: return nil, nil, fmt.Errorf(\"encode object: %w\", err)": "all that the object holds was encoded before, part by part",
	"internal/blob/client.go receiveBody: arithmetic: 1<<20":                                       "it bounds how much memory is taken before a byte has come",
	"planblobs.go Vault.confirmParts: error dropped: return err (2)":                               "a sub-object that is new belongs to a Create which has rewritten entry and marker, so their removal is refused, too",
}
