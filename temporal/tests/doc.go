// Package tests runs package temporal on a real Temporal server, which starts in the process of the test, with workers that are
// processes. It is a module of its own, so that users of package temporal do not link the server.
//
//	go -C temporal/tests test -count=1 -v ./...                          all of them, in minutes
//	go -C temporal/tests test -count=1 -v -run TestSideBySide .         what Temporal and the fleet cost
package tests
