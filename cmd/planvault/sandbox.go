package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"
	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
)

// side is one of the two accounts of a drill, with the sandbox in it.
type side struct {
	connection
	network *severed
}

// severed is a connection that can be cut.
type severed struct {
	policy.Transporter
	cut atomic.Bool
}

func (s *severed) Do(req *http.Request) (*http.Response, error) {
	if s.cut.Load() {
		return nil, errors.New("the drill has cut the account off")
	}
	return s.Transporter.Do(req)
}

// sandboxes returns the two accounts of a drill. The prefixes are new, so that no vault is touched.
func (a *app) sandboxes(f drillFlags) (sides []side, err error) {
	var network policy.Transporter = http.DefaultClient
	if a.transport != nil {
		network = a.transport
	}
	id := uuid.New()
	names := []string{fmt.Sprintf("drill-%x", id[:4]), fmt.Sprintf("drill-%x-copy", id[:4])}
	for i, c := range []connection{a.connection, f.to} {
		if f.emulator {
			server := emulator.New(emulator.Options{NoLog: true})
			c, network = connection{ConnectionString: server.ConnectionString()}, server.Transport()
		} else {
			c.Prefix = names[i]
			if i == 1 && !c.hasAccount() && c.profile == "" {
				c = sides[0].connection
			} else if c, err = a.resolve(c); err != nil {
				return nil, err
			}
		}
		c.Prefix = names[i]
		a.places = append(a.places, c.String())
		sides = append(sides, side{c, &severed{Transporter: network}})
	}
	return sides, nil
}

// open opens the sandbox of a side.
func (s side) open(ctx context.Context, a *app, reg *registry.Register) (*azblob.Vault, error) {
	options := slices.Concat([]azblob.Options{{Observer: a.meter.observer()}}, a.options, []azblob.Options{{ClientOptions: policy.ClientOptions{Transport: s.network}}})
	v, _, err := s.dial(ctx, &a.outage, reg, options)
	if err == nil {
		a.vaults = append(a.vaults, v)
	}
	return v, err
}

// remove removes the containers of the sandbox, the one with the mark last, so that another drill finishes it.
func (s side) remove(ctx context.Context) error {
	account, err := s.service(s.network.Transporter)
	if err != nil {
		return err
	}
	own := s.Prefix + "-"
	var names, marked []string
	for pages := account.NewListContainersPager(&service.ListContainersOptions{Prefix: &own}); pages.More(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return fmt.Errorf("list the containers of the sandbox %s: %w; the first drill after a day removes them", s.Prefix, err)
		}
		for _, c := range page.ContainerItems {
			switch rest := strings.TrimPrefix(*c.Name, own); rest {
			case "control":
				marked = append(marked, *c.Name)
			default:
				if _, err := time.Parse(time.DateOnly, rest); err != nil && rest != "log" {
					continue // of the other sandbox, in the same account
				}
				names = append(names, *c.Name)
			}
		}
	}
	for _, name := range append(names, marked...) {
		if _, err := account.DeleteContainer(ctx, name, nil); err != nil {
			return fmt.Errorf("container %s is left: %w; the first drill after a day removes it", name, err)
		}
	}
	return nil
}

// A drill ends within drillMost. It stores the note drillMark in its sandbox before anything else, so a prefix with a mark
// that is older than drillDead, by the store's clock, is the sandbox of a drill that was killed.
const (
	drillMost = 12 * time.Hour
	drillDead = 24 * time.Hour
	drillMark = "drill"
)

// mark stores the mark in a sandbox.
func mark(ctx context.Context, sandbox storage.Control) error {
	n, err := storage.NewNote(drillMark, struct{}{}, "")
	if err == nil {
		_, err = sandbox.PutNote(ctx, n)
	}
	return err
}

// sandboxName is what the prefix of a sandbox looks like.
var sandboxName = regexp.MustCompile(`^drill-[0-9a-f]{8}(-copy)?$`)

// deadSandboxes returns the sandboxes of dead drills in the accounts of a drill.
func (a *app) deadSandboxes(ctx context.Context, sides []side) (dead []side, err error) {
	for i, s := range sides {
		if i == 1 && s.account() == sides[0].account() {
			break
		}
		v, err := s.open(ctx, a, nil)
		if err != nil {
			return nil, err
		}
		found, err := v.Admin().Prefixes(ctx)
		if err != nil {
			return nil, err
		}
		for _, p := range found {
			if !sandboxName.MatchString(p.Prefix) {
				continue
			}
			s.Prefix = p.Prefix
			switch is, err := s.dead(ctx, a); {
			case err != nil:
				return nil, err
			case is:
				dead = append(dead, s)
			default:
				fmt.Fprintf(a.stderr, "planvault: %s is left alone: a drill may be at work there, or it is no sandbox\n", p.Prefix)
			}
		}
	}
	return dead, nil
}

// dead reports whether a prefix is the sandbox of a dead drill.
func (s side) dead(ctx context.Context, a *app) (bool, error) {
	v, err := s.open(ctx, a, nil)
	if err != nil {
		return false, err
	}
	roster, err := v.Control().Roster(ctx)
	note, marked := roster.FindNote(drillMark)
	return marked && roster.Now.Sub(note.Stored) > drillDead, err
}
