package main

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestPrune checks what a test keeps: what it uses, directly or not, in any file, and the imports of that.
func TestPrune(t *testing.T) {
	pruned, err := prune(map[string][]byte{
		"a_test.go": []byte(`package small

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

func TestSeen(t *testing.T) { t.Log(helper{}.name(), rand.Int()) }

func TestOther(t *testing.T) { fmt.Println(unused{}) }
`),
		"b_test.go": []byte(`package small

import "fmt"

type helper struct{}

func (helper) name() string { return format(1) }

func (helper) String() string { return "" }

type unused struct{}

func (unused) name() string { return "" }

func format(n int) string { return fmt.Sprint(n) }

var _ fmt.Stringer = helper{}
`),
	}, regexp.MustCompile("TestSeen"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, name := range slices.Sorted(maps.Keys(pruned)) {
		for line := range strings.Lines(string(pruned[name])) {
			got = append(got, strings.TrimSpace(line))
		}
	}
	got = slices.DeleteFunc(got, func(line string) bool { return line == "" })
	want := strings.Split(`package small
import (
"math/rand/v2"
"testing"
)
func TestSeen(t *testing.T) { t.Log(helper{}.name(), rand.Int()) }
package small
import "fmt"
type helper struct{}
func (helper) name() string { return format(1) }
func (helper) String() string { return "" }
func format(n int) string { return fmt.Sprint(n) }
var _ fmt.Stringer = helper{}`, "\n")
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if n := strings.Count(string(pruned["a_test.go"]), "\n"); n != 11 {
		t.Errorf("%d lines remain, want 11", n)
	}
}
