package main

// equivalent holds random changes that no test can notice, by key, with the reason. They are never chosen.
var equivalent = map[string]string{
	"creator.go creation.object: emptied: return nil, nil, fmt.Errorf(\"encode object: %w\", err)":                                                      "all that the object holds was encoded before, part by part",
	"internal/blob/client.go Client.Get: arithmetic: 1<<20":                                                                                             "it bounds how much memory is taken before a byte has come",
	"recovery.go recovery.candidates: right operand alone: err == nil && slices.ContainsFunc(unmarked, func(d day) bool { return d.container == b.key…": "an error comes without a plan, and so without a container",
	"lister.go list: boundary: item.Name < from (2)":                                                                                                    "the floor is a plan's own ID only where older plans were read before it, so it is not the first name that is listed",
	"lister.go list: constant + 1: 1 (2)":                                                                                                               "a window asks for at least 100 blobs, two of each plan at most, so a page that is half full has many plans",
	"lister.go list: removed: limit = blob.MaxPage":                                                                                                     "a limit of 0, or of more than a page, asks the service for a page, too",
	"planblobs.go Vault.confirmParts: error dropped: return err (2)":                                                                                    "a sub-object that is new belongs to a Create which has rewritten entry and marker, so their removal is refused, too",
	"window.go backward.settle: boundary: bytes.Compare(a.to[:], s.to[:]) < 0":                                                                          "where the two are the same the top stays as it is",
}
