package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/workflow"
)

// card is a request with a secret, and slip a response with one.
type (
	card struct {
		Name, Does string
		Number     string `vault:"secret"`
	}
	slip struct {
		Token  string `vault:"secret"`
		Any    any
		Number float64
	}
)

// TestSecretsInFailures has plugins that quote secrets wherever they can. Neither what is stored nor what is logged has them.
func TestSecretsInFailures(t *testing.T) {
	const number, token = "4111-1111", "t0ken \"ä\""
	does := map[string]func() (slip, error){
		"error":   func() (slip, error) { return slip{}, errors.New("no card 4111-1111") },
		"wrapped": func() (slip, error) { return slip{}, fmt.Errorf("%q: %w", number, &plugins.Error{Message: number}) },
		"own": func() (slip, error) {
			return slip{}, &plugins.Error{Message: number, Wrapped: &plugins.Error{Message: "4111-1111"}}
		},
		"cause":    func() (slip, error) { return slip{}, &plugins.Error{Cause: errors.New(number)} },
		"panic":    func() (slip, error) { panic(card{Number: number}) },
		"response": func() (slip, error) { return slip{Token: token}, fmt.Errorf("%q is not valid", token) },
		"any":      func() (slip, error) { return slip{Any: []any{card{Number: token}}}, errors.New(token) },
		"unfit":    func() (slip, error) { return slip{Token: token, Number: math.NaN()}, errors.New(token) },
		"long":     func() (slip, error) { return slip{}, errors.New(strings.Repeat("x", 64<<10-4) + number) },
		"none":     func() (slip, error) { return slip{Token: token}, nil },
	}
	onStage(t, func(t *testing.T, s *stage) {
		s.reg = registry.Must(s, engine.Task("pay", func(_ context.Context, _ engine.Call, c card) (slip, error) { return does[c.Does]() }))
		p := plan(block("b"))
		p.Blocks[0].ToleratedFailures = -1
		for name := range does {
			p.Blocks[0].Sequences = append(p.Blocks[0].Sequences, sequence(name, &workflow.Action{Plugin: "pay", Req: card{Does: name, Number: number}}))
		}
		s.create(p)
		var log bytes.Buffer
		logged := engine.LogObserver(slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
		must(t, s.engine(s.process(), engine.Options{Observer: logged}).Run(t.Context()))
		if text := log.String(); !strings.Contains(text, "panic") || strings.Contains(text, number) || strings.Contains(text, "t0ken") {
			t.Errorf("logged is %s", text)
		}
		for _, q := range s.read(p.ID).Blocks[0].Sequences {
			a := q.Actions[0]
			if want := []string{"/req/Number", "/resp/Token"}; q.Name != "any" && !slices.Equal(a.Secrets, want) {
				t.Errorf("%s: the paths are %q", q.Name, a.Secrets)
			}
			shown, err := workflow.Marshal(a.Redacted())
			must(t, err)
			failure := a.Attempts[0].Err
			if told := string(shown) + failure.Error(); strings.Contains(told, number) || strings.HasSuffix(failure.Error(), "4111") || strings.Contains(told, "t0ken") || !strings.Contains(told, "(secret)") {
				t.Errorf("%s: %s", q.Name, told)
			}
			if stored, err := workflow.Marshal(a); err != nil || !strings.Contains(string(stored), number) {
				t.Errorf("%s: stored is %s, %v", q.Name, stored, err)
			}
			if (failure == nil) != (q.Name == "none") {
				t.Errorf("%s: %v", q.Name, failure)
			}
		}
	})
}

// TestSecretsOfResults has an action, and then the hook for the end, quote a secret in the response of another action. So does
// the action of a fork, which has that response from the start.
func TestSecretsOfResults(t *testing.T) {
	const token = "t0ken-12345"
	onStage(t, func(t *testing.T, s *stage) {
		key := workflow.NewV7()
		login := engine.Task("login", func(context.Context, engine.Call, card) (slip, error) { return slip{Token: token}, nil })
		use := engine.Task("use", func(_ context.Context, c engine.Call, _ string) (string, error) {
			got, err := engine.Result[slip](c, key)
			must(t, err)
			panic("no access with " + got.Token)
		})
		s.reg = registry.Must(s, login, use)
		p := plan(block("", sequence("", &workflow.Action{Key: key, Plugin: "login", Req: card{}}, &workflow.Action{Plugin: "use", Req: ""})))
		s.create(p)
		var log bytes.Buffer
		logged := engine.LogObserver(slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
		e := s.engine(s.process(), engine.Options{Observer: logged, Ended: func(_ context.Context, p *workflow.Plan) error {
			return fmt.Errorf("nobody takes %v", p.Blocks[0].Sequences[0].Actions[0].Attempts[0].Resp)
		}})
		must(t, e.Run(t.Context()))
		f, err := workflow.Fork(s.read(p.ID), workflow.ForkOptions{})
		must(t, err)
		s.create(f)
		must(t, e.Run(t.Context()))
		for _, p := range []*workflow.Plan{s.read(p.ID), s.read(f.ID)} {
			a := p.Blocks[0].Sequences[0].Actions[1]
			if told := a.Attempts[0].Err.Error() + p.Ending.Trouble + log.String(); strings.Contains(told, token) ||
				!strings.Contains(told, "no access with (secret)") || !strings.Contains(p.Ending.Trouble, "nobody takes {(secret)") {
				t.Errorf("told is %s", told)
			}
		}
	})
}
