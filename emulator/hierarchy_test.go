package emulator_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/planvault/azblob/emulator"
)

// TestHierarchy looks at what differs on an account with a hierarchical namespace, also after a restart.
func TestHierarchy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "account")
	s, err := emulator.Open(path, emulator.Options{HierarchicalNamespace: true})
	must(t, err)
	s.PutContainer("plans", nil)
	for _, name := range []string{"a/b/1", "a-b", "top", "e/gone"} {
		send(t, s, "put /plans/"+name+" body=x")
	}
	send(t, s, "delete /plans/e/gone")
	must(t, s.Close())
	s = open(t, path, emulator.Options{HierarchicalNamespace: true})

	for line, want := range map[string]string{
		"list /plans ?include=metadata": "a/ a-b a/b/ a/b/1 e/ top", // a slash marks a directory
		"list /plans ?delimiter=/":      "a-b top; a/ e/",
	} {
		page, err := parseXML(send(t, s, line).body)
		must(t, err)
		var names, prefixes []string
		for _, item := range page.child("Blobs").Children {
			name := item.child("Name").Text
			switch item.child("Properties").child("ResourceType").Text {
			case "directory":
				if item.child("Metadata").child("hdi_isfolder").Text != "true" {
					t.Errorf("the metadata of %s does not say that it is a directory", name)
				}
				names = append(names, name+"/")
			case "file":
				names = append(names, name)
			default: // a prefix
				prefixes = append(prefixes, name)
			}
		}
		got := strings.Trim(strings.Join(names, " ")+"; "+strings.Join(prefixes, " "), "; ")
		if got != want {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
	for line, want := range map[string]string{
		"list /plans ?delimiter=-":  "400 InvalidQueryParameterValue",
		"list /plans ?prefix=top/x": "400 InvalidQueryParameterValue", // a blob in the prefix
		"delete /plans/a/b":         "400 OperationNotSupportedOnDirectory",
		"put /plans/a/b":            "409 ResourceTypeMismatch",
		"put /plans/top/x":          "409 ResourceTypeMismatch",
		"put /plans/a//x":           "501 NotImplemented",
	} {
		if got := result(t, s, line); got != want {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
	if h := send(t, s, "account /").header; h.Get("x-ms-is-hns-enabled") != "true" {
		t.Error("the account says that it has no hierarchical namespace")
	}
}

// errOf drops the result of a call.
func errOf[T any](_ T, err error) error { return err }
