// Package registry holds the plugins of an engine by name.
package registry

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
	"sync"

	"github.com/planvault/azblob/internal/secrets"
	"github.com/planvault/azblob/plugins"
)

// Register holds plugins by name. The zero value is empty and ready to use. A Register is safe for concurrent
// use.
type Register struct {
	mu      sync.RWMutex
	plugins map[string]plugins.Plugin
	checks  map[string]bool // the plugins that say that they are
}

// New returns an empty register.
func New() *Register {
	return &Register{}
}

// Must returns a register of plugins. It panics where Register returns an error, because a program that lists
// its plugins in its source has a bug then.
func Must(all ...plugins.Plugin) *Register {
	r := New()
	for _, p := range all {
		if err := r.Register(p); err != nil {
			panic(err)
		}
	}
	return r
}

// Register adds a plugin. It returns an error if the plugin is nil or has no name, if the name is taken, if the plugin is a
// [plugins.Retrier] with a number of retries or a backoff that can't be, or if a field of its types has a tag for a vault other
// than vault:"secret".
func (r *Register) Register(p plugins.Plugin) error {
	if p == nil {
		return errors.New("registry: the plugin is nil")
	}
	name := p.Name()
	if name == "" {
		return fmt.Errorf("registry: plugin %T has no name", p)
	}
	if retrier, ok := p.(plugins.Retrier); ok {
		if n := retrier.Retries(); n < 0 {
			return fmt.Errorf("registry: plugin %q: Retries: %d is negative", name, n)
		}
		if field, problem := retrier.Backoff().Wrong(); field != "" {
			return fmt.Errorf("registry: plugin %q: Backoff.%s: %s", name, field, problem)
		}
	}
	for _, empty := range []any{p.Request(), p.Response()} {
		if _, err := secrets.Find("", nil, empty); err != nil {
			return fmt.Errorf("registry: plugin %q: %w", name, err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, taken := r.plugins[name]; taken {
		return fmt.Errorf("registry: a plugin named %q is registered already", name)
	}
	if r.plugins == nil {
		r.plugins = make(map[string]plugins.Plugin)
	}
	r.plugins[name] = p
	if l, ok := p.(plugins.Looker); ok && l.IsCheck() {
		if r.checks == nil {
			r.checks = make(map[string]bool)
		}
		r.checks[name] = true
	}
	return nil
}

// MayCheck reports whether the Checks of a new plan may name a plugin: those that say so with IsCheck, or any if none does.
// See [plugins.Looker].
func (r *Register) MayCheck(name string) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return len(r.checks) == 0 || r.checks[name]
}

// Plugin returns the plugin with this name, and whether there is one.
func (r *Register) Plugin(name string) (plugins.Plugin, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	p, ok := r.plugins[name]
	return p, ok
}

// Untagged returns the fields of requests and responses whose names look like those of secrets, such as Password, APIKey or
// ConnectionString, that may hold a text, and that lack the tag vault:"secret". Each is the name of a plugin with the path of
// the field, such as "deploy: /req/Password". It is for a test of the program that has the plugins.
func (r *Register) Untagged() (fields []string) {
	for name, p := range r.All() {
		for root, empty := range map[string]any{"/req": p.Request(), "/resp": p.Response()} {
			for _, path := range secrets.Untagged(root, reflect.TypeOf(empty)) {
				fields = append(fields, name+": "+path)
			}
		}
	}
	slices.Sort(fields)
	return fields
}

// All yields the plugins by their names, in the order of the names. Plugins that are registered meanwhile are left out.
func (r *Register) All() iter.Seq2[string, plugins.Plugin] {
	return func(yield func(string, plugins.Plugin) bool) {
		r.mu.RLock()
		all := maps.Clone(r.plugins)
		r.mu.RUnlock()
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if !yield(name, all[name]) {
				return
			}
		}
	}
}
