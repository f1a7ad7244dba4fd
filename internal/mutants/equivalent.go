package main

// equivalent holds random changes that no test can notice, with the reason: function, rule and source. They are
// never chosen.
var equivalent = map[string]string{
	"object: emptied: return nil, nil, fmt.Errorf(\"encode object: %w\", err)": "all that the object holds was encoded before, part by part",
	"receiveBody: arithmetic: 1<<20":                                           "it bounds how much memory is taken before a byte has come",
	"confirmParts: error dropped: return err (2)":                              "a sub-object that is new belongs to a Create which has rewritten entry and marker, so their removal is refused, too",
}
